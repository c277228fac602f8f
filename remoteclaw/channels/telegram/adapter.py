"""The Telegram adapter: receives a bot's messages and sends its replies."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remoteclaw.channels.telegram.api import BotApi, TelegramRefused, upload
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.channels.telegram.updates import (
    PRESSED,
    UPDATE_KINDS,
    id_change,
    incoming,
    may_continue,
)
from remoteclaw.channels.telegram.writer import MAX_UNITS, Entity, FormattedText, unmentioned, write
from remoteclaw.clock import boottime
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformRefused,
    PlatformUnknown,
    Unsupported,
)
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import code_files
from remoteclaw.protocols import (
    Card,
    Identity,
    Incoming,
    IncomingFile,
    Live,
    Operation,
    Part,
    Place,
    PollResult,
    Reply,
    Sent,
)

#: The name of the only source.
UPDATES = "updates"
#: A poll waits this long for messages, in seconds.
POLL_S = 25
#: The pauses before a poll is repeated to get the rest of an act, in seconds. Each message may be a
#: comment on messages that its sender forwards with it, so it waits only for one poll.
ACT_PAUSES_S = {"album": (0.5,), "text": (0.5, 0.5), "comment": (0.0,)}
#: A poll waits at most this long for the rest of acts, in seconds: everybody's messages wait too.
MAX_ACT_S = 5.0
#: Telegram's limits for a photo: its size in bytes and its MIME types. Others are sent as files.
MAX_PHOTO_BYTES = 10_000_000
PHOTO_TYPES = frozenset(("image/jpeg", "image/png", "image/webp"))
#: Telegram's limits for the menu: the number of commands and the length of a description.
MAX_COMMANDS, MAX_DESCRIPTION_CHARS = 100, 256
#: Telegram's limit for the text shown to a person who presses a button, in characters.
MAX_PRESS_TEXT_CHARS = 200

AGAIN = "(perhaps a second time)"

_Params = dict[str, Any]

#: The effects by name; Telegram offers bots no others.
_EFFECTS = {
    "fire": "5104841245755180586",
    "thumbs_up": "5107584321108051014",
    "thumbs_down": "5104858069142078462",
    "heart": "5159385139981059251",
    "confetti": "5046509860389126442",
    "poop": "5046589136895476101",
}
#: Names of effects by their emoji.
_EFFECT_EMOJI = {
    "🔥": "fire",
    "👍": "thumbs_up",
    "👎": "thumbs_down",
    "❤": "heart",
    "🎉": "confetti",
}

#: Parts of Telegram's error texts. For an edit of a message that is gone:
_EDIT_GONE = ("message to edit not found", "can't be edited", "message_id_invalid")
#: For the removal of a message that is gone:
_DELETE_GONE = ("message to delete not found", "message_id_invalid")
#: For a photo that must be sent as a file instead:
_NOT_A_PHOTO = ("image_process_failed", "photo_", "file is too big")
#: For an optional parameter, without which the message is sent again:
_OPTIONAL = {
    "entities": ("can't parse entit", "entity begin", "entity_", "entities_"),
    "message_effect_id": ("effect",),
}


class TelegramAdapter:
    """One bot: receives messages and sends replies."""

    key_window_s = None
    has_buttons = True

    def __init__(self, settings: TelegramAccount) -> None:
        self._api = BotApi(settings.read_secret("token"), settings.api_url)
        self._me: Mapping[str, Any] = {}

    # The incoming side.

    async def connect(self) -> Identity:
        """Check the token, and that no webhook receives the bot's messages.

        Raises `AccountRefused` if one does.
        """
        self._me = await self._api.ask("getMe")
        name = f"@{self._name}"
        hook = await self._api.ask("getWebhookInfo")
        if hook.get("url"):
            raise AccountRefused(
                f"A webhook is set for {name}, so its messages go elsewhere: stop the program that "
                "has set it and call the Bot API's deleteWebhook, or make a bot of its own for "
                "RemoteClaw."
            )
        return Identity(name)

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for updates. The cursor is the id of the next update; it acknowledges earlier ones.

        The parts of one act, such as an album, are separate updates that arrive one after another,
        so the poll is repeated from the same cursor until the act is complete, or `MAX_ACT_S` is
        over. The rest is then a message of its own.
        """
        offset = int(cursors[UPDATES]) if UPDATES in cursors else None
        updates = await self._updates(offset, POLL_S)
        count, until = 0, boottime() + MAX_ACT_S
        while count < len(updates) and boottime() < until and (act := may_continue(updates[-1])):
            count = len(updates)
            for pause_s in ACT_PAUSES_S[act]:
                await asyncio.sleep(pause_s)
                updates = await self._updates(offset, 0)
                if len(updates) > count:
                    break
        last = max((update["update_id"] + 1 for update in updates), default=offset)
        # The update about a group's new id may be lost, but a refused call also names the new id.
        moves, self._api.moves = self._api.moves, []
        changes = [id_change(chat, to) for chat, to in moves]
        found = (*changes, *incoming(updates, me=self._me))
        return PollResult(found, {} if last is None else {UPDATES: str(last)})

    async def _updates(self, offset: int | None, wait_s: int) -> list[_Params]:
        try:
            updates: list[_Params] = await self._api.ask(
                "getUpdates",
                offset=offset,
                timeout=wait_s,
                allowed_updates=list(UPDATE_KINDS),
                more_s=wait_s,
            )
        except PlatformUnknown as unknown:  # a poll has no effect, so it can be repeated
            raise PlatformAway(str(unknown)) from None
        return updates

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file that a person has sent."""
        return await self._api.fetch(file.id)

    async def tell_pressed(self, incoming: Incoming, text: str, *, is_refused: bool) -> None:
        """Show `text` above the chat, or in an alert if `is_refused`."""
        await self._api.ask(
            "answerCallbackQuery",
            callback_query_id=incoming.id.removeprefix(PRESSED),
            text=one_line(text, max_chars=MAX_PRESS_TEXT_CHARS),
            show_alert=is_refused,
        )

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Show commands, each with its description, in the menu."""
        menu = [
            {"command": name, "description": description[:MAX_DESCRIPTION_CHARS]}
            for name, description in commands
        ]
        await self._api.ask("setMyCommands", commands=menu[:MAX_COMMANDS])

    async def aclose(self) -> None:
        """Close all connections."""
        await self._api.aclose()

    # The outgoing side.

    @property
    def _name(self) -> str:
        """The bot's own name, the only one that its messages may mention."""
        return str(self._me.get("username", ""))

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the messages of a reply: its text, then long code as files, then its files."""
        shown, made = code_files(reply.text, reply.code_file_lines)
        texts = list(write(shown, me=self._name))
        if texts and reply.is_error:
            texts = _headed(texts, "⚠️ ", is_line=False)
        if texts and reply.origin and reply.index == 0 and not reply.is_aside:
            texts = _headed(texts, unmentioned(f"({reply.origin})", self._name))
        contents: list[_Params] = [{"content": text} for text in texts]
        contents += [{"content": file.content, "name": file.name} for file in made]
        contents += [{"attachment": file} for file in reply.attachments]
        return [Part(index, **content) for index, content in enumerate(contents)]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send one message of a reply.

        It notifies only as the first part of a turn's last message, of an error, or of a message
        that a tool sent, and never if the reply is silent.
        """
        is_first = part.index == 0
        is_loud = is_first and bool(reply.is_final or reply.call or reply.is_error)
        is_loud &= not reply.is_silent
        params = _of(Place(reply.channel_id, reply.thread_id))
        params["disable_notification"] = not is_loud
        if is_first and (answered := reply.reply_to_id) and answered.isdecimal():
            # If the quoted message has been deleted, the answer is sent without the quote.
            params["reply_parameters"] = {
                "message_id": int(answered),
                "allow_sending_without_reply": True,
            }
        params["message_effect_id"] = _effect(reply) if is_first else None
        if part.file_name:
            params["caption"] = AGAIN if is_again else None
            message = await self._send_file(part, content or b"", params)
        else:
            buttons = self._buttons_of(reply, part)
            for text in _headed([part.content], AGAIN) if is_again else [part.content]:
                message = await self._show("sendMessage", **_of_text(text), **params, **buttons)
        return Sent(str(message["message_id"]), has_effect="effect_id" in message)

    def _buttons_of(self, reply: Reply, part: Part) -> _Params:
        """Return the buttons of the reply's card, which are below its last text part."""
        card = reply.card
        if card is None or not card.choices:
            return {}
        last_text = max(each.index for each in self.parts(reply) if not each.file_name)
        if part.index < last_text:
            return {}
        return {"reply_markup": {"inline_keyboard": _buttons(card)}}

    async def _send_file(self, part: Part, content: bytes, params: _Params) -> _Params:
        """Send an image as a photo if Telegram accepts it as one, and else as a file."""
        file = upload(content, part.file_name)
        kind = part.attachment.mime_type if part.attachment else ""
        if kind in PHOTO_TYPES and len(content) <= MAX_PHOTO_BYTES:
            try:
                return await self._show("sendPhoto", photo=file, **params)
            except TelegramRefused as refusal:
                if not refusal.contains_any(_NOT_A_PHOTO):
                    raise
        return await self._show("sendDocument", document=file, **params)

    async def preview(self, place: Place, live: Live, *, message_id: str | None) -> str:
        """Send or edit a preview that shows `live`. A preview that is gone is sent again."""
        text = _preview(live, self._name)
        if message_id is not None:
            try:
                await self._edit(place, text, message_id)
            except TelegramRefused as refusal:
                if not refusal.contains_any(_EDIT_GONE):
                    raise
            else:
                return message_id
        message = await self._show(
            "sendMessage", **_of_text(text), **_of(place), disable_notification=True
        )
        return str(message["message_id"])

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Edit a preview into a part of the reply."""
        buttons = self._buttons_of(reply, part)
        topic = Place(reply.channel_id, reply.thread_id)
        await self._edit(topic, part.content, message_id, **buttons)
        return Sent(message_id)

    async def _edit(
        self, place: Place, text: FormattedText, message_id: str, **buttons: Any
    ) -> None:
        """Edit a message. Telegram removes its buttons unless `buttons` has them again."""
        try:
            where = {"chat_id": place.chat, "message_id": _number(message_id)}
            await self._show("editMessageText", **_of_text(text), **where, **buttons)
        except TelegramRefused as refusal:
            if not refusal.contains_any(("message is not modified",)):
                raise

    async def remove(self, place: Place, message_id: str) -> None:
        """Delete a preview. A preview that is gone counts as deleted."""
        try:
            await self._api.ask("deleteMessage", chat_id=place.chat, message_id=_number(message_id))
        except TelegramRefused as refusal:
            if not refusal.contains_any(_DELETE_GONE):
                raise

    async def typing(self, place: Place) -> None:
        """Show the typing indicator, which Telegram hides after five seconds."""
        await self._api.ask("sendChatAction", **_of(place), action="typing")

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React to, delete or pin a message. Raises `Unsupported` for `read`."""
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
        """Send or edit a message. Optional parameters that Telegram refuses are left out."""
        try:
            message: _Params = await self._api.ask(method, **params)
        except TelegramRefused as refusal:
            refused = [
                name
                for name, texts in _OPTIONAL.items()
                if params.get(name) and refusal.contains_any(texts)
            ]
            if not refused:
                raise
            params |= dict.fromkeys(refused)
            if "entities" in refused:  # code is plain text then, in which names are mentions
                params["text"] = unmentioned(params["text"], self._name)
            message = await self._show(method, **params)
        return message


