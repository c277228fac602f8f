"""A picture of a request in a room of Matrix, drawn from the events that the account has sent."""

import html
import tempfile
from html.parser import HTMLParser
from pathlib import Path

from tests.support.drawing import ASKED, LINE, MARGIN, WIDTH, asking, message_rows, picture
from tests.support.matrix.person import Person
from tests.support.matrix.reading import Seen
from tests.support.matrix.server import Homeserver
from tests.support.waiting import eventually

#: The styles of a picture, by the tags of a message.
_LOOKS = {"strong": "bold", "code": "code", "pre": "pre"}
#: The tags behind which a line ends.
_BLOCKS = ("p", "pre", "br", "li")


class _Text(HTMLParser):
    """The text of a message, with the style of each character."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.text, self.looks = "", list[str]()
        self._open: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self._open.remove(tag)
        if tag in _BLOCKS:
            self._add("\n")

    def handle_data(self, data: str) -> None:
        self._add(data)

    def _add(self, text: str) -> None:
        looks = [_LOOKS[tag] for tag in self._open if tag in _LOOKS]
        self.text += text
        self.looks += [looks[0] if looks else ""] * len(text)


async def request_picture(homeserver: Homeserver) -> str:
    """Return the picture of a request, and below it the same message after Ann's reaction."""
    login = await homeserver.register("bot")
    async with Person.registered(homeserver, "ann") as ann:
        settings = {"token": login.token, "api_url": homeserver.url, "owners": [ann.id]}
        with (
            tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp") as made,
            asking(Path(made), matrix=settings),
        ):
            await ann.call("PUT", "profile", ann.id, "displayname", body={"displayname": "Ann"})
            room = await ann.create(login.user)
            await ann.say(room, ASKED)

            async def card(*, is_answered: bool = False) -> Seen | None:
                messages = await ann.messages(room, of=login.user)
                cards = (each for each in messages if len(each.reactions) == 3)
                return next((each for each in cards if bool(each.edits) == is_answered), None)

            asked = await eventually(card)
            await ann.react(room, asked.id, next(iter(asked.reactions)))
            answered = await eventually(lambda: card(is_answered=True))
    first, middle = _drawn(asked, 0)
    second, height = _drawn(answered, middle)
    between = f'<rect y="{middle}" width="100%" height="2" fill="#2b313a"/>'
    return picture(LINE * WIDTH + 2 * MARGIN, height, "#15191e", [*first, between, *second])


def _drawn(message: Seen, top: int) -> tuple[list[str], int]:
    """Return the elements of a message below `top`, and the height that follows them, in pixels."""
    shown = _Text(message.content["formatted_body"])
    drawn, y = message_rows(shown.text.rstrip("\n"), shown.looks, top)
    for number, (emoji, senders) in enumerate(message.reactions.items()):
        x = MARGIN - 6 + number * 62
        drawn += [
            f'<rect x="{x}" y="{y - 8}" width="54" height="28" rx="14" fill="#1d3a3a" '
            'stroke="#0dbd8b"/>',
            f'<text x="{x + 27}" y="{y + 11}" fill="#ffffff" text-anchor="middle">'
            f"{html.escape(emoji)} {len(senders)}</text>",
        ]
    return drawn, y + 30
