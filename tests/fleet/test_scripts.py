"""The Lua scripts and the keys in Redis: one name each, and one version for each process."""

import inspect
import re
import subprocess
import sys

import pytest

from remoteclaw.fleet import keys
from remoteclaw.fleet.lua import Script
from remoteclaw.messages import ChatPlace, SessionKey

#: An argument of each type that the functions of `keys.py` take.
SAMPLES = {
    str: "x",
    int: 1,
    SessionKey: SessionKey.parse("main/test/default/chat::"),
    ChatPlace: ChatPlace("test", "default", "chat", None),
}
#: A table in Lua, with tables in it.
TABLE = r"\{(?:[^{}]|\{[^{}]*\})*\}"

#: A program that can't read its installation any more after its start.
UPGRADED = """
from pathlib import Path
from remoteclaw.fleet.lua import Script
Path.read_text = Path.read_bytes = Path.open = None
assert all([Script.named(name).source for name in Script.names()])
"""


def test_a_running_process_keeps_its_scripts_during_an_upgrade() -> None:
    subprocess.run([sys.executable, "-c", UPGRADED], check=True)


def key_names() -> dict[str, str]:
    """Return the names of `keys.py` that stand for one key or channel, each with its name there."""
    found = {}
    for name in dir(keys):
        value = getattr(keys, name)
        if inspect.isfunction(value) and value.__module__ == keys.__name__:
            types = [each.annotation for each in inspect.signature(value).parameters.values()]
            value = value(*[SAMPLES[kind] for kind in types]) if set(types) <= set(SAMPLES) else ""
        if isinstance(value, str) and value.startswith("rc:"):
            found[name] = value
    return found


def test_each_key_in_redis_has_the_name_that_it_has_in_python() -> None:
    found = key_names()

    assert len(found) > 80
    assert {
        name: key
        for name, key in found.items()
        if re.split("[:{]", key.removeprefix("rc:"))[0] != name.lower().replace("_", "-")
    } == {}


def test_each_key_that_a_script_names_itself_is_in_keys_py() -> None:
    known = {re.match("rc:[a-z-]+", key)[0] for key in key_names().values()}  # type: ignore[index]
    sources = [Script.named(name).source for name in Script.names()]
    named = {key for source in sources for key in re.findall(r"'\^?(rc:[a-z-]+)", source)}

    assert named - known == set()


@pytest.mark.parametrize("kind", ["result", "row"])
def test_a_script_returns_the_names_that_its_head_declares(kind: str) -> None:
    """Lua would return nil for a misspelt name."""
    for name in Script.names():
        script = Script.named(name)
        set_ = set()
        for table in re.findall(rf"\b{kind}({TABLE})", script.source):
            fields = re.sub(TABLE, "", table[1:-1])
            set_.update(re.findall(r"(?:^|,)\s*(\w+) = ", fields))
        assert set_ <= set(getattr(getattr(script, kind), "_fields", ())), name


def test_a_script_is_given_exactly_its_names() -> None:
    script = Script.named("close")

    assert script.pack({"sid": "a", "epoch": "1", "keep_ms": 2}) == (
        [keys.state("a"), keys.inbound("a"), keys.ACTIVE],
        ["1", "a", 2],
    )
    for wrong in ({"sid": "a", "epoch": "1"}, {"epoch": "1", "keep_ms": 2}):
        with pytest.raises(TypeError, match=r"close\.lua: missing"):
            script.pack(wrong)
    with pytest.raises(TypeError, match=r"close\.lua: unknown: \['turn'\]"):
        script.pack({"sid": "a", "epoch": "1", "keep_ms": 2, "turn": "1-1"})


def test_keys_of_another_session_are_filled_from_its_id() -> None:
    names, _ = Script.named("fork").pack(
        {
            "sid": "a",
            "new_sid": "b",
            "session_key": "k",
            "limits": "{}",
            "keep_ms": 1,
            "mark": "",
            "names": (),
        }
    )

    assert names[:3] == [keys.state("a"), keys.session_map("a"), keys.record("a")]
    assert names[3:6] == [keys.state("b"), keys.session_map("b"), keys.record("b")]
