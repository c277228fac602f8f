"""Text that is typed for a person: what it is cleaned of, and what is refused."""

import pytest

from remoteclaw.tty.frames import Modes
from remoteclaw.tty.input import PasteRefused, cleaned, paste, problem_of_input

FRAMED = Modes(paste=True)


def test_a_paste_is_one_piece_whatever_it_holds() -> None:
    text = "one\r\ntwo\rthree\x1b[201~\x03\x04\x7f\x9b201~\u202e\u2066\u200b\ufeffx\ty\0"

    assert paste(text, FRAMED) == b"\x1b[200~one\ntwo\nthree[201~201~x\ty\x1b[201~"
    assert paste("plain", Modes()) == b"plain"
    with pytest.raises(PasteRefused, match="each line would be sent by itself"):
        paste("one\ntwo", Modes())
    with pytest.raises(PasteRefused):
        paste("one\rtwo", Modes())


def test_words_keep_their_signs() -> None:
    assert (
        cleaned("e\u0301 👨\u200d👩\u200d👧 ❤\ufe0f می\u200cخواهم")
        == "é 👨\u200d👩\u200d👧 ❤\ufe0f می\u200cخواهم"
    )


#: What was seen of the real programs (claude 2.1.197, codex 0.169.0, gemini 0.61.0). As the prompt
#: on their command line: codex runs "!touch x"; claude and gemini clear for "/clear", gemini for
#: " /clear" too, and both end for "/quit", claude for "exit"; claude reads "@file". Pasted, sent:
#: codex runs "!touch x" and obeys "/clear" and "/quit", also where an invisible sign that we remove
#: was in front; gemini reads "@file" behind a letter. No line behind the first one was a command.
DISGUISES = [
    "!ls",
    " !ls",
    "\n\n!ls",
    "\t!ls",
    "\u200b!ls",
    "\ufeff!ls",
    "\u202e!ls",
    "\u2066!ls",
    "\u00a0!ls",
    "\u3000!ls",
    "\u3164!ls",
    "\u2800!ls",
    "\u200d!ls",
    "\ufe0f!ls",
    "\u0301!ls",
    "\x1b!ls",
    "\x08!ls",
    "！ls",
    "﹗ls",
    "/clear",
    "  /clear",
    "／clear",
    "#remember",
    "＃remember",
    "﹟remember",
    "@secrets.txt",
    "read @secrets.txt",
    "read (@secrets.txt)",
    "read\n@secrets.txt",
    "read ＠secrets.txt",
    "read @\u200bsecrets.txt",
    "look at @",
    "x@/etc/passwd",
    "x@../secrets.txt",
    "x@src/secrets.txt",
    "漢@/etc/passwd",
    "读@secrets.txt。",
    "_@~/secrets.txt",
    'read@"secrets.txt"',
    "me@example.org/secrets.txt",
    "exit",
    " Exit \n",
    "quit",
    ":q",
    ":q!",
    ":wq",
    "：ｑ",
    "logout",
    "ex\u200bit",
    "$skill",
    "&work",
    "?",
]


@pytest.mark.parametrize("text", DISGUISES)
def test_what_could_be_a_command_is_not_typed(text: str) -> None:
    assert (problem_of_input(text) or "").endswith(
        "Type it yourself in the terminal, if you mean it."
    )


@pytest.mark.parametrize(
    "text",
    [
        "Fix the failing test.",
        "What does ! do in shell?",
        "a list\n!touch x\n/clear",
        "the end of a paste\x1b[201~\r!touch x",
        "mail me@example.org about a/b and #12.",
        "git clone git@example.org:a/b.git, then ssh root@server.",
        "exit code 1 is wrong",
        "how do I quit vim?",
        "- [ ] a list\n- [x] of things",
        "漢字",
    ],
)
def test_what_people_write_is_typed(text: str) -> None:
    assert problem_of_input(text) is None


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "\x1b"])
def test_nothing_is_not_typed(text: str) -> None:
    assert problem_of_input(text) == "There is no text to type."
