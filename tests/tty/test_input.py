"""Text that is typed for a person: how it is cleaned, and what is refused."""

from pathlib import Path

import pytest

from remoteclaw.tty.frames import Modes
from remoteclaw.tty.input import PasteRefused, cleaned, paste, problem_of_input
from tests.support.disguises import disguises, harmless
from tests.support.rows import for_each

FRAMED = Modes(paste=True)


def test_a_paste_stays_one_paste_whatever_it_contains() -> None:
    text = "one\r\ntwo\rthree\x1b[201~\x03\x04\x7f\x9b201~\u202e\u2066\u200b\ufeffx\ty\0"

    assert paste(text, FRAMED) == b"\x1b[200~one\ntwo\nthree[201~201~x\ty\x1b[201~"
    assert paste("plain", Modes()) == b"plain"
    with pytest.raises(PasteRefused, match="each line would be sent separately"):
        paste("one\ntwo", Modes())
    with pytest.raises(PasteRefused):
        paste("one\rtwo", Modes())


@pytest.mark.parametrize(
    "text", ["\u200b!ls", "\x15/clear", "ex\u200bit", "see @\u2060x", "\0../x"]
)
def test_a_command_with_invisible_characters_is_not_pasted(text: str) -> None:
    """Visible text may be pasted: the person can read it before pressing Enter."""
    with pytest.raises(PasteRefused, match="has invisible characters"):
        paste(text, FRAMED)
    assert paste(cleaned(text), FRAMED) == f"\x1b[200~{cleaned(text)}\x1b[201~".encode()


def test_cleaned_text_keeps_its_joiners_and_variation_selectors() -> None:
    assert (
        cleaned("e\u0301 👨\u200d👩\u200d👧 ❤\ufe0f می\u200cخواهم")
        == "é 👨\u200d👩\u200d👧 ❤\ufe0f می\u200cخواهم"
    )


@for_each("text", disguises(Path("/tmp")))
def test_text_that_could_be_a_command_is_not_typed(text: str) -> None:
    assert (problem_of_input(text) or "").endswith(
        "Type it yourself in the terminal, if you mean it."
    )


@for_each(
    "text",
    [
        *harmless(Path("/tmp")),
        "Fix the failing test.",
        "git clone git@example.org:a/b.git, then ssh root@server.",
        "how do I quit vim?",
        "- [ ] a list\n- [x] of things",
        "漢字",
        "see docs/logo.png",
        "see https://example.org/logo.png",
        "./run.sh fails",
        "... and then?",
        ".env is missing, as README.md says",
        "cd .. and run make a/b",
    ],
)
def test_ordinary_text_is_typed(text: str) -> None:
    assert problem_of_input(text) is None


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "\x1b"])
def test_empty_text_is_refused(text: str) -> None:
    assert problem_of_input(text) == "There is no text to type."
