"""The screen of a terminal: its frames, its answers, and its snapshots."""

import json
import random
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from remoteclaw.tty.frames import Frame, Frames, apply_frame
from remoteclaw.tty.screen import Screen
from remoteclaw.tty.snapshot import MAX_SNAPSHOT_BYTES, SnapshotUnreadable

pytest.importorskip("pyghostty")


@pytest.fixture
def screen() -> Iterator[Screen]:
    screen = Screen(40, 5)
    yield screen
    screen.close()


def lines(screen: Screen) -> dict[str, Any]:
    frame = screen.frame(None)
    assert frame is not None
    found: dict[str, Any] = frame["lines"]
    return found


def state(screen: Screen) -> Frame:
    """Return all that a viewer sees, without the number of the revision."""
    frame = screen.frame(None)
    assert frame is not None
    return {**frame, "revision": 0}


def test_rows_are_split_into_runs_of_one_style(screen: Screen) -> None:
    screen.feed(b"plain \x1b[1;31mred\x1b[m \x1b[38;2;1;2;3;48;5;200;7mthree\x1b[m\r\n")
    screen.feed(b"\x1b[4:3;9;3;2mmarked\x1b[m \x1b[44m\x1b[K")

    assert lines(screen)["0"] == [
        ["plain "],
        ["red", {"fg": 1, "b": 1}],
        [" "],
        ["three", {"fg": "#010203", "bg": 200, "v": 1}],
    ]
    assert lines(screen)["1"] == [
        ["marked", {"ul": 3, "d": 1, "i": 1, "s": 1}],
        [" "],
        [" " * 33, {"bg": 4}],
    ]


def test_wide_characters_and_clusters_are_separate_runs(screen: Screen) -> None:
    screen.feed("a漢字e\u0301b\x1b[31m👍\x1b[m!".encode())

    assert lines(screen)["0"] == [
        ["a"],
        ["漢字", {"w": 2}],
        ["e\u0301", {"c": 1}],
        ["b"],
        ["👍", {"fg": 1, "w": 2}],
        ["!"],
    ]


def test_concealed_text_is_never_sent(screen: Screen) -> None:
    screen.feed("password: \x1b[8msecret漢\x1b[m.".encode())

    assert "secret" not in json.dumps(screen.frame(None))
    assert screen.text().splitlines()[0].endswith(" \u3000.")


def test_only_web_links_of_a_program_are_kept(screen: Screen) -> None:
    for address in ("https://example.org/a", "javascript:alert(1)", "file:///etc/passwd"):
        screen.feed(f"\x1b]8;;{address}\x07go\x1b]8;;\x07\r\n".encode())

    assert lines(screen)["0"] == [["go", {"l": "https://example.org/a"}]]
    assert lines(screen)["1"] == lines(screen)["2"] == [["go"]]


def test_a_frame_has_the_changes_since_a_revision(screen: Screen) -> None:
    screen.feed(b"one\r\ntwo")
    first = screen.frame(None)
    assert first is not None
    assert screen.frame(first["revision"]) is None

    screen.feed(b"!\x1b[?2004h\x1b]0;Title\x07")
    second = screen.frame(first["revision"])
    assert second is not None
    assert second["since"] == first["revision"]
    assert second["lines"] == {"1": [["two!"]]}
    assert second["cursor"] == {"row": 1, "col": 4, "visible": True, "shape": "block"}
    assert second["title"] == "Title"
    assert second["modes"]["paste"]
    assert apply_frame(first, second) == screen.frame(None)
    assert apply_frame(None, second) is None


def test_a_revision_of_an_earlier_gateway_gets_a_complete_frame(screen: Screen) -> None:
    before = screen.revision
    later = Screen(40, 5)
    later._frames = Frames(40, 5, now_us=before + 1_000_000)
    later.feed(b"x")

    for since in (0, before, later.revision + 1):
        frame = later.frame(since)
        assert frame is not None
        assert frame["since"] is None


