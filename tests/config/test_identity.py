"""Identity files that can't be used: one sentence for each, before anything starts."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.identity import identity_files, identity_problem, language_of
from remoteclaw.config.load import load_config
from remoteclaw.config.model import AgentConfig, Config
from remoteclaw.errors import ConfigError
from remoteclaw.messages import EVERYONE, SessionKey
from tests.support.command import run_command
from tests.support.rows import for_each
from tests.support.up import remoteclaw

SETTINGS = AgentConfig(identity=("SOUL.md", "USER.md"), memory=True)
ALICE = SessionKey("main", "telegram", "default", "42", "42")


@pytest.fixture
def files(home: Home) -> Path:
    directory = home.agent_files("main")
    (directory / "people").mkdir(mode=0o700, parents=True)
    for name in ("SOUL.md", "USER.md", "people/telegram-42.md"):
        (directory / name).write_text(f"About {name}.\n")
        (directory / name).chmod(0o600)
    return directory


def test_files_that_the_operator_wrote_have_no_problem(home: Home, files: Path) -> None:
    """Also with the mode that the umask of many users gives them."""
    (files / "USER.md").chmod(0o664)

    assert identity_problem(home, "main", SETTINGS) is None


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def write(files: Path) -> None:
        (files / name).write_bytes(content)

    return write


def _link(target: str) -> Callable[[Path], None]:
    def link(files: Path) -> None:
        (files / "SOUL.md").unlink()
        (files / "SOUL.md").symlink_to(target)

    return link


def _link_directory(files: Path) -> None:
    files.rename(files.with_name("elsewhere"))
    files.symlink_to("elsewhere")


def _directory(files: Path) -> None:
    (files / "SOUL.md").unlink()
    (files / "SOUL.md").mkdir()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (
            lambda files: (files / "SOUL.md").unlink(),
            "it is not there: create it, or take it out of identity.",
        ),
        (_write("SOUL.md", b"x" * 1024 * 1024), "it has 1 MB, and 16 KB are the most: shorten it"),
        (_write("SOUL.md", "Grüße".encode("latin-1")), "it is no UTF-8 text: save it as UTF-8."),
        (_write("SOUL.md", "Marvin".encode("utf-16-le")), "it is no UTF-8 text"),
        (_link("/etc/passwd"), "it leads to /etc/passwd, outside of"),
        (_link("SOUL.md"), "too many levels of symbolic links: put a regular file there, or take"),
        (_link_directory, "outside of"),
        (
            _directory,
            "it is no regular file: put one there, or take it out of identity.",
        ),
        (
            lambda files: (files / "people/telegram-43.md").mkdir(),
            "it is no regular file: put one there.",
        ),
        (lambda files: (files / "USER.md").chmod(0o622), "other users can change it: `chmod go-w"),
        (lambda files: (files / "SOUL.md").chmod(0o606), "other users can change it: `chmod go-w"),
        (_write("people/telegram-42.md", b"\xff"), "it is no UTF-8 text"),
        (_write("MEMORY.md", b"x" * 9000), "it has 9,000 bytes, and 8,192 are the most: shorten"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    home: Home, files: Path, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(files)

    problem = identity_problem(home, "main", SETTINGS) or ""

    assert why in problem
    assert str(files) in problem
    assert "\n" not in problem


def test_the_files_may_have_32_kb_together(home: Home, files: Path) -> None:
    settings = AgentConfig(identity=("SOUL.md", "USER.md", "TOOLS.md"))
    for name in settings.identity:
        (files / name).write_text("x" * 12_000)
        (files / name).chmod(0o600)

    problem = identity_problem(home, "main", settings)

    assert problem == (
        "The files of [agents.main] identity have 35 KB together, and 32 KB are the most: shorten "
        "them."
    )


@for_each(
    ("value", "why"),
    [
        ("'../main/SOUL.md'", "has '../main/SOUL.md': write the name of a file"),
        ("'/etc/passwd'", "has '/etc/passwd': write the name of a file"),
        ("'..'", "has '..': write the name of a file"),
        ("''", "has '': write the name of a file"),
        ("'MEMORY.md'", "the agent's memory: set memory = true instead"),
        ("'SOUL.md', 'SOUL.md'", "has 'SOUL.md' twice"),
    ],
)
def test_an_invalid_name_is_refused_when_the_configuration_is_read(
    home: Home, value: str, why: str
) -> None:
    home.config_file.write_text(f"[agents.main]\nidentity = [{value}]")

    with pytest.raises(ConfigError) as error:
        load_config(home.config_file, {})

    assert why in str(error.value)


@pytest.mark.parametrize("where", ["agents", "agents/main", "agents/main/work"])
def test_no_agent_may_work_where_its_identity_files_are(
    home: Home, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("REMOTECLAW_HOME", str(home.path))
    for setting in ("agents.main.workspace", "projects.web"):
        section, _, key = setting.rpartition(".")
        home.config_file.write_text(f"[{section}]\n{key} = '{home.path / where}'")

        with pytest.raises(ConfigError) as error:
            load_config(home.config_file, {})

        assert "where the files are that agents must not change" in str(error.value)


def test_up_doctor_and_config_validate_refuse_an_unusable_file(home: Home, files: Path) -> None:
    home.config_file.write_text(
        "gateway.port = 0\n[agents.main]\nruntime = 'demo'\nidentity = ['SOUL.md']"
    )
    (files / "SOUL.md").unlink()
    problem = f"{files / 'SOUL.md'} can't be used for the agent 'main': it is not there"

    up = remoteclaw(home, "up", "--no-chat")
    validate = run_command("config", "validate", env={**os.environ})
    doctor = run_command("doctor", env={**os.environ})

    assert up.returncode == validate.returncode == doctor.returncode == 1
    assert problem in up.stderr
    assert problem in validate.stderr
    assert "NO  agent main" in doctor.stdout
    assert problem in doctor.stdout


@for_each(
    ("session", "file"),
    [
        (ALICE, "people/ada.md"),
        (SessionKey("main", "discord", "default", "chat", "7"), "people/discord-7.md"),
        (SessionKey("main", "matrix", "default", "c", "@a/../b:c.d"), None),
        (SessionKey("main", "telegram", "default", "-100", EVERYONE), None),
        (SessionKey("main", "telegram", "default", "42", "42", task="t"), None),
    ],
)
def test_a_direct_chat_has_the_file_about_its_person(session: SessionKey, file: str | None) -> None:
    config = Config.model_validate({"people": {"ada": {"ids": ["telegram:42"], "language": "de"}}})

    found = [each.name for each in identity_files(config, "main", session)]

    assert found == ([file] if file else [])
    assert language_of(config, session) == ("de" if file == "people/ada.md" else "")
