"""The release files: what they contain, and that they are all that a person needs."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from remoteclaw import __version__
from remoteclaw.host.installation import EXTRAS
from tests.support.agents import ROOT
from tests.support.empty_root import in_empty_root
from tests.support.extensions import install_example
from tests.support.waiting import HANG_S

#: The default port may be in use.
ANY_PORT = {"REMOTECLAW__GATEWAY__PORT": "0", "REMOTECLAW__TERMINALS__MAX_LOAD": "0"}
#: Variables that package managers may need on this machine.
KEPT = ("PIP_", "UV_", "HTTP_PROXY", "HTTPS_PROXY", "SSL_CERT_FILE")
#: Starts RemoteClaw, sends a message, prints the answer, and ends RemoteClaw.
SESSION = """
set -e
mkfifo /tmp/$$.lines
remoteclaw up --no-chat >/tmp/$$.lines & up=$!
exec 3</tmp/$$.lines
rm /tmp/$$.lines
while read -r line <&3; do case $line in Ready*) break ;; esac; done
remoteclaw send hello
remoteclaw doctor
kill $up
wait $up
echo "It has ended."
"""


def build(tree: Path, directory: Path, *, umask: int = 0o022) -> tuple[Path, Path]:
    """Build the sdist and the wheel of a tree; return their files."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", directory],
        cwd=tree,
        check=True,
        capture_output=True,
        umask=umask,
    )
    name = f"remoteclaw-{__version__}"
    return directory / f"{name}.tar.gz", directory / f"{name}-py3-none-any.whl"


def unpack(sdist: Path, directory: Path) -> Path:
    """Unpack an sdist, and return the directory with its tree."""
    subprocess.run(["tar", "-xzf", sdist, "-C", directory], check=True)
    return directory / sdist.name.removesuffix(".tar.gz")


def install(wheel: Path, venv: Path) -> None:
    """Install a wheel and what it requires into a new environment, in the versions of the tests."""
    python = getattr(sys, "_base_executable", sys.executable)
    pinned = re.findall(r"^(\S+==.+?) \\\\$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    constraints = venv.with_name("constraints.txt")
    constraints.write_text("\n".join(pinned))
    if uv := shutil.which("uv"):
        subprocess.run([uv, "venv", "-q", "--python", python, venv], check=True)
        command = [uv, "pip", "install", "-q", "--python", str(venv / "bin/python")]
    else:
        subprocess.run([python, "-m", "venv", venv], check=True)
        command = [str(venv / "bin/python"), "-m", "pip", "install", "-q"]
    subprocess.run([*command, "-c", constraints, wheel], check=True)


def is_installed(venv: Path, package: str) -> bool:
    """Whether an environment has a package."""
    return any(venv.glob(f"lib/*/site-packages/{package}-*.dist-info"))


def doctor(venv: Path, directory: Path) -> str:
    """Return what `remoteclaw doctor` says in an environment, without a state directory."""
    env = {**ANY_PORT, "PATH": "/usr/bin:/bin", "HOME": str(directory / "nobody")}
    command = (venv / "bin/remoteclaw", "doctor")
    return subprocess.run(command, check=True, capture_output=True, env=env).stdout.decode()


def files_of(*places: str) -> set[str]:
    """Return the files that git has, or would add, in these places of the checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *places]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the list of files from git")
def test_the_release_files_have_every_file_once_and_are_the_same_wherever_they_are_built(
    tmp_path: Path,
) -> None:
    sdist, wheel = build(ROOT, tmp_path / "first")

    with zipfile.ZipFile(wheel) as archive:
        packed = archive.namelist()
    about = f"remoteclaw-{__version__}.dist-info"
    added = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    assert sorted(packed) == sorted(
        files_of("remoteclaw", "workers") | {f"{about}/{name}" for name in added}
    )
    tree = unpack(sdist, tmp_path)
    unpacked = {str(file.relative_to(tree)) for file in tree.rglob("*") if file.is_file()}
    assert unpacked == files_of() | {"PKG-INFO"}

    again = build(tree, tmp_path / "second", umask=0o077)

    assert [file.read_bytes() for file in again] == [sdist.read_bytes(), wheel.read_bytes()]


@pytest.mark.thorough
def test_what_the_sdist_installs_starts_and_answers_where_nothing_else_is(
    directory: Path,
) -> None:
    sdist, _ = build(ROOT, directory)
    _, wheel = build(unpack(sdist, directory), directory / "built")
    venv = directory / "venv"
    install(wheel, venv)
    (packages,) = venv.glob("lib/python*/site-packages")
    install_example(packages)

    # A Python of /usr is there already.
    shows = [venv, *(Path(sys.base_prefix),) * (sys.base_prefix != "/usr")]
    command = in_empty_root(directory, shows=shows, path=str(venv / "bin"))
    result = subprocess.run(
        [*command, "REMOTECLAW__GATEWAY__PORT=0", "sh", "-c", SESSION],
        check=False,
        capture_output=True,
        cwd="/",
        text=True,
        timeout=HANG_S,
    )

    said = result.stdout + result.stderr
    assert result.returncode == 0, said
    assert "This is RemoteClaw's demo agent." in said
    assert said.rstrip().endswith("It has ended.")
    assert "remoteclaw-folder 1.0: channel folder" in said
    assert "Traceback" not in said
    assert os.fspath(ROOT) not in said
    # What doctor proposes for the extras is right, too.
    commands = re.findall(r"not installed: run `(.+?)`", said)
    assert said.count("\n-- ") == len(commands)
    assert len(commands) == len(EXTRAS) - is_installed(venv, "cryptography") + 1
    for proposed in commands:
        subprocess.run(shlex.split(proposed), check=True, capture_output=True)
    assert "not installed" not in doctor(venv, directory)


@pytest.mark.thorough
def test_each_way_to_install_in_the_readme_works(directory: Path) -> None:
    tools = directory / "tools"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin/pip", "install", "-q", "pipx", "uv"], check=True)
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"^(?:pipx|uv|python3) .*'\.\[terminals\]'$", readme, re.MULTILINE)
    commands += re.findall(r"`(uvx .*) up`", readme)
    assert len(commands) == 4

    for number, command in enumerate(commands):
        home = directory / f"home-{number}"
        home.mkdir()
        path = f"{home}/.local/bin:{home}/.local/share/remoteclaw/bin:{tools}/bin:/usr/bin:/bin"
        kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
        env = {**kept, **ANY_PORT, "HOME": str(home), "PATH": path}
        steps = [command, "remoteclaw doctor"]
        if command.startswith("uvx"):  # it installs nothing
            steps = [f"{command} doctor"]
        for step in steps:
            found = subprocess.run(
                step, shell=True, cwd=ROOT, env=env, check=False, capture_output=True, text=True
            )
            assert found.returncode == 0, f"{step}: {found.stdout}{found.stderr}"
        assert re.search("ok  terminals +can be opened", found.stdout), f"{command}: {found}"