def test_a_resize_rewraps_lines_and_sends_a_complete_frame(screen: Screen) -> None:
    screen.feed(b"0123456789" * 3)
    before = screen.revision
    screen.resize(20, 6)
    frame = screen.frame(before)

    assert frame is not None
    assert frame["since"] is None
    assert (frame["cols"], frame["rows"], len(frame["lines"])) == (20, 6, 6)
    assert screen.text().splitlines()[:2] == ["01234567890123456789", "0123456789"]


def test_a_resize_to_the_same_size_keeps_the_screen(screen: Screen) -> None:
    """A waiting program draws nothing more: a client that attaches again would miss its dialog."""
    screen.feed(b"Do you want to proceed?")
    before = screen.revision
    answer = screen.resize(40, 5)

    assert (answer, screen.revision, screen.frame(before)) == (b"", before, None)
    assert screen.text().startswith("Do you want to proceed?")


def test_synchronized_output_is_shown_when_complete_or_after_a_timeout(screen: Screen) -> None:
    """Output in mode 2026 is never shown half drawn, and not held back forever."""
    now = 100.0
    screen._clock = lambda: now
    screen.feed(b"old")
    before = screen.revision
    screen.feed(b"\x1b[?2026h\rnew")
    assert screen.frame(before) is None
    screen.feed(b"er\x1b[?2026l")
    assert screen.text().strip() == "newer"

    screen.feed(b"\x1b[?2026h\rnever ends")
    assert screen.text().strip() == "newer"
    now += 1
    assert screen.text().strip() == "never ends"


def test_history_has_the_rows_that_have_scrolled_off() -> None:
    screen = Screen(40, 5)
    screen.feed(b"".join(b"\x1b[3%dmrow %d\x1b[m\r\n" % (row % 8, row) for row in range(100)))

    past = screen.history(90, 100)
    assert (past["start"], past["total"]) == (90, 96)
    assert past["rows"][0] == [["row 90", {"fg": 2}]]
    assert len(past["rows"]) == 6
    assert screen.frame(None)["history"] == 96  # type: ignore[index]
    assert screen.history(500, 10)["rows"] == []


def test_only_allowed_queries_of_the_program_are_answered(screen: Screen) -> None:
    """An answer is typed into the program, so it must not contain text of the program."""
    answers = {
        b"\x1b[c": b"\x1b[?62;22c",
        b"\x1b[>c": b"\x1b[>1;0;0c",
        b"\x1b[5n": b"\x1b[0n",
        b"\x1b[6n": b"\x1b[1;1R",
        b"\x1b[>q": b"\x1bP>|libghostty\x1b\\",
        b"\x1b[?2026$p": b"\x1b[?2026;2$y",
        b"\x1b[?u": b"\x1b[?0u",
        b"\x1b]11;?\x1b\\": b"\x1b]11;rgb:1212/1212/1212\x1b\\",
        b"\x1bP+q524742\x1b\\": b"\x1bP1+r524742=38\x1b\\",
    }
    for question, answer in answers.items():
        assert screen.feed(question) == answer
    for question in (
        b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",  # kitty graphics
        b"\x1b]52;c;?\x07",  # reads the clipboard
        b"\x1b]5522;type=read;aGk=\x07",
        b"\x1bP$qm\x1b\\",
        b"\x1b_25a1;s\x1b\\",
        b"\x1b]0;rm -rf /\x07\x1b[21t",  # reports the title
        b"\x05",
    ):
        assert screen.feed(question) == b""
    assert len(screen.feed(b"\x1b[c" * 100_000)) <= 65536


def test_bells_titles_and_other_osc_events_are_reported(screen: Screen) -> None:
    screen.feed(b"\x1b]7501;state=idle\x07\x1b]0;Title\x07\x1b]9;4;1;50\x07\x1b]9;Done\x07\a\a")
    screen.feed(b"\x1b]52;c;aGVsbG8=\x07\x1b]52;c;?\x07")

    assert screen.bell_count == 2
    assert screen.take_osc_events() == [
        (7501, "state=idle"),
        (0, "Title"),
        (9, "4;1;50"),
        (9, "Done"),
        (52, "hello"),
    ]
    assert screen.take_osc_events() == []


