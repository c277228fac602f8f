"""The name of the user of a process."""

import os
import pwd
from types import SimpleNamespace

import pytest

from remoteclaw.host.terminal import login_name
from tests.support.rows import for_each


@for_each(
    ("login", "name"),
    [
        ("ada", "ada"),
        ("CORP\\ada.l@example", "CORP\\ada.l@example"),
        ("Ada Lovelace", "Ada_Lovelace"),
        ("Ада", "Ада"),
        ("a/b\n\x1b[2J\u202e\udce9", "a_b__[2J__"),
        ("x" * 200, "x" * 64),
        ("", "uid4711"),
        (None, "uid4711"),  # a user of a container
    ],
)
def test_every_login_name_gives_a_name_for_the_configuration(
    monkeypatch: pytest.MonkeyPatch, login: str | None, name: str
) -> None:
    def found(uid: int) -> SimpleNamespace:
        if login is None:
            raise KeyError(uid)
        return SimpleNamespace(pw_name=login)

    monkeypatch.setattr(os, "getuid", lambda: 4711)
    monkeypatch.setattr(pwd, "getpwuid", found)
    monkeypatch.setenv("USER", "somebody-else")

    assert login_name.__wrapped__() == name
