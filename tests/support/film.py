"""Animated pictures of terminals: what they showed, at the times at which they showed it.

    film = Film({"chat": chat, "another terminal": shell}, rows=20)
    film.type(chat, "hello\r")
    film.watch(lambda: "Hello" in chat.shown())
    svg = film.picture("A caption.")

A picture plays in the time of the recording. Where animations are off, it shows the end.
"""

import html
import re
import time
from collections.abc import Callable, Mapping

from tests.support.drawing import HEIGHT, MARGIN, WIDTH, picture, row_texts
from tests.support.terminal import Terminal
from tests.support.waiting import HANG_S

#: How long the end is shown before the picture begins again, in seconds.
END_S = 4.0
#: How many keys are pressed at once, and the time between two such moments, in seconds.
KEYS, KEYS_S = 3, 0.1
#: The moving sign of the indicator. It has a tenth of a second for each of its forms.
_MOVING = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏](?= \d+ s)")

#: An element's times: those at which it appears, and at which it is gone.
Times = list[tuple[float, float]]


class Film:
    """A recording of terminals that stand side by side."""

    def __init__(self, screens: Mapping[str, Terminal], *, rows: int) -> None:
        """`screens` are the terminals by their titles; the first `rows` rows of each are drawn."""
        self._screens = screens
        self._rows = rows
        self._started = time.monotonic()
        self._times: dict[str, Times] = {}
        self._shown: frozenset[str] = frozenset()
        self._take()

    @property
    def now_s(self) -> float:
        """The time since the beginning, in seconds."""
        return time.monotonic() - self._started

    def type(self, screen: Terminal, text: str) -> None:
        """Press keys, about as fast as a person."""
        for at in range(0, len(text), KEYS):
            screen.type(text[at : at + KEYS])
            self.watch_for(KEYS_S)

    def watch_for(self, seconds: float) -> None:
        """Record for a time."""
        until = time.monotonic() + seconds
        self.watch(lambda: time.monotonic() >= until)

    def watch(self, is_over: Callable[[], bool]) -> None:
        """Record until a condition is true."""
        until = time.monotonic() + HANG_S
        while not is_over():
            assert time.monotonic() < until, "\n".join(
                screen.shown() for screen in self._screens.values()
            )
            for screen in self._screens.values():
                screen.look()
            self._take()

    def _take(self) -> None:
        """Record which elements are shown now."""
        shown, now, left = set[str](), self.now_s, 0.0
        for screen in self._screens.values():
            for number, row in enumerate(screen.rows()[: self._rows]):
                y = 2 * MARGIN + (number + 1) * HEIGHT + 14
                shown |= {*row_texts(row, left + MARGIN, y, lambda text: _MOVING.sub("⠹", text))}
            left += screen.columns * WIDTH + 2 * MARGIN
        for element in shown - self._shown:
            self._times.setdefault(element, []).append((now, float("inf")))
        for element in self._shown - shown:
            *_, (since, _) = self._times[element]
            self._times[element][-1] = (since, now)
        self._shown = frozenset(shown)

    def picture(self, caption: str) -> str:
        """Return the recording as an SVG picture with a caption."""
        length = self.now_s + END_S
        classes: dict[tuple[tuple[float, float], ...], list[str]] = {}
        for element, times in self._times.items():
            classes.setdefault(tuple(times), []).append(element)
        styles, drawn = [".gone{opacity:0}"], []
        for number, (spans, elements) in enumerate(classes.items()):
            is_last = spans[-1][1] == float("inf")
            if spans[0][0] > 0 or not is_last:
                steps = "".join(
                    f"{100 * at / length:.2f}%{{opacity:{shown}}}"
                    for start, end in spans
                    for at, shown in ((start, 1), (end, 0))
                    if at != float("inf")
                )
                first = "0%{opacity:0}" if spans[0][0] > 0 else ""
                styles.append(
                    f"@keyframes k{number}{{{first}{steps}}}"
                    f".k{number}{{animation:k{number} {length:.2f}s step-end infinite}}"
                )
            still = "" if is_last else " gone"
            drawn.append(f'<g class="k{number}{still}">{"".join(elements)}</g>')
        styles.append("@media(prefers-reduced-motion:reduce){g{animation:none!important}}")
        return self._framed(styles, drawn, caption)

    def _framed(self, styles: list[str], drawn: list[str], caption: str) -> str:
        left, height = 0.0, (self._rows + 3) * HEIGHT + 2 * MARGIN
        frame = []
        for title, screen in self._screens.items():
            if left:
                line = f'x1="{left:.1f}" x2="{left:.1f}" y1="0" y2="{height - 2 * HEIGHT}"'
                frame.append(f'<line {line} stroke="#3a3f4a"/>')
            frame.append(
                f'<text x="{left + MARGIN:.1f}" y="{MARGIN + 12}" fill="#8b93a3">{title}</text>'
            )
            left += screen.columns * WIDTH + 2 * MARGIN
        frame.append(
            f'<text x="{MARGIN}" y="{height - MARGIN}" fill="#98c379">{html.escape(caption)}</text>'
        )
        style = f"<style>{''.join(styles)}</style>"
        return picture(left, height, "#1b1e24", [style, *frame, *drawn])
