"""Messages and session keys: accepted and refused fields, and keys that never collide."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from remoteclaw.config.model import Config
from remoteclaw.errors import ErrorCategory, MessageRefused, Overdue, classify_error, sentence
from remoteclaw.messages import (
    MAX_NAME_CHARS,
    MAX_TEXT_BYTES,
    MAX_TIMESTAMP_MS,
    ChannelMessage,
    Entry,
    Provenance,
    SessionKey,
    payers_of,
    shows_nothing,
)
from tests.support.rows import for_each
from tests.support.stack import message

ids = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40)


@given(st.builds(SessionKey, ids, ids, ids, ids, ids, st.none() | ids))
def test_a_session_key_is_the_same_after_parsing_its_text(key: SessionKey) -> None:
    assert SessionKey.parse(str(key)) == key


@given(
    st.builds(SessionKey, ids, ids, ids, ids, ids, st.none() | ids),
    st.builds(SessionKey, ids, ids, ids, ids, ids, st.none() | ids),
)
def test_two_session_keys_never_collide(one: SessionKey, other: SessionKey) -> None:
    assert (str(one) == str(other)) == (one == other)


def test_ids_with_separators_do_not_collide() -> None:
    """Matrix ids contain colons: `a:b` in chat `c` is not `b` in chat `c:a`."""
    one = SessionKey("main", "matrix", "default", "c", "a:b")
    other = SessionKey("main", "matrix", "default", "c:a", "b")

    assert one.sid != other.sid


def test_a_thread_named_underscore_differs_from_no_thread() -> None:
    assert str(SessionKey("a", "p", "x", "c", "u", "_")).endswith(":%5F")
    assert str(SessionKey("a", "p", "x", "c", "u")).endswith(":_")


@for_each("text", ["", "a", "a/b/c", "a/b/c/d", "a/b/c/d:e", "a/b/c/d:e:f:", "a/b/c/d:e:f:g:h"])
def test_an_invalid_session_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unpack"):
        SessionKey.parse(text)


@for_each(
    ("fields", "why"),
    [
        ({"text": ""}, "text is empty"),
        ({"text": " \n\t"}, "text is empty"),
        ({"text": "x" * (MAX_TEXT_BYTES + 1)}, "the limit is 524,288: send it in parts"),
        ({"text": "🦀" * (MAX_TEXT_BYTES // 4 + 1)}, "the limit is 524,288"),
        ({"text": "hi", "from_": "a\0b"}, "from contains U+0000"),
        ({"text": "hi", "id": "a\nb"}, "id contains U+000A"),
        ({"text": "hi", "channel_id": "\ud800"}, "channel_id contains U+D800"),
        ({"text": "hi", "thread_id": ""}, "thread_id is empty"),
        ({"text": "hi", "from_": "x" * 513}, "an id has 512 at most"),
        ({"text": "hi", "colour": "red"}, "colour"),
    ],
)
def test_a_refused_message_says_why_in_one_line(fields: dict[str, str], why: str) -> None:
    with pytest.raises(MessageRefused) as error:
        message(**fields)

    assert why in str(error.value)
    assert "\n" not in str(error.value)


OTHER_SPELLINGS = (
    "Telegram",
    "tElegram",
    "t\u0435legram",
    "telegram\u200b",
    " telegram",
    "\uff54g",
    "",
)


@for_each("name", OTHER_SPELLINGS)
def test_a_channel_name_has_only_one_valid_spelling(name: str) -> None:
    """Otherwise the rules of `[channels.telegram]` would not hold for the channel `Telegram`."""
    with pytest.raises(MessageRefused, match="message was refused: provider "):
        ChannelMessage.checked(**{**message("hi").model_dump(), "provider": name})
    wrong: tuple[dict[str, Any], ...] = (
        {"channels": {name: {}}},
        {"queue": {"channels": {name: {}}}},
        {"agents": {"main": {"sends_to": [f"{name}:1"]}}},
    )
    for tables in wrong:
        with pytest.raises(ValidationError, match=r"a channel's name has|write CHANNEL:CHAT"):
            Config.model_validate(tables)


def test_the_id_of_an_existing_session_never_changes() -> None:
    key = SessionKey.parse("main/Telegram/default/1:1:_")

    assert key.sid == "36d596d99d6112504ec4157e2f83ff3d"


def test_an_id_may_contain_emoji() -> None:
    assert SessionKey.of(message("hi", from_="🦀 crab"), agent="main").user == "🦀 crab"


def test_an_invalid_character_is_replaced_and_the_message_is_kept() -> None:
    assert message("a\ud800b").text == "a?b"


# -- optional fields: a wrong one is corrected or dropped, and the message is kept ----------------


@for_each(
    ("name", "kept"),
    [
        ("Alice", "Alice"),
        ("Zoë 🦀", "Zoë 🦀"),
        ("a\ud800b", "a?b"),
        ("a\x1b[2J\nb\x85", "a[2Jb"),
        (" \n", None),
        ("x" * 5_000_000, "x" * MAX_NAME_CHARS),
        (7, None),
        (None, None),
    ],
)
def test_a_user_name_is_cleaned_or_dropped(name: object, kept: str | None) -> None:
    assert message("hi", user_name=name).user_name == kept


@for_each(
    ("zone", "kept"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        ("UTC", "UTC"),
        ("Mars/Olympus", None),
        ("Europe", None),  # a directory
        ("../etc/passwd", None),
        ("a\ud800b", None),
        ("\0", None),
        ("", None),
        ("x" * 5_000_000, None),
        (7, None),
    ],
)
def test_an_invalid_time_zone_is_dropped(zone: object, kept: str | None) -> None:
    assert message("hi", timezone=zone).timezone == kept


@pytest.mark.parametrize(
    ("at", "kept"), [(10**30, MAX_TIMESTAMP_MS), (-(10**30), 0), (1_795_000_000_000,) * 2]
)
def test_a_timestamp_out_of_range_is_clamped(at: int, kept: int) -> None:
    assert message("hi", timestamp=at).timestamp == kept


# -- errors ---------------------------------------------------------------------------------------


@for_each(
    ("text", "status", "category"),
    [
        ("API Error: Request rejected (429)", 429, ErrorCategory.RETRYABLE),
        ("You have exceeded your daily quota", 429, ErrorCategory.USAGE_LIMIT),
        ("You've hit your weekly limit · resets Nov 25, 3pm", 429, ErrorCategory.USAGE_LIMIT),
        ("You\u2019ve hit your usage limit. Try again later.", None, ErrorCategory.USAGE_LIMIT),
        ("You're out of usage credits · resets 3am", 429, ErrorCategory.USAGE_LIMIT),
        ("Your org is out of usage · add funds to continue", 429, ErrorCategory.BILLING),
        ("You've hit your org's monthly spend limit", 429, ErrorCategory.BILLING),
        ("Your group's usage limit is set to $0", 429, ErrorCategory.BILLING),
        ("You exceeded your current quota, please check your plan", 429, ErrorCategory.BILLING),
        ("models/x is not found for API version v1beta", 500, ErrorCategory.UNKNOWN_MODEL),
        ("The model `x` does not exist or you have no access", None, ErrorCategory.UNKNOWN_MODEL),
        ("There's an issue with the selected model (x).", 404, ErrorCategory.UNKNOWN_MODEL),
        ("getaddrinfo ENOTFOUND api.example", 500, ErrorCategory.UNREACHABLE),
        ("connect ECONNREFUSED 127.0.0.1:9", None, ErrorCategory.UNREACHABLE),
        ("Selected model is at capacity.", None, ErrorCategory.RETRYABLE),
        ("Invalid API key · Fix external API key", 401, ErrorCategory.AUTH),
        ("Prompt is too long · the request is ~217013 tokens", 400, ErrorCategory.CONTEXT_OVERFLOW),
        ("Credit balance is too low", 400, ErrorCategory.BILLING),
        ("API Error: 529 Overloaded.", 529, ErrorCategory.RETRYABLE),
        ("API Error: Unable to connect to API (ECONNRESET)", None, ErrorCategory.UNREACHABLE),
        ("terminated", None, ErrorCategory.UNREACHABLE),
        ("Internal error terminated", None, ErrorCategory.UNREACHABLE),
        ("[API Error: terminated]", None, ErrorCategory.UNREACHABLE),
        ("TypeError: fetch failed", None, ErrorCategory.UNREACHABLE),
        ("socket hang up", None, ErrorCategory.UNREACHABLE),
        ("Terminated", None, ErrorCategory.FATAL),
        ("the tool was terminated", None, ErrorCategory.FATAL),
        ("No conversation found with session ID: x", None, ErrorCategory.SESSION_EXPIRED),
        ("it used 42911 tokens in 401k steps", None, ErrorCategory.FATAL),
        ("`tool_use` ids were found without `tool_result`", 400, ErrorCategory.INVALID_REQUEST),
        ('{"type":"invalid_request_error","code":null}', None, ErrorCategory.INVALID_REQUEST),
        ('{"type":"invalid_request_error","code":null}', 404, ErrorCategory.FATAL),
        ("The image data does not represent a valid image.", 400, ErrorCategory.UNFIT_IMAGE),
        ("Unable to process input image. Please retry.", 400, ErrorCategory.UNFIT_IMAGE),
        ("", None, ErrorCategory.FATAL),
    ],
)
def test_error_messages_of_clis_are_classified(
    text: str, status: int | None, category: ErrorCategory
) -> None:
    assert classify_error(text, status=status) is category


@for_each("category", ErrorCategory)
def test_each_error_category_has_a_sentence_for_the_user(category: ErrorCategory) -> None:
    text = sentence(category, agent="main", reference="8f3a2b1c-1-0")

    assert text.endswith((".", ".)", "(8f3a2b1c-1-0)"))
    assert "{" not in text


def test_error_sentences_name_the_end_of_a_limit_and_the_key_of_a_wrong_model() -> None:
    def text(category: ErrorCategory, until: str = "") -> str:
        return sentence(category, agent="main", reference="1-0", until=until)

    assert "plan allows until 06:27 UTC." in text(ErrorCategory.USAGE_LIMIT, "06:27 UTC")
    assert "send it again after 06:27 UTC." in text(ErrorCategory.RETRYABLE, "06:27 UTC")
    assert "06:27" not in text(ErrorCategory.AUTH, "06:27 UTC")
    assert "`model` under [agents.main]" in text(ErrorCategory.UNKNOWN_MODEL)


@pytest.mark.parametrize(
    ("overdue", "beginning"),
    [
        (Overdue("start_s", 90), "main did not start within 90 s."),
        (Overdue("stall_s", 300), "main gave no sign of life for 5 minutes,"),
        (Overdue("turn_s", 21600), "main took longer than 6 hours in all,"),
    ],
)
def test_a_timeout_names_the_exceeded_limit(overdue: Overdue, beginning: str) -> None:
    text = sentence(ErrorCategory.TIMEOUT, agent="main", reference="1-0", overdue=overdue)

    assert text.startswith(beginning)
    assert f"(Limit: {overdue.setting}.)" in text


@pytest.mark.parametrize(
    "text",
    [
        *("", " \n", "\u200b", "\u2800", "\ufeff\u2060", "**\u200b**", "`\u200b`", "&#8203;"),
        *("&nbsp; &zwnj;", "****", "> ", "- ", "# ", "```\n```", "---", "| |\n|-|\n", "~~~"),
    ],
)
def test_a_text_of_markup_and_zero_width_characters_shows_nothing(text: str) -> None:
    assert shows_nothing(text)


@pytest.mark.parametrize(
    "text", ["a", "…", "?", "👍", "[]", "`*`", "```\n---\n```", "\\*", "[a]: https://x.y", "é", "1"]
)
def test_a_text_with_a_visible_character_shows_something(text: str) -> None:
    assert not shows_nothing(text)


def entry(origin: str, sender: str = "x", *, payers: tuple[str, ...] = (), **fields: Any) -> Entry:
    provenance = Provenance(by="main/test/default/c:u", payers=payers) if payers else None
    said = message("hi", from_=sender)
    return Entry("1-0", said, origin=origin, provenance=provenance, **fields)  # type: ignore[arg-type]


@for_each(
    ("entries", "payers"),
    [
        ([entry("chat", "ada"), entry("chat", "bob"), entry("chat", "ada")], ("ada", "bob")),
        ([entry("cron", people=("test:ada",)), entry("chat", "bob")], ("ada", "bob")),
        ([entry("cron"), entry("chat", "bob")], ("bob",)),
        ([entry("session", "session:1", payers=("test:bob",))], ("bob",)),
        ([entry("result", people=("test:ada",), payers=("test:ada", "test:bob"))], ("ada", "bob")),
        ([entry("terminal", people=("test:ada",))], ("ada",)),
        ([entry("session", "operator")], ()),
    ],
)
def test_usage_counts_for_those_who_asked_whatever_rights_they_have(
    entries: list[Entry], payers: tuple[str, ...]
) -> None:
    assert payers_of(entries) == tuple(f"test:{name}" for name in payers)
