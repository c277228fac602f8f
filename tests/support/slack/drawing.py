"""A picture of a request in Slack, drawn from the blocks that the account has sent."""

import html
import tempfile
from pathlib import Path
from typing import Any

from remoteclaw.channels.slack.manifest import BOT_SCOPES, EVENTS
from remoteclaw.markdown import CodeBlock, Paragraph, blocks_of
from tests.support.drawing import ASKED, LINE, MARGIN, WIDTH, asking, message_rows, picture
from tests.support.slack import Slack
from tests.support.waiting import eventually_sync

#: The fill, the edge and the text of a button, by its style.
_STYLES = {
    "primary": ("#007a5a", "#007a5a", "#ffffff"),
    "danger": ("#1a1d21", "#e01e5a", "#f2748f"),
    "": ("#1a1d21", "#797c81", "#ffffff"),
}


def request_picture(slack: Slack) -> str:
    """Return the picture of a request, and below it the same message after Ann's press."""
    team = slack.workspace()
    team.set(scopes=[*BOT_SCOPES], events=[*EVENTS])
    ann = team.person("Ann")
    direct = team.direct(ann)
    settings = {
        "api_url": team.api_url,
        "token": team.bot_token,
        "app_token": team.app_token,
        "owners": [ann],
    }

    def cards(number: int) -> list[dict[str, Any]]:
        found = [each for each in team.messages(direct) if "blocks" in each]
        return [
            each for each in found if each["user"] == team.bot and len(each["blocks"]) == number
        ]

    with (
        tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as made,
        asking(Path(made), slack=settings),
    ):
        eventually_sync(team.sockets)
        team.advance(60)  # what is older than the account's first poll is not answered
        team.say(direct, ann, ASKED)
        (asked,) = eventually_sync(lambda: cards(2))
        team.press(direct, asked["ts"], ann, "once")
        (answered,) = eventually_sync(lambda: cards(1))
    first, middle = _drawn(asked["blocks"], 0)
    second, height = _drawn(answered["blocks"], middle)
    between = f'<rect y="{middle}" width="100%" height="2" fill="#35373b"/>'
    return picture(LINE * WIDTH + 2 * MARGIN, height, "#1a1d21", [*first, between, *second])


def _drawn(blocks: list[dict[str, Any]], top: int) -> tuple[list[str], int]:
    """Return the elements of blocks below `top`, and the height that follows them, in pixels."""
    drawn, y = [], top
    for block in blocks:
        match block["type"]:
            case "markdown":
                rows, y = message_rows(*_read(block["text"]), y)
            case "actions":
                rows, y = _buttons(block["elements"], y)
            case other:
                raise AssertionError(f"a block of the type {other} can't be drawn")
        drawn += rows
    return drawn, y


def _read(markdown: str) -> tuple[str, list[str]]:
    """Return the text of Markdown, and the style of each character."""
    text, looks = "", list[str]()
    for block in blocks_of(markdown):
        match block:
            case Paragraph(spans):
                parts = [
                    (each.text, "bold" if each.is_bold else "code" if each.is_code else "")
                    for each in spans
                ]
            case CodeBlock(text=code):
                parts = [(code.rstrip("\n"), "pre")]
            case other:
                raise AssertionError(f"{other} can't be drawn")
        for part, look in [*parts, ("\n", "")]:
            text += part
            looks += [look] * len(part)
    return text.rstrip("\n"), looks


def _buttons(buttons: list[dict[str, Any]], top: int) -> tuple[list[str], int]:
    """Return the elements of buttons, in as many rows as they need, and the height below them."""
    drawn, x, y = list[str](), MARGIN - 6.0, top - 3
    for button in buttons:
        label = button["text"]["text"]
        width = (len(label) + 3) * WIDTH
        if x + width > LINE * WIDTH + MARGIN + 6:
            x, y = MARGIN - 6.0, y + 38
        fill, edge, colour = _STYLES[button.get("style", "")]
        drawn += [
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="30" rx="6" fill="{fill}" '
            f'stroke="{edge}"/>',
            f'<text x="{x + width / 2:.1f}" y="{y + 20}" fill="{colour}" text-anchor="middle">'
            f"{html.escape(label)}</text>",
        ]
        x += width + 8
    return drawn, y + 44
