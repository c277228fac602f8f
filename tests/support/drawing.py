"""Pictures for docs/pictures, drawn from what real processes show in a terminal and in Telegram."""

import contextlib
import html
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import tomlkit
from pyte.screens import Char

from remoteclaw.config.home import Home
from tests.support.bridges import claude_script
from tests.support.command import REMOTECLAW
from tests.support.telegram import Telegram
from tests.support.telegram.channel import ANN
from tests.support.terminal import Terminal, env
from tests.support.waiting import eventually_sync

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"

#: The width and height of a character, and the margin of the picture, in pixels.
WIDTH, HEIGHT, MARGIN = 8.4, 19, 14
#: Those of a terminal's sixteen colours that the chat uses.
COLOURS = {
    "default": "#d7dae0",
    "black": "#1b1e24",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#d7dae0",
}
#: The indicator, and its fixed form in a picture.
MOVING, STILL = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] \d+ s"), "⠹ 4 s"
#: The agent's directory, and the id of a request; both are replaced by texts of the same length.
WORK, ID = re.compile(r"/tmp/rc-[a-z0-9_]{8}/shop"), re.compile(r"(?<=/deny )[a-z2-9]{8}")
SHOWN_WORK, SHOWN_ID = "/home/me/sources/shop", "k7m2q9xa"
#: The time of an answer, and its fixed form in a picture.
TIME, SHOWN_TIME = re.compile(r"(?<= at )\d\d:\d\d(?=\.)"), "10:24"
#: The maximum length of a line of a Telegram message, in characters.
LINE = 52

ASKED = "Publish 2.1."
#: An agent that asks whether it may publish.
_AGENT = """
while True:
    echo(heard())
    delta('All 212 tests pass, and the changelog is right.')
    asks('r', 'Bash', dict(command='npm version 2.1.0 && npm publish'))
    heard('control_response')
    result('Published.')
"""


def screen_picture(screen: Terminal, first: str, last: str) -> str:
    """Return a picture of the lines from the first one with `first` to the last one with `last`."""
    rows = screen.rows()
    texts = ["".join(cell.data for cell in row) for row in rows]
    start = next(number for number, text in enumerate(texts) if first in text)
    end = max(number for number, text in enumerate(texts) if last in text)
    drawn = [
        text
        for number, row in enumerate(rows[start : end + 1])
        for text in row_texts(row, MARGIN, MARGIN + number * HEIGHT + 14, _still)
    ]
    width = 2 * MARGIN + screen.columns * WIDTH
    return picture(width, 2 * MARGIN + (end - start + 1) * HEIGHT, "#1b1e24", drawn)


def row_texts(
    row: Sequence[Char], left: float, y: float, still: Callable[[str], str]
) -> Iterator[str]:
    """Yield the elements of a row of a screen; `still` replaces what differs between runs."""
    for look, cells in groupby(enumerate(row), key=lambda cell: (cell[1].fg, cell[1].bold)):
        part = [*cells]
        while part and not part[-1][1].data.strip():
            part.pop()
        if text := still("".join(cell.data for _, cell in part)):
            weight = ' font-weight="bold"' if look[1] else ""
            fill = COLOURS[look[0].removeprefix("bright")]
            yield (
                f'<text x="{left + part[0][0] * WIDTH:.1f}" y="{y}" fill="{fill}"{weight} '
                f'textLength="{len(part) * WIDTH:.1f}">{html.escape(text)}</text>'
            )


def message_picture(message: Mapping[str, Any]) -> str:
    """Return a picture of a bot's message: its text with its styles, and its buttons."""
    text = message["text"]
    looks = [""] * len(text)
    for one in message.get("entities", ()):  # no character here takes two UTF-16 units
        for at in range(one["offset"], one["offset"] + one["length"]):
            looks[at] = one["type"]
    drawn, y = message_rows(text, looks)
    width = LINE * WIDTH + 2 * MARGIN
    for row in message["reply_markup"]["inline_keyboard"]:
        each = (width - 2 * MARGIN + 12) / len(row)
        for number, button in enumerate(row):
            x = MARGIN - 6 + number * each
            drawn += [
                f'<rect x="{x:.1f}" y="{y - 8}" width="{each:.1f}" height="30" rx="6" '
                'fill="#2b5278"/>',
                f'<text x="{x + each / 2:.1f}" y="{y + 12}" fill="#ffffff" text-anchor="middle">'
                f"{html.escape(button['text'])}</text>",
            ]
        y += 34
    return picture(width, y - 4, "#182533", drawn)


