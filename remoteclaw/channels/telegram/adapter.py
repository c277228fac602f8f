"""The adapter of a bot: what people write to it, and what it shows them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from remoteclaw.channels.telegram.api import BotApi, Refused, upload
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.channels.telegram.updates import PRESSED, WANTED, album_of, incoming, moved
from remoteclaw.channels.telegram.writer import MAX_UNITS, Entity, Text, write
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformRefused,
    PlatformUnknown,
    Unsupported,
)
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import Attachment
from remoteclaw.protocols import (
    Batch,
    Card,
    Identity,
    Incoming,
    IncomingFile,
    Live,
    Operation,
    Part,
    Place,
    Reply,
    Sent,
)

#: How long one poll waits for messages, in seconds, and how long for the rest of an album.
POLL_S, ALBUM_S = 25, 0.5
#: The largest picture that is shown as one, in bytes, and the types that are.
PHOTO_BYTES = 10_000_000
PHOTOS = frozenset(("image/jpeg", "image/png", "image/webp"))
#: How many commands the menu has.
MAX_COMMANDS = 100
#: The longest words for who has pressed a button, in characters.
MAX_TOLD = 200

AGAIN = "(perhaps a second time)"

_Params = dict[str, Any]

#: The effects by their names; Telegram has only these for bots.
_EFFECTS = {
    "fire": "5104841245755180586",
    "thumbs_up": "5107584321108051014",
    "thumbs_down": "5104858069142078462",
    "heart": "5159385139981059251",
    "confetti": "5046509860389126442",
    "poop": "5046589136895476101",
}
_SAME = {"🔥": "fire", "👍": "thumbs_up", "👎": "thumbs_down", "❤": "heart", "🎉": "confetti"}

#: What it says of a message that is gone, of a picture that is none, and of what only adorns one.
_GONE = ("message to edit not found", "can't be edited", "message_id_invalid")
_DELETED = ("message to delete not found", "message_id_invalid")
_PICTURE = ("image_process_failed", "photo_", "file is too big")
_SPARE = {
    "entities": ("can't parse entit", "entity begin", "entity_", "entities_"),
    "message_effect_id": ("effect",),
}


class TelegramAdapter:
    """One bot, both sides."""

    has_keys = False
    has_buttons = True

    def __init__(self, settings: TelegramAccount) -> None:
        self._api = BotApi(settings.read_token(), settings.api_url)
        self._me: Mapping[str, Any] = {}

    # The incoming side.

    async def connect(self) -> Identity:
        """Check the token, and that messages come by polls."""
        self._me = await self._api.ask("getMe")
        name = f"@{self._me['username']}"
        hook = await self._api.ask("getWebhookInfo")
        if hook.get("url"):
            raise AccountRefused(
                f"A webhook is set for {name}, so its messages go elsewhere: stop the program that "
                "has set it and call the Bot API's deleteWebhook, or make a bot of its own for "
                "RemoteClaw."
            )
        return Identity(name)

    async def poll(self, position: str | None) -> Batch:
        """Wait for updates; the position is the next one's id.

        With it, all before are acknowledged. The parts of an album come one by one: the poll is
        repeated from the same position until there are no more.
        """
        offset = int(position) if position else None
        updates = await self._updates(offset, POLL_S)
        count = 0
        while count < len(updates) and album_of(updates[-1]) is not None:
            count = len(updates)
            await asyncio.sleep(ALBUM_S)
            updates = await self._updates(offset, 0)
        last = max((update["update_id"] + 1 for update in updates), default=offset or 0)
        # The update that tells of it may be lost: a group's new id is also in a refusal.
        moves, self._api.moves = self._api.moves, []
        told = [moved(chat, to) for chat, to in moves]
        return Batch(position=str(last), incoming=(*told, *incoming(updates, me=self._me)))

    async def _updates(self, offset: int | None, wait_s: int) -> list[_Params]:
        try:
            updates: list[_Params] = await self._api.ask(
                "getUpdates",
                offset=offset,
                timeout=wait_s,
                allowed_updates=list(WANTED),
                more_s=wait_s,
            )
        except PlatformUnknown as unknown:  # as good as none: it is asked again
            raise PlatformAway(str(unknown)) from None
        return updates

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file that a person has sent."""
        return await self._api.fetch(file.id)

    async def tell_pressed(self, incoming: Incoming, text: str, *, is_refused: bool) -> None:
        """Show words above the chat, and in a box of their own if it is refused."""
        await self._api.ask(
            "answerCallbackQuery",
            callback_query_id=incoming.id.removeprefix(PRESSED),
            text=one_line(text, most=MAX_TOLD),
            show_alert=is_refused,
        )

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Show commands in the menu."""
        menu = [{"command": name, "description": about[:256]} for name, about in commands]
        await self._api.ask("setMyCommands", commands=menu[:MAX_COMMANDS])

    async def aclose(self) -> None:
        """Close all connections."""
        await self._api.aclose()

    # The outgoing side.

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the messages of a reply: its text, then its files."""
        texts = list(write(reply.text))
        if texts and reply.is_error:
            texts = _headed(texts, "⚠️ ", is_line=False)
        if texts and reply.origin and reply.index == 0 and not reply.is_beside:
            texts = _headed(texts, f"({reply.origin})")
        contents: list[_Params] = [{"content": text} for text in texts]
        contents += [{"attachment": file} for file in reply.attachments]
        return [Part(index, **content) for index, content in enumerate(contents)]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send one message, in a topic, as an answer, and with an effect where it is to have one.

        Only the first part of what ends a turn, or was sent by a tool, makes a sound, unless it is
        a silent one.
        """
        is_first = part.index == 0
        is_loud = is_first and bool(reply.is_final or reply.call or reply.is_error)
        is_loud &= not reply.is_silent
        params = _of(Place(reply.channel_id, reply.thread_id))
        params["disable_notification"] = not is_loud
        if is_first and (answered := reply.reply_to_id) and answered.isdecimal():
            # What is deleted meanwhile must not cost the answer.
            params["reply_parameters"] = {
                "message_id": int(answered),
                "allow_sending_without_reply": True,
            }
        params["message_effect_id"] = _effect(reply) if is_first else None
        if part.attachment is not None:
            params["caption"] = AGAIN if is_again else None
            message = await self._send_file(part.attachment, content or b"", params)
        else:
            keys = self._keys(reply, part)
            for text in _headed([part.content], AGAIN) if is_again else [part.content]:
                message = await self._show("sendMessage", **_of_text(text), **params, **keys)
        return Sent(str(message["message_id"]), has_effect="effect_id" in message)

    def _keys(self, reply: Reply, part: Part) -> _Params:
        """Return the buttons of a card, below the last words of it."""
        card = reply.card
        last = len(self.parts(reply)) - len(reply.attachments) - 1
        if card is None or not card.choices or part.index < last:
            return {}
        return {"reply_markup": {"inline_keyboard": _buttons(card)}}

    async def _send_file(self, about: Attachment, content: bytes, params: _Params) -> _Params:
        """Send a picture as one if Telegram shows it, and else as a file."""
        file = upload(content, about.name)
        if about.mime_type in PHOTOS and len(content) <= PHOTO_BYTES:
            try:
                return await self._show("sendPhoto", photo=file, **params)
            except Refused as refusal:
                if not refusal.is_one_of(_PICTURE):
                    raise
        return await self._show("sendDocument", document=file, **params)

    async def preview(self, place: Place, words: Live, *, message_id: str | None) -> str:
        """Show how far a turn has come; a preview that is gone is sent again."""
        text = _preview(words)
        if message_id is not None:
            try:
                await self._edit(place, text, message_id)
            except Refused as refusal:
                if not refusal.is_one_of(_GONE):
                    raise
            else:
                return message_id
        message = await self._show(
            "sendMessage", **_of_text(text), **_of(place), disable_notification=True
        )
        return str(message["message_id"])

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Make a preview a part of the reply."""
        keys = self._keys(reply, part)
        where = Place(reply.channel_id, reply.thread_id)
        await self._edit(where, part.content, message_id, **keys)
        return Sent(message_id)

    async def _edit(self, place: Place, text: Text, message_id: str, **keys: Any) -> None:
        """Change a message; it loses the buttons that it isn't given again."""
        try:
            where = {"chat_id": place.chat, "message_id": _number(message_id)}
            await self._show("editMessageText", **_of_text(text), **where, **keys)
        except Refused as refusal:
            if not refusal.is_one_of(("message is not modified",)):
                raise

    async def remove(self, place: Place, message_id: str) -> None:
        """Delete a preview."""
        try:
            await self._api.ask("deleteMessage", chat_id=place.chat, message_id=_number(message_id))
        except Refused as refusal:
            if not refusal.is_one_of(_DELETED):
                raise

    async def typing(self, place: Place) -> None:
        """Show that an answer is being written; Telegram shows it for five seconds."""
        await self._api.ask("sendChatAction", **_of(place), action="typing")

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React, delete or pin; Telegram gives bots nothing to read."""
        if operation.name == "read":
            raise Unsupported("Telegram gives bots no history: only what is written to them.")
        where: _Params = {
            "chat_id": operation.channel_id,
            "message_id": _number(operation.args["messageId"]),
        }
        match operation.name:
            case "react":
                emoji = operation.args["emoji"].replace("\N{VARIATION SELECTOR-16}", "")
                reaction = [{"type": "emoji", "emoji": emoji}] if emoji else []
                await self._api.ask("setMessageReaction", **where, reaction=reaction)
            case "delete":
                await self._api.ask("deleteMessage", **where)
            case "pin":
                await self._api.ask("pinChatMessage", **where, disable_notification=True)
        return {}

    async def _show(self, method: str, **params: Any) -> _Params:
        """Send or edit a message, without what only adorns it where Telegram refuses that."""
        try:
            message: _Params = await self._api.ask(method, **params)
        except Refused as refusal:
            spare = [
                name
                for name, words in _SPARE.items()
                if params.get(name) and refusal.is_one_of(words)
            ]
            if not spare:
                raise
            message = await self._show(method, **params | dict.fromkeys(spare))
        return message


def _of(place: Place) -> _Params:
    """Return the parameters that name a chat and its topic."""
    where: _Params = {"chat_id": place.chat}
    if place.thread is not None:
        where["message_thread_id"] = _number(place.thread, "topic")
    return where


def _buttons(card: Card) -> list[list[_Params]]:
    """Return the choices of a card as buttons, a row each: telephones cut what is beside others."""
    return [
        [{"text": label, "callback_data": f"{card.id}:{verdict}"}]
        for verdict, label in card.choices
    ]


def _of_text(text: Text) -> _Params:
    """Return the parameters that are a text and its look.

    What an agent was talked into writing into an address would reach that server by a preview.
    """
    return {
        "text": text.text,
        "entities": [entity.plain() for entity in text.entities] or None,
        "link_preview_options": {"is_disabled": True},
    }


def _number(name: str, what: str = "message") -> int:
    if not name.isdecimal():
        raise PlatformRefused(f"There is no {what} {name[:40]!r}: Telegram's are numbers.")
    return int(name)


def _effect(reply: Reply) -> str | None:
    """Return Telegram's id of an effect; groups have none."""
    name = (reply.effect or "").lower().replace("\N{VARIATION SELECTOR-16}", "")
    name = _SAME.get(name, name.replace(" ", "_").replace("-", "_"))
    return None if reply.channel_id.startswith(("-", "@")) else _EFFECTS.get(name)


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _headed(texts: Sequence[Text], head: str, *, is_line: bool = True) -> list[Text]:
    """Return texts behind some words of ours, in a message of their own if there is no room."""
    first, *others = texts
    looks = (Entity("italic", 0, _units(head)),) if is_line else ()
    if is_line and _units(head) + 1 + _units(first.text) > MAX_UNITS:
        return [Text(head, looks), *texts]
    start = f"{head}\n" if is_line else head
    by = _units(start)
    moved = (
        Entity(one.type, one.offset + by, one.length, one.url, one.language)
        for one in first.entities
    )
    return [Text(start + first.text, (*looks, *moved)), *others]


def _preview(words: Live) -> Text:
    """Return what a preview shows: the end of the text, and in a line below what is being done."""
    texts = write(words.text)
    body = texts[-1] if texts else Text("")
    doing = " · ".join(filter(None, (words.activity, words.plan))) or ("" if texts else "…")
    gap = "\n\n" if texts and doing else ""
    if not doing or _units(body.text + gap + doing) > MAX_UNITS:
        return body
    below = Entity("italic", _units(body.text + gap), _units(doing))
    return Text(f"{body.text}{gap}{doing}", (*body.entities, below))