def test_a_snapshot_restores_everything() -> None:
    """Also if the output is cut off in the middle of a sequence."""
    output = (
        "\x1b]0;Title\x07" + "".join(f"line {row}\r\n" for row in range(50)) + "\x1b[?1049h"
        "\x1b[?2004h\x1b[>7u\x1b[?1003h\x1b[?1006h\x1b[?1h\x1b=\x1b[2;4r\x1b[3;7H\x1b[5 q\x1b[?25l"
        "\x1b[1;31m漢é\x1b]8;;https://example.org\x07l\x1b]8;;\x07\x1b[38;5;1"
    ).encode()
    more = "7mend\x1b[m\r\n\n\n\x1b[?1049lback 字".encode()
    one = Screen(40, 5)
    one.feed(output)
    two = Screen.restored(one.snapshot(), 40, 5)

    assert state(two) == state(one)
    assert two.history(0, 100) == one.history(0, 100)
    for byte in more:
        assert two.feed(bytes([byte])) == one.feed(bytes([byte]))
        two = Screen.restored(two.snapshot(), 40, 5)
        assert state(two) == state(one)
    assert two.history(0, 100) == one.history(0, 100)


def test_a_snapshot_is_never_larger_than_the_holder_accepts() -> None:
    generator = random.Random(1)
    screen = Screen(500, 200)
    for _ in range(300):
        screen.feed(
            "".join(
                f"\x1b[38;2;{generator.randrange(256)};{generator.randrange(256)};7m"
                f"{chr(generator.randrange(0x4E00, 0x9000))}"
                for _ in range(250)
            ).encode()
            + b"\r\n"
        )
    screen.feed(b"\x1b[?2004h\x1b]0;Title\x07")
    snapshot = screen.snapshot()

    assert 0 < len(snapshot) <= MAX_SNAPSHOT_BYTES
    restored = Screen.restored(snapshot, 500, 200)
    assert restored.modes == screen.modes
    assert restored.title == "Title"


def test_an_invalid_snapshot_is_refused() -> None:
    for snapshot in (b"", b"RCP1", b"RCP1abc", b"\x00" * 100, Screen(20, 5).snapshot()[:-4]):
        with pytest.raises(SnapshotUnreadable, match="can't be read"):
            Screen.restored(snapshot, 20, 5)


def test_no_frame_contains_a_control_character(screen: Screen) -> None:
    hostile = "a\u202eb\u2066c\u0085d\u009be\ufeff\u200bf\u00adg\U000e0041h\u2028i\x7fj\x01k"
    screen.feed(f"{hostile}\r\n\x1b]0;{hostile}\x07\x1b]2;two\nlines\x07".encode())
    screen.feed(f"\x1b]7501;{hostile}\x07".encode())

    seen = json.dumps([screen.frame(None), screen.take_osc_events()], ensure_ascii=False)
    assert {unicodedata.category(c) for c in seen} & {"Cc", "Cf", "Zl", "Zp", "Cs"} == set()


@pytest.mark.parametrize(
    "output",
    [
        "\x1b[?1049h\x1b[?2004h\x1b[31mred\x1b[0m\r\n漢字 \x1b[1mbold\x1b[3;5H\x1b[?25l",
        "a\r\n" * 20 + "x\x1b[2;3H",
        "\x1b[2;4r\x1b[>1uhello\x1b[41m  ",
    ],
)
def test_escape_sequences_give_another_terminal_the_same_screen(output: str) -> None:
    screen, other = Screen(40, 6), Screen(40, 6)
    screen.feed(output.encode())

    other.feed(screen.vt())

    expected, shown = screen.frame(None), other.frame(None)
    assert expected is not None
    assert shown is not None
    for name in ("lines", "modes", "history"):
        assert shown[name] == expected[name]
    place = [{**frame["cursor"], "shape": ""} for frame in (expected, shown)]
    assert place[0] == place[1]
