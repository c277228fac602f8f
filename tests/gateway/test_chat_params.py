"""Parameters that make no sense: refused before anything is done, whoever made them up."""

from collections.abc import Iterator
from typing import Any

import pytest

from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.methods.chats import HANDLERS
from remoteclaw.tools.catalog import METHODS
from tests.support.platform import Platform
from tests.support.stack import Stack
from tests.support.turns import begin_turn

#: Parameters that would do.
VALID: dict[str, dict[str, Any]] = {
    "message.send": {"target": "a", "message": "hi", "media": "x", "threadId": "t"},
    "message.reply": {"message": "hi", "replyToId": "m1"},
    "message.threadReply": {"message": "hi", "threadId": "t"},
    "message.broadcast": {"targets": ["a"], "message": "hi"},
    "message.react": {"messageId": "m1", "emoji": "x"},
    "message.delete": {"messageId": "m1"},
    "message.sendAttachment": {"target": "a", "file": "x", "caption": "hi"},
    "message.sendWithEffect": {"target": "a", "message": "hi", "effectId": "e"},
    "message.pin": {"messageId": "m1"},
    "message.read": {"channelId": "a", "limit": 1},
}
#: What no id may have in it: controls, line ends, half of a pair, marks that turn the text around.
BAD_CHARACTERS = ("\0", "\n", "\x1b[2J", "\ud800", "\u202e", "\u2028", "\x7f", "\x9b")
#: Texts, in which such characters may stand; but what is half isn't one.
TEXTS = ("message", "caption", "emoji")


def hostile() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield methods with parameters that none of them takes, and in a word what is wrong."""
    for name, valid in VALID.items():
        fields = METHODS[name].params.model_fields.values()
        required = {str(field.alias) for field in fields if field.is_required()}
        yield name, "extra", {**valid, "evil": 1}
        yield name, "extra-dunder", {**valid, "__class__": "x"}
        for real in METHODS[name].params.aliases.items():
            alias, name_of = real
            if name_of in valid:
                yield name, f"twice-{alias}", {**valid, alias: valid[name_of]}
        for key, value in valid.items():
            if key in required:
                yield name, f"no-{key}", {k: v for k, v in valid.items() if k != key}
                yield name, f"null-{key}", {**valid, key: None}
            yield from (
                (name, f"{key}-{why}", {**valid, key: bad}) for why, bad in wrong(key, value)
            )


def wrong(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield values that a parameter can't have."""
    for bad in (True, 1.5, {}, {"a": 1}, [[]], b"x", object()):
        yield type(bad).__name__, bad
    if isinstance(value, int):
        yield from (("text", "1"), ("low", 0), ("negative", -1), ("high", 10**30))
        return
    yield from (("int", 1), ("deep", [[[[[[]]]]]]))
    if isinstance(value, list):
        yield from (("empty", []), ("many", ["a"] * 21), ("text", "a"), ("mixed", ["a", 1]))
        yield from ((f"bad-{ord(c[0]):x}", ["a", f"b{c}"]) for c in BAD_CHARACTERS)
        return
    yield "huge", "x" * 1_000_000
    if key not in (*TEXTS, "media", "file"):
        yield "empty", ""
        yield from ((f"bad-{ord(c[0]):x}", f"a{c}b") for c in BAD_CHARACTERS)
    yield "half", "\ud800"
    if key == "emoji":
        yield from (("nul", "\0"), ("line", "x\n"))


CASES = list(hostile())


def test_every_method_is_tried() -> None:
    assert VALID.keys() == HANDLERS.keys()
    for name, valid in VALID.items():
        fields = METHODS[name].params.model_fields.values()
        assert set(valid) == {field.alias for field in fields}


@pytest.mark.parametrize("name", VALID)
async def test_no_nonsense_is_done(stack: Stack, served: Platform, name: str) -> None:
    turn = await begin_turn(stack, HANDLERS)
    cases = [(why, params) for method, why, params in CASES if method == name]
    assert len(cases) > 15

    for why, params in cases:
        with pytest.raises(CallRefused) as refusal:
            await turn.call(name, **params)
        assert refusal.value.code == "INVALID_REQUEST", why
        assert str(refusal.value).isprintable(), why
        assert len(str(refusal.value)) < 1000, why

    client = stack.fleet.scripts.client
    assert served.events == []
    assert await client.keys(keys.reply_stream("*", "*")) == await client.keys(keys.call("*")) == []
    assert await turn.lease.turns.side_effects() == []