def message_rows(text: str, looks: list[str], top: int = 0) -> tuple[list[str], int]:
    """Return the elements of a message's text below `top`, and the height that follows them.

    Both are in pixels. `looks` has the style of each character: `bold`, `code`, `pre` or none.
    """
    drawn, y = [], top + MARGIN + 14
    for line, of in _lines(_still(text), looks):
        if of[:1] == ["pre"]:
            drawn.append(
                f'<rect x="{MARGIN - 6}" y="{y - 15}" width="{LINE * WIDTH + 12:.1f}" '
                f'height="{HEIGHT + 2}" fill="#101d29"/>'
            )
        for look, cells in groupby(enumerate(line), key=lambda cell: of[cell[0]]):
            part = [*cells]
            weight = ' font-weight="bold"' if look == "bold" else ""
            fill = "#7fc1f0" if look in ("code", "pre") else "#ffffff"
            drawn.append(
                f'<text x="{MARGIN + part[0][0] * WIDTH:.1f}" y="{y}" fill="{fill}"{weight} '
                f'textLength="{len(part) * WIDTH:.1f}">'
                f"{html.escape(''.join(character for _, character in part))}</text>"
            )
        y += HEIGHT
    return drawn, y


def _lines(text: str, looks: list[str]) -> list[tuple[str, list[str]]]:
    """Return the lines of a message, wrapped at `LINE`, with the style of each character."""
    lines, at = [], 0
    for paragraph in text.split("\n"):
        for line in textwrap.wrap(paragraph, LINE, drop_whitespace=False) or [""]:
            lines.append((line, looks[at : at + len(line)]))
            at += len(line)
        at += 1
    return lines


def _still(text: str) -> str:
    """Return a text with everything fixed that differs between runs."""
    for moving, still in (
        (MOVING, STILL),
        (ID, SHOWN_ID),
        (WORK, SHOWN_WORK),
        (TIME, SHOWN_TIME),
    ):
        text = moving.sub(still, text)
    return text


def picture(width: float, height: float, fill: str, drawn: Sequence[str]) -> str:
    """Return an SVG picture of elements, on a ground of the colour `fill`."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}">\n<rect width="100%" height="100%" rx="8" fill="{fill}"/>\n'
        '<style>text{white-space:pre}</style>\n<g font-size="14" '
        "font-family=\"Menlo, Consolas, 'DejaVu Sans Mono', monospace\">\n"
        + "\n".join(drawn)
        + "\n</g>\n</svg>\n"
    )


@contextlib.contextmanager
def asking(directory: Path, **channels: Mapping[str, Any]) -> Iterator[Terminal]:
    """Run RemoteClaw with an agent that asks for a right in each of its chats; yield its own chat.

    Each channel's settings come with its token.
    """
    home, work = Home(directory / "home").create(), directory / "shop"
    work.mkdir()
    tables: dict[str, Any] = {"agents": {"main": {}}, "channels": {}}
    tables["agents"]["main"] = {
        "runtime": "claude",
        "command": list(claude_script(directory, _AGENT)),
        "workspace": str(work),
    }
    for name, settings in channels.items():
        token = directory / name
        token.write_text(settings["token"])
        token.chmod(0o600)
        tables["channels"][name] = {**settings, "token_file": str(token)}
        del tables["channels"][name]["token"]
    home.config_file.write_text(tomlkit.dumps(tables))
    environment = env(home, REMOTECLAW__FLEET__WORKERS="2")
    del environment["REMOTECLAW__AGENTS__MAIN__RUNTIME"]
    with Terminal.running(REMOTECLAW, "up", env=environment, columns=80, directory=work) as screen:
        screen.see("›")
        yield screen


def request_pictures(telegram: Telegram) -> dict[str, str]:
    """Return the pictures of a request in a terminal and in a Telegram message."""
    bot = telegram.bot()
    settings = {"token": bot.token, "api_url": bot.api_url, "owners": [str(ANN)]}
    with (
        tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as made,
        asking(Path(made), telegram=settings) as screen,
    ):
        screen.type(f"{ASKED}\r")
        bot.say(ASKED, chat=ANN)
        screen.see("WHY")
        (card,) = eventually_sync(lambda: [m for m in bot.chat(ANN) if "reply_markup" in m])
        return {
            "request": screen_picture(screen, f"› {ASKED}", "WHY"),
            "request-telegram": message_picture(card),
        }
