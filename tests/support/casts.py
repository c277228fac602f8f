"""A player of asciicasts: what a terminal shows after each of their events."""

import unicodedata

import orjson
import pyte


def played(cast: str) -> list[list[str]]:
    """Return the rows of the screen after each event of an asciicast (version 2)."""
    head, *lines = cast.splitlines()
    about = orjson.loads(head)
    assert about["version"] == 2
    screen = pyte.Screen(about["width"], about["height"])
    stream, shown, last_s = pyte.Stream(screen), [], 0.0
    for line in lines:
        at_s, kind, data = orjson.loads(line)
        assert at_s >= last_s, "the events are in order"
        last_s = at_s
        if kind == "r":
            cols, rows = map(int, data.split("x"))
            screen.resize(rows, cols)
        else:
            assert kind == "o"
            stream.feed(data)
        shown.append(rows_of("\n".join(screen.display)))
    return shown


def rows_of(text: str) -> list[str]:
    """Return the rows of a screen's text in one form."""
    return [row.rstrip() for row in unicodedata.normalize("NFC", text).split("\n")]
