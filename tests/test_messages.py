"""Messages and session keys: what is accepted, what is refused, what can't be confused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.errors import ErrorCategory, MessageRefused, classify_error, sentence
from remoteclaw.messages import MAX_TEXT_BYTES, SessionKey
from tests.support.stack import message

ids = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40)


@given(st.builds(SessionKey, ids, ids, ids, ids, ids, st.none() | ids))
def test_a_session_key_survives_being_text(key: SessionKey) -> None:
    assert SessionKey.parse(str(key)) == key


@given(
    st.builds(SessionKey, ids, ids, ids, ids, ids, st.none() | ids),
    st.builds(SessionKey, ids, ids, ids, ids, ids, st.none() | ids),
)
def test_two_session_keys_never_collide(one: SessionKey, other: SessionKey) -> None:
    assert (str(one) == str(other)) == (one == other)


def test_ids_with_separators_do_not_collide() -> None:
    """Matrix ids hold colons: `a:b` in chat `c` is not `b` in chat `c:a`."""
    one = SessionKey("main", "matrix", "default", "c", "a:b")
    other = SessionKey("main", "matrix", "default", "c:a", "b")

    assert one.sid != other.sid


def test_a_thread_that_is_called_underscore_is_a_thread() -> None:
    assert str(SessionKey("a", "p", "x", "c", "u", "_")).endswith(":%5F")
    assert str(SessionKey("a", "p", "x", "c", "u")).endswith(":_")


@pytest.mark.parametrize(
    "text", ["", "a", "a/b/c", "a/b/c/d", "a/b/c/d:e", "a/b/c/d:e:f:", "a/b/c/d:e:f:g:h"]
)
def test_what_is_no_session_key(text: str) -> None:
    with pytest.raises(ValueError, match="unpack"):
        SessionKey.parse(text)


@pytest.mark.parametrize(
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


def test_emoji_in_ids_are_fine() -> None:
    assert SessionKey.of(message("hi", from_="🦀 crab"), agent="main").user == "🦀 crab"


def test_a_broken_character_costs_itself_and_not_the_message() -> None:
    assert message("a\ud800b").text == "a?b"


# -- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "status", "category"),
    [
        ("API Error: Request rejected (429)", 429, ErrorCategory.RETRYABLE),
        ("You have exceeded your daily quota", 429, ErrorCategory.BILLING),
        ("Invalid API key · Fix external API key", 401, ErrorCategory.AUTH),
        ("Prompt is too long · the request is ~217013 tokens", 400, ErrorCategory.CONTEXT_OVERFLOW),
        ("Credit balance is too low", 400, ErrorCategory.BILLING),
        ("API Error: 529 Overloaded.", 529, ErrorCategory.RETRYABLE),
        ("API Error: Unable to connect to API (ECONNRESET)", None, ErrorCategory.RETRYABLE),
        ("terminated", None, ErrorCategory.RETRYABLE),
        ("Internal error terminated", None, ErrorCategory.RETRYABLE),
        ("[API Error: terminated]", None, ErrorCategory.RETRYABLE),
        ("TypeError: fetch failed", None, ErrorCategory.RETRYABLE),
        ("socket hang up", None, ErrorCategory.RETRYABLE),
        ("Terminated", None, ErrorCategory.FATAL),
        ("the tool was terminated", None, ErrorCategory.FATAL),
        ("No conversation found with session ID: x", None, ErrorCategory.SESSION_EXPIRED),
        ("it used 42911 tokens in 401k steps", None, ErrorCategory.FATAL),
        ("", None, ErrorCategory.FATAL),
    ],
)
def test_what_clis_say_gets_its_category(
    text: str, status: int | None, category: ErrorCategory
) -> None:
    assert classify_error(text, status=status) is category


@pytest.mark.parametrize("category", ErrorCategory)
def test_each_category_has_a_sentence_for_the_person(category: ErrorCategory) -> None:
    words = sentence(category, agent="main", reference="8f3a2b1c-1-0")

    assert words.endswith((".", ".)", "(8f3a2b1c-1-0)"))
    assert "{" not in words
