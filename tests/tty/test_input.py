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


@pytest.mark.parametrize(
    "text", ["\u200b!ls", "\x15/clear", "ex\u200bit", "see @\u2060x", "\0../x"]
)
def test_a_command_that_hides_is_not_pasted(text: str) -> None:
    """What is seen may be: whoever has copied it presses Enter, or doesn't."""
    with pytest.raises(PasteRefused, match="signs that can't be seen"):
        paste(text, FRAMED)
    assert paste(cleaned(text), FRAMED) == f"\x1b[200~{cleaned(text)}\x1b[201~".encode()


def test_words_keep_their_signs() -> None:
    assert (
        cleaned("e\u0301 👨\u200d👩\u200d👧 ❤\ufe0f می\u200cخواهم")
        == "é 👨\u200d👩\u200d👧 ❤\ufe0f می\u200cخواهم"
    )


#: What was seen of the real programs (claude 2.1.197, codex 0.169.0, gemini 0.61.0, opencode
#: 1.18.33). As the prompt on their command line: codex runs "!touch x"; claude and gemini clear for
#: "/clear", gemini for " /clear" too, and both end for "/quit", claude for "exit"; claude reads
#: "@file". Pasted and sent: claude and codex run "!touch x"; all obey "/clear", also where an
#: invisible sign that we remove was in front, gemini behind blanks too; claude ends for "exit".
#: gemini reads "@file" behind a letter, and a text of nothing but paths; claude a picture whose
#: path ends a text or a line, opencode one that is the whole text. No line behind the first one was
#: a command.
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
    "'/tmp/secrets.txt'",
    '"/tmp/my secrets.txt"',
    "\\/tmp/secrets.txt",
    "../secrets.txt",
    "'../my secrets.txt'",
    "./here ./../secrets.txt",
    "./here /tmp/secrets.txt",
    "file:///tmp/secrets.png",
    "see /tmp/secrets.png",
    "see /tmp/my secrets.PNG /tmp",
    "see '/tmp/secrets.jpeg'",
    "one\n/tmp/secrets.webp\ntwo",
    "src/../../secrets.svg",
    "'../secrets.pd\\f'",
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
        "see docs/logo.png",
        "see /tmp/logo.png and tell me",
        "see https://example.org/logo.png",
        "./run.sh fails",
        "... and then?",
        ".env is missing, as README.md says",
        "cd .. and run make a/b",
    ],
)
def test_what_people_write_is_typed(text: str) -> None:
    assert problem_of_input(text) is None


@pytest.mark.parametrize("text", ["", " \n", "\u200b", "\x1b"])
def test_nothing_is_not_typed(text: str) -> None:
    assert problem_of_input(text) == "There is no text to type."