def _of(place: Place) -> _Params:
    """Return the parameters that name a chat and its topic."""
    where: _Params = {"chat_id": place.chat}
    if place.thread is not None:
        where["message_thread_id"] = _number(place.thread, "topic")
    return where


def _buttons(card: Card) -> list[list[_Params]]:
    """Return the choices of a card as buttons, one per row: phones truncate buttons in one row."""
    return [
        [{"text": label, "callback_data": f"{card.id}:{verdict}"}]
        for verdict, label in card.choices
    ]


def _of_text(text: FormattedText) -> _Params:
    """Return the parameters for a text and its formatting.

    Link previews are disabled: Telegram would fetch a link that an injected prompt made the agent
    write, and so send data in its address to that server.
    """
    return {
        "text": text.text,
        "entities": [entity.as_dict() for entity in text.entities] or None,
        "link_preview_options": {"is_disabled": True},
    }


def _number(id_: str, kind: str = "message") -> int:
    if not id_.isdecimal():
        raise PlatformRefused(f"There is no {kind} {id_[:40]!r}: Telegram's ids are numbers.")
    return int(id_)


def _effect(reply: Reply) -> str | None:
    """Return Telegram's id of the reply's effect; None for an unknown one, and in groups."""
    name = (reply.effect or "").lower().replace("\N{VARIATION SELECTOR-16}", "")
    name = _EFFECT_EMOJI.get(name, name.replace(" ", "_").replace("-", "_"))
    return None if reply.channel_id.startswith(("-", "@")) else _EFFECTS.get(name)


