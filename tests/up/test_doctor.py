"""`remoteclaw doctor`, on a host on which nothing runs."""

import sys

import pytest

from remoteclaw.config.home import Home
from remoteclaw.up.doctor import examine


async def test_a_library_that_a_channel_lacks_is_named_before_anything_runs(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOTECLAW_HOME", str(home.path))
    home.config_file.write_text("[channels.matrix]\ntoken = 'syt_secret'\n")
    monkeypatch.delitem(sys.modules, "remoteclaw.channels.matrix.adapter", raising=False)
    for name in [name for name in sys.modules if name.startswith("remoteclaw.channels.matrix.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vodozemac", None)

    findings = [each async for each in examine() if each.subject == "channel matrix"]

    assert [each.ok for each in findings] == [False]
    assert "remoteclaw channel add matrix` installs it" in findings[0].text
