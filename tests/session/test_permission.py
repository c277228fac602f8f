"""What counts as the same action, for an answer that allows it again."""

from typing import Any

from remoteclaw.events import Intent, PermissionEvent
from remoteclaw.session.permission import rule_of


def command(id_: str, cwd: str | None, text: str = "make", **more: Any) -> PermissionEvent:
    intent = Intent("Bash", command=text, cwd=cwd)
    return PermissionEvent(id_, "Bash", {"command": text, **more}, intent=intent, workspace="/work")


def test_a_command_is_the_same_in_the_same_directory_alone() -> None:
    here = rule_of(command("1", ""))

    assert rule_of(command("2", "/work")) == here
    assert rule_of(command("3", "", " make ")) == here
    assert rule_of(command("4", "/work/sub")) != here
    assert rule_of(command("5", "", "make all")) != here
    assert rule_of(command("6", "", dangerouslyDisableSandbox=True)) != here


def test_a_command_in_an_unknown_directory_is_never_the_same() -> None:
    assert rule_of(command("1", None)) != rule_of(command("1", None))
    assert "does not tell" in command("1", None).place
