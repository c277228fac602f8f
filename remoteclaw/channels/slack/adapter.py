"""The Slack adapter: receives what people do in a workspace, and sends replies."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from remoteclaw.bridge.chunks import Chunker
from remoteclaw.channels.slack import text
from remoteclaw.channels.slack.api import SlackRefused, WebApi, next_page
from remoteclaw.channels.slack.blocks import message_of
from remoteclaw.channels.slack.emoji_names import name_of
from remoteclaw.channels.slack.events import Me, Reader, ms_of
from remoteclaw.channels.slack.feed import Feed
from remoteclaw.channels.slack.manifest import BOT_SCOPES
from remoteclaw.channels.slack.names import Names
from remoteclaw.channels.slack.settings import SlackAccount
from remoteclaw.channels.slack.socket import Socket
from remoteclaw.errors import AccountRefused, PlatformRefused, RemoteClawError
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

#: A longer text is cut into several messages, in bytes: an edit takes 4,000.
MAX_BYTES = 3800
#: The size of a file that is fetched, in bytes: the largest that RemoteClaw accepts.
MAX_FILE = 20_000_000
#: The pauses before each question whether a file is shown, in seconds.
SHARED_S = (0.1, 0.2, 0.5, 1.0, 1.0)
AGAIN = "*(perhaps a second time)*"
#: `find` and `read` look at this many messages.
PAGE = 100
#: The messages of a page of a thread: Slack's maximum.
THREAD_PAGE = 1000
#: The account's own reactions to this many messages are remembered.
MAX_REACTIONS = 500
ORG_WIDE = (
    "The token is of a whole Enterprise organization: install the app in one workspace, and use "
    "the token of that installation."
)
LACKS = (
    "The app lacks the scopes {scopes}: add them under OAuth & Permissions on its page, and "
    "install it again."
)
WORKING = "is working …"

log = logging.getLogger(__name__)


class SlackAdapter:
    """One app in one workspace."""

    key_window_s = None  # Slack knows no keys; `find` looks for them in the metadata
    has_buttons = True

    def __init__(self, settings: SlackAccount) -> None:
        self._api = WebApi(settings.api_url, settings.read_secret("token"))
        self._app = WebApi(settings.api_url, settings.read_secret("app_token"))
        self._external = settings.external
        self._state: AdapterState
        self._me: Me
        self._reader: Reader
        self._feed: Feed
        self._reactions: dict[tuple[str, str], set[str]] = {}
        """The names of the account's own reactions to a message."""

    async def use_state(self, state: AdapterState) -> None:
        """Keep the new ids of channels in the account's state: RemoteClaw knows the first ones."""
        self._state = state
        self._api.moved = json.loads(await state.read("moved") or "{}")

    async def connect(self) -> Identity:
        """Check the bot token and its scopes."""
        who = await self._api.call("auth.test")
        if who.get("is_enterprise_install"):
            raise AccountRefused(ORG_WIDE)
        ids = (
            str(who.get(name) or "") for name in ("user_id", "bot_id", "team_id", "enterprise_id")
        )
        self._me = Me(*ids)
        self._reader = Reader(self._me, Names(self._api), external=self._external)
        self._feed = Feed(self._api, Socket(self._app), self._reader)
        await self._feed.connect()
        missing = sorted(BOT_SCOPES - self._api.scopes) if self._api.scopes else []
        problem = LACKS.format(scopes=", ".join(missing)) if missing else ""
        return Identity(f"@{who['user']} in {who['team']}", problem)

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Do nothing: the app's manifest has one command for all."""

    async def stand_by(self) -> None:
        """Close the connection: Slack sends each event to one of those that an app has."""
        await self._feed.close()

    async def aclose(self) -> None:
        """Close all connections."""
        if hasattr(self, "_feed"):
            await self._feed.close()
        await self._api.aclose()
        await self._app.aclose()

    # -- what people do ------------------------------------------------------------------------

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for what people do. A source is a channel or a thread, its cursor a message's id."""
        result = await self._feed.poll(cursors)
        if moved := {each.chat: each.moved_to for each in result.incoming if each.moved_to}:
            self._api.moved |= moved
            await self._state.write("moved", json.dumps(self._api.moved).encode())
        return result

    async def fetch(self, file: IncomingFile) -> bytes:
        """Return the content of a file that a person has sent."""
        about = (await self._api.call("files.info", file=file.id))["file"]
        url = about.get("url_private_download") or about.get("url_private")
        if not url:
            raise PlatformRefused("Slack doesn't give the file to apps.")
        is_html = "html" in str(about.get("mimetype"))
        return await self._api.download(str(url), max_bytes=MAX_FILE, is_html=is_html)

    async def context(self, place: Place, before: str, limit: int) -> Sequence[ContextMessage]:
        """Return the messages of a thread before a message."""
        found = await self._messages(place, latest=before, limit=PAGE)
        earlier = [each for each in found if float(each["ts"]) < float(before)]
        return [
            ContextMessage(
                str(each.get("user") or each.get("bot_id") or ""),
                await text.read(str(each.get("text") or ""), self._reader.names.of),
                await self._reader.names.of(each["user"]) if "user" in each else None,
            )
            for each in earlier[-limit:]
        ]

    async def tell_pressed(self, incoming: Incoming, text: str, *, is_refused: bool) -> None:
        """Tell the person why a press has no effect; else the card shows its result."""
        if is_refused:
            about = {"channel": incoming.chat, "thread_ts": incoming.thread, "text": text}
            await self._api.call("chat.postEphemeral", user=incoming.sender, **about)

    # -- what agents write ---------------------------------------------------------------------

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the messages of a reply: its text, then long code as files, then its files."""
        shown, made = code_files(reply.text, reply.code_file_lines)
        cut = Chunker(MAX_BYTES - len(AGAIN) - 2, "bytes")
        silent = text.quiet(shown, stays=reply.asked_by)
        if silent and reply.is_error:
            silent = f"⚠️ {silent}"
        if silent and reply.origin and reply.index == 0 and not reply.is_aside:
            silent = f"*({reply.origin})*\n\n{silent}"
        texts = [*cut.feed(silent), *cut.finish()]
        contents: list[dict[str, Any]] = [{"content": each} for each in texts]
        contents += [{"content": file.content, "name": file.name} for file in made]
        contents += [{"attachment": file} for file in reply.attachments]
        return [Part(index, **content) for index, content in enumerate(contents)]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Post one part of a reply."""
        if part.file_name:
            return await self._send_file(reply, part, content or b"")
        markdown = f"{AGAIN}\n\n{part.content}" if is_again else part.content
        where = Place(reply.channel_id, reply.thread_id)
        message = message_of(markdown, reply.card if part.index == 0 else None)
        if reply.to_person:
            about = {"channel": where.chat, "thread_ts": where.thread, "user": reply.to_person}
            await self._api.call("chat.postEphemeral", **about, **message)
            return Sent()
        return Sent(await self._post(where, **message, metadata=_marked(reply, part)))

    async def _post(self, place: Place, **message: Any) -> str:
        """Post a message, without previews of its links; return its id."""
        about = {"channel": place.chat, "thread_ts": place.thread, **message}
        about |= {"unfurl_links": False, "unfurl_media": False}
        return str((await self._api.call("chat.postMessage", **about))["ts"])

    async def _send_file(self, reply: Reply, part: Part, content: bytes) -> Sent:
        """Upload a file, then share it. Only the last call shows it."""
        name = part.file_name
        about = {"filename": name, "length": len(content)}
        room = await self._api.call("files.getUploadURLExternal", **about)
        await self._api.upload(str(room["upload_url"]), content)
        shared = {"channel_id": reply.channel_id, "thread_ts": reply.thread_id}
        files = [{"id": room["file_id"], "title": name}]
        await self._api.call("files.completeUploadExternal", files=files, **shared)
        return Sent(await self._shared(str(room["file_id"]), reply.channel_id))

    async def _shared(self, file: str, chat: str) -> str | None:
        """Wait until a file is shown, so that what follows comes after it; return its message."""
        for pause in SHARED_S:
            await asyncio.sleep(pause)
            try:
                about = (await self._api.call("files.info", file=file))["file"]
            except RemoteClawError:  # it is there all the same
                return None
            for chats in about.get("shares", {}).values():
                if found := chats.get(self._api.moved.get(chat, chat)):
                    return str(found[0]["ts"])
        return None

    async def find(
        self, reply: Reply, part: Part, since_ms: int, *, known: Collection[str]
    ) -> Sent | None:
        """Look for the mark of a part in the metadata of messages, or for a file of its name."""
        where = Place(reply.channel_id, reply.thread_id)
        since = f"{since_ms / 1000 - 60:.6f}"
        mark = _marked(reply, part)
        found = await self._messages(where, oldest=since, limit=PAGE, include_all_metadata=True)
        for each in found:
            is_own = self._me.user == each.get("user") or self._me.bot == each.get("bot_id")
            is_it = each.get("metadata") == mark
            if part.file_name:
                files = each.get("files") or ()
                is_new = ms_of(each["ts"]) >= since_ms
                is_it = is_new and part.file_name in [file.get("title") for file in files]
            if is_own and is_it and each["ts"] not in known:
                return Sent(str(each["ts"]))
        return None

    async def _messages(self, place: Place, **which: Any) -> list[dict[str, Any]]:
        """Return the newest messages of a channel, or those of a thread, oldest first.

        What people of another company write is left out.
        """
        method, is_group = "conversations.history", not place.chat.startswith("D")
        if place.thread:  # its newest messages are on its last page
            which |= {"ts": place.thread, "limit": THREAD_PAGE}
            method = "conversations.replies"
        found: dict[str, dict[str, Any]] = {}
        page: dict[str, Any] = {}
        while not page or (place.thread and next_page(page)):
            cursor = next_page(page) or None
            page = await self._api.call(method, channel=place.chat, cursor=cursor, **which)
            found |= {str(each["ts"]): each for each in page["messages"]}
        messages = sorted(found.values(), key=lambda each: float(each["ts"]))
        if not is_group:
            return messages
        return [each for each in messages if not await self._reader.is_external(each)]

    async def preview(self, place: Place, live: Live, *, message_id: str | None) -> str:
        """Show the state of a turn in a message."""
        status = " · ".join(filter(None, (live.activity, live.plan)))[:200]
        ends = text.quiet(f"_{status}_") if status else ""
        shown = text.quiet(live.text).encode(errors="replace")[-2800:].decode(errors="ignore")
        markdown = "\n\n".join(filter(None, (shown, ends))) or "…"
        if message_id is not None:
            await self._edit(place.chat, message_id, message_of(markdown))
            return message_id
        return await self._post(place, **message_of(markdown))

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Edit a preview, or the card of a request, into a part of the reply."""
        message = {**message_of(part.content, reply.card), "metadata": _marked(reply, part)}
        await self._edit(reply.channel_id, message_id, message)
        return Sent(message_id)

    async def _edit(self, chat: str, message_id: str, message: Mapping[str, Any]) -> None:
        await self._api.call("chat.update", channel=chat, ts=message_id, **message)

    async def remove(self, place: Place, message_id: str) -> None:
        """Delete a preview. A preview that is gone counts as deleted."""
        await self._unless("message_not_found", "chat.delete", channel=place.chat, ts=message_id)

    async def typing(self, place: Place) -> None:
        """Show a status line in a thread, if the app may."""
        if place.thread:
            about = {"channel_id": place.chat, "thread_ts": place.thread, "status": WORKING}
            await self._api.call("assistant.threads.setStatus", **about)

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React to a message, delete or pin it, or read a channel or thread."""
        chat, args = operation.channel_id, operation.args
        match operation.name:
            case "react":
                await self._react(chat, args["messageId"], args["emoji"])
            case "delete":
                await self._api.call("chat.delete", channel=chat, ts=args["messageId"])
            case "pin":
                about = {"channel": chat, "timestamp": args["messageId"]}
                await self._unless("already_pinned", "pins.add", **about)
            case "read":
                place = Place(chat, operation.thread_id)
                found = await self._messages(place, limit=args["limit"])
                return {"messages": [await self._shown(each) for each in found[-args["limit"] :]]}
        return {}

    async def _shown(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": message["ts"],
            "from": str(message.get("user") or message.get("bot_id") or ""),
            "text": await text.read(str(message.get("text") or ""), self._reader.names.of),
            "at": ms_of(message["ts"]),
        }

    async def _react(self, chat: str, message: str, emoji: str) -> None:
        """Make an emoji the account's only reaction to a message; without one, remove it."""
        own = self._reactions.pop((chat, message), None)
        if own is None:
            own = await self._own_reactions(chat, message)
        wanted = {name_of(emoji)} if emoji else set[str]()
        about = {"channel": chat, "timestamp": message}
        for name in wanted - own:
            await self._unless("already_reacted", "reactions.add", name=name, **about)
        for name in own - wanted:
            await self._unless("no_reaction", "reactions.remove", name=name, **about)
        self._reactions[chat, message] = wanted
        while len(self._reactions) > MAX_REACTIONS:
            del self._reactions[next(iter(self._reactions))]

    async def _own_reactions(self, chat: str, message: str) -> set[str]:
        about = {"channel": chat, "timestamp": message, "full": True}
        found = (await self._api.call("reactions.get", **about)).get("message", {})
        return {
            str(each["name"])
            for each in found.get("reactions") or ()
            if self._me.user in each.get("users", ())
        }

    async def _unless(self, error: str, method: str, **arguments: Any) -> None:
        """Call a method; an error that says that it is done counts as such."""
        try:
            await self._api.call(method, **arguments)
        except SlackRefused as refusal:
            if refusal.error != error:
                raise


def _marked(reply: Reply, part: Part) -> dict[str, Any]:
    """Return the metadata by which a part is found."""
    key = hashlib.sha256(f"{reply.key}:{part.index}".encode()).hexdigest()[:32]
    return {"event_type": "remoteclaw", "event_payload": {"key": key}}