def _units(text: str) -> int:
    """Return the length of `text` in units of UTF-16."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _headed(
    texts: Sequence[FormattedText], head: str, *, is_line: bool = True
) -> list[FormattedText]:
    """Return `texts` with `head` before the first one: as an italic line if `is_line`, else inline.

    A line that does not fit into the first message is sent as a message of its own.
    """
    first, *others = texts
    italic = (Entity("italic", 0, _units(head)),) if is_line else ()
    if is_line and _units(head) + 1 + _units(first.text) > MAX_UNITS:
        return [FormattedText(head, italic), *texts]
    start = f"{head}\n" if is_line else head
    shift = _units(start)
    moved = (replace(entity, offset=entity.offset + shift) for entity in first.entities)
    return [FormattedText(start + first.text, (*italic, *moved)), *others]


def _preview(live: Live, me: str) -> FormattedText:
    """Return the text of a preview: the end of the answer, and a status line below it."""
    texts = write(live.text, me=me)
    body = texts[-1] if texts else FormattedText("")
    status = " · ".join(filter(None, (live.activity, live.plan))) or ("" if texts else "…")
    status = unmentioned(status, me)
    gap = "\n\n" if texts and status else ""
    if not status or _units(body.text + gap + status) > MAX_UNITS:
        return body
    italic = Entity("italic", _units(body.text + gap), _units(status))
    return FormattedText(f"{body.text}{gap}{status}", (*body.entities, italic))
