"""The Matrix adapter: receives what people write to an account, and sends its replies."""

import logging
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from remoteclaw.bridge.chunks import Chunker
from remoteclaw.channels.matrix.api import Homeserver, MatrixRefused
from remoteclaw.channels.matrix.contents import MARK, annotation, body_of, edit_of, related
from remoteclaw.channels.matrix.device import Event
from remoteclaw.channels.matrix.encryption import Encryption
from remoteclaw.channels.matrix.events import relation_of
from remoteclaw.channels.matrix.history import History
from remoteclaw.channels.matrix.identity import sign_device
from remoteclaw.channels.matrix.media import address_and_keys, dimensions, opened, sealed
from remoteclaw.channels.matrix.rooms import Rooms
from remoteclaw.channels.matrix.sender import Sender, hashed
from remoteclaw.channels.matrix.settings import MatrixAccount
from remoteclaw.channels.matrix.sync import Sync
from remoteclaw.channels.matrix.writer import content_of
from remoteclaw.errors import PlatformRefused, PlatformUnknown
from remoteclaw.messages import code_files
from remoteclaw.protocols import (
    AdapterState,
    ContextMessage,
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

#: A longer text is cut into several messages, in bytes: the rest of an event is for its HTML.
MAX_BYTES = 14_000
#: A preview shows this many characters of what the agent does.
MAX_STATUS = 500
#: The size of a file that is fetched, in bytes: the largest that RemoteClaw accepts, and its cover.
MAX_FILE = 21_000_000
AGAIN = "(perhaps a second time)"
#: A client hides the typing indicator after this time, in milliseconds.
TYPING_MS = 6000
#: `read` looks at this many events, and `find` at more, because each change of a preview is one.
PAGE, FIND = 100, 500
#: The account's own reactions to this many messages are remembered.
MAX_REACTIONS = 500
NO_RIGHT_TO_PIN = (
    "The account has no right to pin messages there: raise its power level in the room."
)

log = logging.getLogger(__name__)


class MatrixAdapter:
    """One account on a homeserver."""

    key_window_s = 29 * 60.0  # a homeserver remembers transactions for at least 30 minutes
    has_buttons = "reactions"

    def __init__(self, settings: MatrixAccount) -> None:
        self._api = Homeserver(settings.api_url, settings.read_secret("token"))
        self._requires_encryption = settings.require_encryption
        self._me = ""
        self._state: AdapterState
        self._rooms: Rooms
        self._encryption: Encryption
        self._sender: Sender
        self._sync: Sync
        self._history: History
        self._reactions: dict[str, dict[str, str]] = {}
        """The ids of the account's own reactions to a message, by their emoji."""

    async def use_state(self, state: AdapterState) -> None:
        """Keep keys there, so that the account's next process can read."""
        self._state = state

    async def connect(self) -> Identity:
        """Check the token, and load or make the keys of this device."""
        who = await self._api.get("account", "whoami")
        self._me = str(who["user_id"])
        device = str(who.get("device_id", ""))
        self._rooms = Rooms(self._api, self._state, self._me)
        self._encryption = Encryption(self._api, self._state, self._me, device)
        self._sender = Sender(self._api, self._rooms, self._encryption)
        self._sync = Sync(
            self._api,
            self._rooms,
            self._encryption,
            self._sender,
            self._state,
            self._me,
            requires_encryption=self._requires_encryption,
        )
        self._history = History(self._api, self._rooms, self._sync)
        await self._encryption.open()
        problem = await sign_device(self._api, self._state, self._encryption.device)
        return Identity(self._me, problem)

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Do nothing: Matrix has no menu of commands."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._api.aclose()

    # -- what people do ------------------------------------------------------------------------

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for events. The only source is `sync`, and its cursor the homeserver's position."""
        return await self._sync.poll(cursors)

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file that a person has sent."""
        address, keys = address_and_keys(file.id)
        content = await self._api.download(address, max_bytes=MAX_FILE)
        return content if keys is None else opened(content, keys)

    async def context(self, place: Place, before: str, limit: int) -> Sequence[ContextMessage]:
        """Return the messages of a thread before a message."""
        found: list[ContextMessage] = []
        names = await self._rooms.members(await self._rooms.current(place.chat))
        for event in await self._history.messages(place, PAGE):
            if event["event_id"] == before:
                found = []
            else:
                sender = event["sender"]
                found.append(ContextMessage(sender, body_of(event), names.get(sender)))
        return found[:limit][::-1]

    async def answer_invitation(self, incoming: Incoming, *, joins: bool) -> None:
        """Join a room, or decline."""
        try:
            if joins:
                await self._api.join(incoming.chat, through=incoming.sender)
            else:
                await self._api.post("rooms", incoming.chat, "leave", body={})
        except MatrixRefused as refusal:
            if joins or refusal.code not in ("M_FORBIDDEN", "M_NOT_FOUND"):
                raise

    # -- what agents write ---------------------------------------------------------------------

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the messages of a reply: its text, then long code as files, then its files."""
        shown, made = code_files(reply.text, reply.code_file_lines)
        cut = Chunker(MAX_BYTES, "bytes")
        texts = [*cut.feed(shown), *cut.finish()]
        if texts and reply.is_error:
            texts[0] = f"⚠️ {texts[0]}"
        if texts and reply.origin and reply.index == 0 and not reply.is_aside:
            texts[0] = f"*({reply.origin})*\n\n{texts[0]}"
        contents: list[dict[str, Any]] = [{"content": text} for text in texts]
        contents += [{"content": file.content, "name": file.name} for file in made]
        contents += [{"attachment": file} for file in reply.attachments]
        return [Part(index, **content) for index, content in enumerate(contents)]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send one part of a reply, with the reactions that answer its request."""
        place = _place_of(reply)
        if part.file_name:
            message = await self._file(reply, part, content or b"")
        else:
            text = f"*{AGAIN}*\n\n{part.content}" if is_again else part.content
            message = content_of(text, is_quiet=_is_quiet(reply), asked_by=reply.asked_by)
        answered = reply.reply_to_id if part.index == 0 else None
        txn = _txn(reply, part)
        message |= related(place.thread, answered) | {MARK: txn}
        id_ = await self._sender.put(place.chat, "m.room.message", message, txn)
        await self._show_choices(reply, part, id_)
        return Sent(id_)

    async def _show_choices(self, reply: Reply, part: Part, id_: str) -> None:
        """React to the message of a request with the emoji of its choices.

        Without the right to react, people still answer in words.
        """
        if not reply.card or part.index:
            return
        try:
            for emoji in reply.card.emoji:
                txn = hashed(id_, emoji)
                await self._sender.put(reply.channel_id, "m.reaction", annotation(id_, emoji), txn)
        except MatrixRefused as refusal:
            log.warning("a request in %s has no reactions: %s", reply.channel_id, refusal)

    async def _file(self, reply: Reply, part: Part, content: bytes) -> dict[str, Any]:
        """Store a file on the homeserver; return its message."""
        kind = part.attachment.mime_type if part.attachment else "text/plain"
        is_encrypted = await self._rooms.encryption(await self._rooms.current(reply.channel_id))
        message: dict[str, Any] = {
            "msgtype": f"m.{kind.split('/')[0]}",
            "body": part.file_name,
            "filename": part.file_name,
            "info": {"mimetype": kind, "size": len(content), **dimensions(content)},
            "m.mentions": {},
        }
        if message["msgtype"] not in ("m.image", "m.audio", "m.video"):
            message["msgtype"] = "m.file"
        if is_encrypted is None:
            return message | {"url": await self._api.upload(content, part.file_name, kind)}
        ciphertext, file = sealed(content)
        address = await self._api.upload(ciphertext, "file", "application/octet-stream")
        return message | {"file": {"url": address, **file}}

    async def find(
        self, reply: Reply, part: Part, since_ms: int, *, known: Collection[str]
    ) -> Sent | None:
        """Look for the mark of a part, which is also in encrypted messages."""
        mark = _txn(reply, part)
        for event in await self._history.messages(_place_of(reply), FIND):
            is_it = event["sender"] == self._me and event["content"].get(MARK) == mark
            if is_it and event["event_id"] not in known:
                await self._show_choices(reply, part, event["event_id"])
                return Sent(event["event_id"])
        return None

    async def preview(self, place: Place, live: Live, *, message_id: str | None) -> str:
        """Send or edit a silent message that shows `live`."""
        status = " · ".join(filter(None, (live.activity, live.plan)))[:MAX_STATUS]
        text = live.text.encode()[-MAX_BYTES:].decode(errors="ignore")
        shown = "\n\n".join(filter(None, (text, f"*{status}*" if status else ""))) or "…"
        content = content_of(shown, is_quiet=True)
        txn = uuid.uuid4().hex
        if message_id is None:
            message = content | related(place.thread, None)
            try:
                return await self._sender.put(place.chat, "m.room.message", message, txn)
            except PlatformUnknown:  # without its id, it would stay there
                return await self._sender.put(place.chat, "m.room.message", message, txn)
        await self._edit(place, message_id, content, txn)
        return message_id

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Edit a preview, or the card of a request, into a part of the reply."""
        place = _place_of(reply)
        room = await self._rooms.current(place.chat)
        before = await self._api.get("rooms", room, "event", message_id)
        if "redacted_because" in before.get("unsigned", {}):
            raise PlatformRefused("That message is gone.")
        content = content_of(part.content, is_quiet=_is_quiet(reply), asked_by=reply.asked_by)
        await self._edit(place, message_id, content, hashed(_txn(reply, part), message_id))
        return Sent(message_id)

    async def _edit(
        self, place: Place, message_id: str, content: Mapping[str, Any], txn: str
    ) -> None:
        await self._sender.put(place.chat, "m.room.message", edit_of(message_id, content), txn)

    async def remove(self, place: Place, message_id: str) -> None:
        """Delete a preview. A preview that is gone counts as deleted."""
        try:
            await self._sender.redact(place.chat, message_id)
        except MatrixRefused as refusal:
            if refusal.code != "M_NOT_FOUND":
                raise

    async def typing(self, place: Place) -> None:
        """Show that an answer is being written."""
        room = await self._rooms.current(place.chat)
        body = {"typing": True, "timeout": TYPING_MS}
        await self._api.put("rooms", room, "typing", self._me, body=body)
        await self._sender.prepare(room)

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React to a message, delete or pin it, or read a room or thread."""
        room, args = operation.channel_id, operation.args
        match operation.name:
            case "react":
                await self._react(room, args["messageId"], args["emoji"])
            case "delete":
                await self._sender.redact(room, args["messageId"])
            case "pin":
                await self._pin(room, args["messageId"])
            case "read":
                found = await self._history.messages(Place(room, operation.thread_id), PAGE)
                return {"messages": [_message(event) for event in found[: args["limit"]][::-1]]}
        return {}

    async def _react(self, room: str, message: str, emoji: str) -> None:
        """Make an emoji the account's only reaction to a message; without one, remove it."""
        own = self._reactions.get(message)
        if own is None:
            own = await self._own_reactions(await self._rooms.current(room), message)
        for each, id_ in own.items():
            if each != emoji:
                await self._sender.redact(room, id_)
        kept = {emoji: own[emoji]} if emoji in own else {}
        if emoji and emoji not in own:
            txn = uuid.uuid4().hex
            id_ = await self._sender.put(room, "m.reaction", annotation(message, emoji), txn)
            kept = {emoji: id_} if id_ else {}
        self._reactions.pop(message, None)
        self._reactions |= {message: kept} if kept else {}
        while len(self._reactions) > MAX_REACTIONS:
            del self._reactions[next(iter(self._reactions))]

    async def _own_reactions(self, room: str, message: str) -> dict[str, str]:
        page = await self._api.get(
            "rooms", room, "relations", message, "m.annotation", version="v1", limit=PAGE
        )
        return {
            relation_of(event)["key"]: event["event_id"]
            for event in page.get("chunk", ())
            if event["sender"] == self._me and "key" in relation_of(event)
        }

    async def _pin(self, room: str, message: str) -> None:
        room = await self._rooms.current(room)
        pins: list[str] = []
        try:
            pins = (await self._api.get("rooms", room, "state", "m.room.pinned_events"))["pinned"]
        except MatrixRefused as refusal:
            if refusal.code != "M_NOT_FOUND":
                raise
        body = {"pinned": [*dict.fromkeys((*pins, message))]}
        try:
            await self._api.put("rooms", room, "state", "m.room.pinned_events", body=body)
        except MatrixRefused as refusal:
            if refusal.code == "M_FORBIDDEN":
                raise PlatformRefused(NO_RIGHT_TO_PIN) from None
            raise


def _txn(reply: Reply, part: Part) -> str:
    """Return the id with which the homeserver knows a repetition of a part."""
    return hashed(reply.key, str(part.index))


def _place_of(reply: Reply) -> Place:
    return Place(chat=reply.channel_id, thread=reply.thread_id)


def _is_quiet(reply: Reply) -> bool:
    return reply.is_silent or reply.is_aside


def _message(event: Event) -> dict[str, Any]:
    names = {"id": event["event_id"], "from": event["sender"], "at": event["origin_server_ts"]}
    return {**names, "text": body_of(event)}
