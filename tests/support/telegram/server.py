"""The server: bots with their chats in memory, the Bot API in front, and a door for tests."""

import asyncio
import base64
import itertools
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiogram import types
from aiogram.types import BufferedInputFile
from aiohttp import web

from tests.support.telegram.judge import FILE_BYTES, Refusal, formatted, given, judged, units

#: What a text, and the words under a file, may have, in units of UTF-16.
MAX_TEXT, MAX_CAPTION = 4096, 1024
#: What who has pressed a button is told at most, in characters.
MAX_ALERT = 200
#: The largest file that bots may fetch, and the largest picture that they may send, in bytes.
FETCHED_BYTES, PHOTO_BYTES = 20 * 2**20, 10_000_000
#: What is only told of if it was asked for.
_ON_DEMAND = frozenset(("chat_member", "message_reaction", "message_reaction_count"))
_EMOJI = frozenset("👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🎉 🤩 🙏 👌 💯 👀 🤝 ✍ 🫡 💔 😢 👨‍💻".split())
_EFFECTS = frozenset(("5104841245755180586", "5107584321108051014", "5046509860389126442"))
#: What Telegram limits: messages and edits in a chat and in a group, and all calls of a bot that
#: name a chat; each how many in how many seconds. It says "one message per second" in a chat and
#: allows short bursts, of unknown length.
_MESSAGES = frozenset(("sendMessage", "sendPhoto", "sendDocument", "editMessageText"))
_PER_CHAT, _PER_GROUP, _PER_BOT = (20, 20), (20, 60), (30, 1)
_CONFLICT = (
    "Conflict: terminated by other getUpdates request; "
    "make sure that only one bot instance is running"
)
_WEBHOOK = (
    "Conflict: can't use getUpdates method while webhook is active; "
    "use deleteWebhook to delete the webhook first"
)


@dataclass
class Chat:
    """A chat with its messages."""

    about: dict[str, Any]
    """The chat, as messages have it."""
    messages: dict[int, dict[str, Any]] = field(default_factory=dict)
    marks: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Of messages, by their ids: `reaction` and `is_pinned`."""
    topics: set[int] = field(default_factory=set)
    reactions: dict[tuple[int, int], list[dict[str, str]]] = field(default_factory=dict)
    """Those of people, by message and person."""
    is_admin: bool = False
    """Whether the bot is an administrator there."""
    closed: str = ""
    """Why the bot may not write there, in Telegram's words."""
    moved_to: int | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """Of its messages, if it is a supergroup: all others are numbered together."""


@dataclass
class Fault:
    """What goes wrong at the next calls of a method."""

    method: str
    kind: str
    chat: int | None = None
    times: int = 1
    code: int = 500
    description: str = "Internal Server Error"
    retry_after: int = 1
    released: asyncio.Event = field(default_factory=asyncio.Event)
    holds: int = 0
    """How many calls wait for the test."""

    async def hold(self) -> None:
        """Wait until the test lets go on."""
        self.holds += 1
        try:
            await self.released.wait()
        finally:
            self.holds -= 1


class Bot:
    """A bot, and the world as it sees it."""

    def __init__(self, number: int, token: str) -> None:
        self.token = token
        self.me = {
            "id": number,
            "is_bot": True,
            "first_name": "Robo",
            "username": f"robo{number}bot",
        }
        self.chats: dict[int, Chat] = {}
        self.updates: list[dict[str, Any]] = []
        self.allowed: set[str] | None = None
        self.calls: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self.faults: list[Fault] = []
        self.files: dict[str, tuple[bytes, int]] = {}
        self.commands: list[dict[str, str]] = []
        self.presses: dict[str, list[str]] = {}
        """What those were told who have pressed a button, by the query's id."""
        self.webhook = ""
        self.is_revoked = False
        self.limit_scale = 0.0
        """By how much the seconds of the limits are multiplied; 0 for no limits."""
        self._counted: dict[str, list[float]] = {}
        """When calls came, by what the limits count together."""
        self.poll: object = None
        self.changed = asyncio.Condition()
        self._numbers = itertools.count(1)
        self._updates = itertools.count(700_000)

    def chat(self, number: Any) -> Chat:
        """Return a chat that the bot may write to; raises `Refusal`."""
        chat = self.chats.get(number)
        if chat is None:
            raise Refusal(400, "Bad Request: chat not found")
        if chat.moved_to is not None:
            words = "Bad Request: group chat was upgraded to a supergroup chat"
            raise Refusal(400, words, migrate_to_chat_id=chat.moved_to)
        if chat.closed:
            raise Refusal(403, f"Forbidden: {chat.closed}")
        return chat

    def limit(self, method: str, chat: str | None) -> None:
        """Count a call; raises `Refusal` if there were too many."""
        if not self.limit_scale or chat is None:
            return
        limits = {"bot": _PER_BOT}
        if method in _MESSAGES:
            limits[f"chat {chat}"] = _PER_CHAT
            if chat.startswith("-"):
                limits[f"group {chat}"] = _PER_GROUP
        now = time.monotonic()
        for name, (most, seconds) in limits.items():
            since = now - seconds * self.limit_scale
            times = self._counted[name] = [at for at in self._counted.get(name, ()) if at > since]
            times.append(now)
            if len(times) > most:
                left = max(1, round(times[0] - since))
                words = f"Too Many Requests: retry after {left}"
                raise Refusal(429, words, retry_after=left)

    def add(self, chat: Chat, sender: dict[str, Any], **content: Any) -> dict[str, Any]:
        """Put a message in a chat."""
        message = {
            "message_id": next(
                chat.numbers if chat.about["type"] == "supergroup" else self._numbers
            ),
            "date": int(time.time()),
            "chat": chat.about,
            "from": sender,
            **{key: value for key, value in content.items() if value not in (None, [], "")},
        }
        chat.messages[message["message_id"]] = given(types.Message, message)
        return message

    def keep(self, content: bytes, size: int | None = None) -> dict[str, Any]:
        """Keep a file; return what a message says of it."""
        name = f"file{len(self.files)}-{self.me['id']}"
        self.files[name] = (content, len(content) if size is None else size)
        return {"file_id": name, "file_unique_id": name[::-1], "file_size": self.files[name][1]}

    async def count(self, method: str) -> None:
        """Note that a method was done."""
        self.counts[method] += 1
        async with self.changed:
            self.changed.notify_all()

    async def tell(self, kind: str, about: dict[str, Any]) -> None:
        """Put an update in the queue, if the bot wants its kind."""
        wanted = kind not in _ON_DEMAND if self.allowed is None else kind in self.allowed
        if wanted:
            await self.tell_raw({kind: about})

    async def tell_raw(self, update: dict[str, Any]) -> None:
        """Put an update in the queue as it is."""
        async with self.changed:
            self.updates.append({"update_id": next(self._updates), **update})
            self.changed.notify_all()


class TelegramServer:
    """All bots."""

    def __init__(self) -> None:
        self._bots: dict[str, Bot] = {}
        self._numbers = itertools.count(8_000_001)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=FILE_BYTES + 2**20)
        app.router.add_post("/test/{verb}", self._test)
        app.router.add_route("*", "/bot{token}/{method}", self._call)
        app.router.add_get("/file/bot{token}/{path:.+}", self._file)
        return app

    # The Bot API.

    async def _call(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["method"]
        try:
            bot = self._bot(request.match_info["token"])
        except Refusal as refusal:
            return _refused(refusal)
        sent: dict[str, Any] = {}
        try:
            sent = {key: _plain(value) for key, value in (await request.post()).items()}
            fault = _fault(bot, name, sent)
            if fault and (answer := await _before(fault, request)):
                bot.calls.append({"method": name, "refused": fault.kind, **_shown(sent)})
                return answer
            bot.limit(name, sent.get("chat_id"))
            method, call = judged(name, sent)
            attached = {f"attach://{key}": _file(value) for key, value in sent.items()}
            result = await _METHODS[method](bot, call, attached)
            if method != "getUpdates":
                bot.calls.append({"method": method, **_shown(sent)})
                await bot.count(method)
            if fault:
                await _behind(fault, request)
        except web.HTTPRequestEntityTooLarge:
            return _refused(Refusal(413, "Request Entity Too Large"))
        except Refusal as refusal:
            bot.calls.append({"method": name, "refused": refusal.description, **_shown(sent)})
            return _refused(refusal)
        except KeyError as error:
            return _refused(Refusal(501, f"Not Implemented by this double: {error}"))
        return web.json_response({"ok": True, "result": result})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        try:
            bot = self._bot(request.match_info["token"])
            content, _ = bot.files[request.match_info["path"].rpartition("/")[2]]
        except (Refusal, KeyError):
            return _refused(Refusal(404, "Not Found"))
        if (fault := _fault(bot, "file", {})) and (answer := await _before(fault, request)):
            return answer
        return web.Response(body=content)

    def _bot(self, token: str) -> Bot:
        if not re.fullmatch(r"\d+:[\w-]{30,}", token):
            raise Refusal(404, "Not Found")
        bot = self._bots.get(token)
        if bot is None or bot.is_revoked:
            raise Refusal(401, "Unauthorized")
        return bot

    # The door for tests.

    async def _test(self, request: web.Request) -> web.StreamResponse:
        """Do what a test asks: `{"token": …}` and the arguments of one of the methods below."""
        asked = json.loads(await request.read())
        verb, token = request.match_info["verb"], asked.pop("token", "")
        if verb == "new":
            number = next(self._numbers)
            token = f"{number}:{'AA' * 16}_-"
            self._bots[token] = Bot(number, token)
            return web.json_response({"token": token, "me": self._bots[token].me})
        answer = await getattr(self, f"test_{verb}")(self._bots[token], **asked)
        return web.json_response(answer)

    async def test_chat(self, bot: Bot, chat: int, **about: Any) -> list[dict[str, Any]]:
        """Make or change a chat; return its messages as people see it now."""
        there = bot.chats.get(chat)
        if there is None:
            of_person = {"type": "private", "first_name": f"Person {chat}"}
            group = {"type": "supergroup", "title": f"Group {chat}"}
            there = bot.chats[chat] = Chat({"id": chat, **(of_person if chat > 0 else group)})
        there.topics |= set(about.pop("topics", ()))
        there.closed = about.pop("closed", there.closed)
        there.is_admin = about.pop("is_admin", there.is_admin)
        there.about |= about
        return [one | there.marks.get(number, {}) for number, one in there.messages.items()]

    async def test_say(
        self,
        bot: Bot,
        text: str = "",
        *,
        chat: int,
        by: int | None = None,
        name: str = "Ann",
        files: tuple[dict[str, Any], ...] = (),
        thread: int | None = None,
        reply_to: int | None = None,
        edits: int | None = None,
        is_bot: bool = False,
        times: int = 1,
        **more: Any,
    ) -> int:
        """Have a person write, or edit what they wrote; return the message's id.

        It is delivered so many `times`.
        """
        await self.test_chat(bot, chat)
        there = bot.chats[chat]
        sender = {"id": by or chat, "is_bot": is_bot, "first_name": name}
        content: dict[str, Any] = {"caption" if files else "text": text, **more}
        marks = "caption_entities" if files else "entities"
        content[marks] = [*_entities(text), *more.pop("entities", ())]
        for file in files:
            content |= _sent_file(bot, file)
        if thread is not None:
            content |= {"message_thread_id": thread, "is_topic_message": thread in there.topics}
        if reply_to is not None:
            answered = there.messages[reply_to]
            content["reply_to_message"] = {
                key: value for key, value in answered.items() if key != "reply_to_message"
            }
        if edits is not None:
            old = there.messages[edits]
            kind = "caption" if "caption" in old else "text"
            changed = old | more | {"edit_date": int(time.time())}
            if text:
                changed |= {kind: text, marks: content[marks]}
            there.messages[edits] = given(types.Message, changed)
            await bot.tell("edited_message", changed)
            return edits
        message = bot.add(there, sender, **content)
        for _ in range(times):
            await bot.tell("message", message)
        return int(message["message_id"])

    async def test_react(
        self,
        bot: Bot,
        *,
        chat: int,
        message: int,
        emoji: str,
        by: int | None = None,
        name: str = "Ann",
    ) -> None:
        """Have a person react; in groups, bots are told of it as administrators alone."""
        there, person = bot.chats[chat], by or chat
        old = there.reactions.get((message, person), [])
        new = [{"type": "emoji", "emoji": emoji}] if emoji else []
        there.reactions[message, person] = new
        change = {
            "chat": there.about,
            "message_id": message,
            "user": {"id": person, "is_bot": False, "first_name": name},
            "date": int(time.time()),
            "old_reaction": old,
            "new_reaction": new,
        }
        told = given(types.MessageReactionUpdated, change)
        # Telegram also reports a person's message as edited at its first reaction.
        written = there.messages.get(message)
        if not old and written and not written["from"]["is_bot"]:
            await bot.tell("edited_message", written)
        if chat > 0 or there.is_admin:
            await bot.tell("message_reaction", told)

    async def test_press(
        self,
        bot: Bot,
        *,
        chat: int,
        message: int,
        label: str = "",
        by: int | None = None,
        name: str = "Ann",
        data: str | None = None,
    ) -> str:
        """Have a person press a button below a message, or send what no button has."""
        shown = bot.chats[chat].messages[message]
        keyboard = shown.get("reply_markup", {}).get("inline_keyboard", [])
        found = {button["text"]: button["callback_data"] for row in keyboard for button in row}
        query = str(next(self._numbers))
        bot.presses[query] = []
        pressed = {
            "id": query,
            "from": {"id": by or chat, "is_bot": False, "first_name": name},
            "chat_instance": str(chat),
            "message": shown,
            "data": found[label] if data is None else data,
        }
        await bot.tell("callback_query", given(types.CallbackQuery, pressed))
        return query

    async def test_tell(self, bot: Bot, update: dict[str, Any]) -> None:
        """Send an update as it is, of whatever kind."""
        await bot.tell_raw(update)

    async def test_move(self, bot: Bot, *, chat: int, to: int, is_told: bool = True) -> None:
        """Make a supergroup of a group; the updates about it may be lost."""
        await self.test_chat(bot, to, **{**bot.chats[chat].about, "id": to, "type": "supergroup"})
        group = bot.chats[chat]
        group.moved_to = to
        sender = {"id": 77, "is_bot": False, "first_name": "Admin"}
        told = [
            bot.add(group, sender, migrate_to_chat_id=to),
            bot.add(bot.chats[to], sender, migrate_from_chat_id=chat),
        ]
        for one in told if is_told else ():
            await bot.tell("message", one)

    async def test_until(self, bot: Bot, *, method: str, count: int) -> int:
        """Wait until a method was done so often, or a poll begun; return how often it was."""
        async with bot.changed:
            await bot.changed.wait_for(lambda: bot.counts[method] >= count)
        return bot.counts[method]

    async def test_set(self, bot: Bot, **state: Any) -> None:
        """Set a webhook, revoke the token, or set limits."""
        for name, value in state.items():
            assert hasattr(bot, name)
            setattr(bot, name, value)

    async def test_fault(self, bot: Bot, **fault: Any) -> None:
        """Have the next calls of a method go wrong: see `_before` and `_behind`."""
        bot.faults.append(Fault(**fault))

    async def test_release(self, bot: Bot) -> None:
        """Let go on what is held, and end all faults."""
        for fault in bot.faults:
            fault.released.set()
            fault.times = 0

    async def test_state(self, bot: Bot) -> dict[str, Any]:
        """Return what was asked of the API, what waits for the bot, and its commands."""
        held = sum(fault.holds for fault in bot.faults)
        names = {"calls", "updates", "commands", "presses"}
        return {name: getattr(bot, name) for name in names} | {
            "is_polled": bot.poll is not None,
            "held": held,
        }


def _plain(value: Any) -> Any:
    if isinstance(value, web.FileField):
        return value.file.read(), value.filename
    return value


def _shown(sent: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a call, as tests see them."""
    return {
        key: value[1] if isinstance(value, tuple) else value
        for key, value in sent.items()
        if key != "method"
    }


def _refused(refusal: Refusal) -> web.Response:
    told = {"ok": False, "error_code": refusal.code, "description": refusal.description}
    told |= {"parameters": refusal.parameters} if refusal.parameters else {}
    return web.json_response(told, status=refusal.code)


def _fault(bot: Bot, method: str, sent: dict[str, Any]) -> Fault | None:
    for fault in bot.faults:
        is_here = fault.chat is None or str(fault.chat) == sent.get("chat_id")
        if fault.times and fault.method in (method, "*") and is_here:
            fault.times -= 1
            return fault
    return None


async def _before(fault: Fault, request: web.Request) -> web.Response | None:
    """Do what goes wrong before a call is done."""
    match fault.kind:
        case "held":  # nothing happens before the test says so
            await fault.hold()
        case "busy":
            words = f"Too Many Requests: retry after {fault.retry_after}"
            return _refused(Refusal(429, words, retry_after=fault.retry_after))
        case "refused":
            return _refused(Refusal(fault.code, fault.description))
        case "page":  # as what stands before Telegram says it
            return web.Response(status=fault.code, text="<html>away</html>")
        case "cut":
            _cut(request)
            return web.Response()
    return None


async def _behind(fault: Fault, request: web.Request) -> None:
    """Do what goes wrong after a call is done."""
    match fault.kind:
        case "mute":  # no answer before the test says so
            await fault.hold()
        case "lost":
            _cut(request)


def _cut(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


def _entities(text: str) -> list[dict[str, Any]]:
    """Return what Telegram itself finds in what people write."""
    kinds = ((r"(?<!\S)/\w+(?:@\w+)?", "bot_command"), (r"(?<!\S)@\w{5,}", "mention"))
    return [
        {"type": kind, "offset": units(text[: found.start()]), "length": units(found[0])}
        for pattern, kind in kinds
        for found in re.finditer(pattern, text)
    ]


def _sent_file(bot: Bot, file: dict[str, Any]) -> dict[str, Any]:
    """Return a file that a person sends, as a message has it."""
    kind, mime = file.get("kind", "document"), file.get("mime_type", "text/plain")
    kept = bot.keep(base64.b64decode(file.get("content", "")), file.get("size"))
    named = {"file_name": file["name"]} if "name" in file else {}
    match kind:
        case "photo":
            small = bot.keep(b"small")
            return {
                "photo": [small | {"width": 9, "height": 9}, kept | {"width": 90, "height": 90}]
            }
        case "voice":
            return {"voice": kept | {"duration": 1, "mime_type": "audio/ogg"}}
        case "video":
            return {"video": kept | {"duration": 1, "width": 9, "height": 9, "mime_type": mime}}
    return {kind: kept | named | {"mime_type": mime}}


def _file(value: Any) -> bytes:
    return value[0] if isinstance(value, tuple) else b""


# The methods that it has, as the Bot API describes them.

_METHODS: dict[str, Callable[[Bot, Any, dict[str, bytes]], Awaitable[Any]]] = {}


def _method(function: Any) -> Any:
    first, *others = function.__name__.split("_")
    _METHODS[first + "".join(word.title() for word in others)] = function
    return function


@_method
async def get_me(bot: Bot, call: Any, attached: Any) -> Any:
    rights = ("can_join_groups", "can_read_all_group_messages", "supports_inline_queries")
    return given(types.User, bot.me | dict.fromkeys(rights, False))


@_method
async def get_webhook_info(bot: Bot, call: Any, attached: Any) -> Any:
    about = {"url": bot.webhook, "has_custom_certificate": False}
    return given(types.WebhookInfo, about | {"pending_update_count": len(bot.updates)})


@_method
async def get_updates(bot: Bot, call: Any, attached: Any) -> Any:
    if bot.webhook:
        raise Refusal(409, _WEBHOOK)
    mine = object()
    until = time.monotonic() + min(call.timeout or 0, 50)
    async with bot.changed:
        bot.poll = mine
        bot.counts["getUpdates"] += 1
        bot.changed.notify_all()
        if call.allowed_updates is not None:
            bot.allowed = set(call.allowed_updates) or None
        if call.offset and call.offset > 0:
            bot.updates = [one for one in bot.updates if one["update_id"] >= call.offset]
        elif call.offset:
            bot.updates = bot.updates[call.offset :]
        try:
            while not bot.updates and (left := until - time.monotonic()) > 0 and bot.poll is mine:
                try:
                    await asyncio.wait_for(bot.changed.wait(), left)
                except TimeoutError:
                    break
            if bot.poll is not mine:
                raise Refusal(409, _CONFLICT)
            return bot.updates[: call.limit or 100]
        finally:
            if bot.poll is mine:
                bot.poll = None


@_method
async def send_message(bot: Bot, call: Any, attached: Any) -> Any:
    text, entities = formatted(call.text, call.entities, most=MAX_TEXT, what="message")
    return _sent(bot, call, text=text, entities=entities, reply_markup=_keyboard(call))


@_method
async def send_photo(bot: Bot, call: Any, attached: Any) -> Any:
    content = _uploaded(call.photo, attached)
    if len(content) > PHOTO_BYTES:
        raise Refusal(400, "Bad Request: file is too big")
    if not content.startswith((b"\x89PNG", b"\xff\xd8", b"RIFF", b"GIF8")):
        raise Refusal(400, "Bad Request: IMAGE_PROCESS_FAILED")
    sizes = [bot.keep(content) | {"width": 90, "height": 90}]
    return _sent(bot, call, photo=sizes, **_captioned(call))


@_method
async def send_document(bot: Bot, call: Any, attached: Any) -> Any:
    content = _uploaded(call.document, attached)
    if not content:
        raise Refusal(400, "Bad Request: file must be non-empty")
    name = getattr(call.document, "filename", "file")
    return _sent(bot, call, document=bot.keep(content) | {"file_name": name}, **_captioned(call))


def _uploaded(file: Any, attached: dict[str, bytes]) -> bytes:
    if isinstance(file, BufferedInputFile):
        return file.data
    if file not in attached:
        raise Refusal(400, "Bad Request: wrong file identifier/HTTP URL specified")
    return attached[file]


def _captioned(call: Any) -> dict[str, Any]:
    entities = call.caption_entities
    text, entities = formatted(
        call.caption or "", entities, most=MAX_CAPTION, what="message caption"
    )
    return {"caption": text, "caption_entities": entities}


def _sent(bot: Bot, call: Any, **content: Any) -> dict[str, Any]:
    """Put what a bot sends in its chat."""
    chat = bot.chat(call.chat_id)
    if call.message_effect_id:
        if chat.about["type"] != "private":
            raise Refusal(400, "Bad Request: can't use message effects in the chat")
        if call.message_effect_id not in _EFFECTS:
            raise Refusal(400, "Bad Request: EFFECT_ID_INVALID")
        content["effect_id"] = call.message_effect_id
    if call.message_thread_id is not None:
        if call.message_thread_id not in chat.topics:
            raise Refusal(400, "Bad Request: message thread not found")
        content |= {"message_thread_id": call.message_thread_id, "is_topic_message": True}
    if answers := call.reply_parameters:
        if answered := chat.messages.get(answers.message_id):
            content["reply_to_message"] = {
                key: value for key, value in answered.items() if key != "reply_to_message"
            }
        elif answers.allow_sending_without_reply is not True:
            raise Refusal(400, "Bad Request: message to be replied not found")
    return bot.add(chat, bot.me, **content)


def _named(bot: Bot, call: Any, words: str) -> dict[str, Any]:
    """Return a message that a call names."""
    message = bot.chat(call.chat_id).messages.get(call.message_id)
    if message is None:
        raise Refusal(400, f"Bad Request: {words}")
    return message


def _mark(bot: Bot, call: Any, otherwise: str, **marks: Any) -> None:
    """Mark a message of a chat, whoever wrote it."""
    _named(bot, call, otherwise)
    bot.chat(call.chat_id).marks.setdefault(call.message_id, {}).update(marks)


@_method
async def edit_message_text(bot: Bot, call: Any, attached: Any) -> Any:
    message = _named(bot, call, "message to edit not found")
    if message["from"]["id"] != bot.me["id"]:
        raise Refusal(400, "Bad Request: message can't be edited")
    text, entities = formatted(call.text, call.entities, most=MAX_TEXT, what="message")
    shown, keyboard = message.get("reply_markup"), _keyboard(call)
    if (message.get("text"), message.get("entities", []), shown) == (text, entities, keyboard):
        words = (
            "Bad Request: message is not modified: specified new message content and reply markup "
            "are exactly the same as a current content and reply markup of the message"
        )
        raise Refusal(400, words)
    message |= {"text": text, "entities": entities, "edit_date": int(time.time())}
    message.pop("reply_markup", None)
    message |= {"reply_markup": keyboard} if keyboard else {}
    return given(types.Message, message)


def _keyboard(call: Any) -> dict[str, Any] | None:
    """Return the buttons of a message."""
    if call.reply_markup is None:
        return None
    for row in call.reply_markup.inline_keyboard:
        for button in row:
            if not 1 <= len((button.callback_data or "").encode()) <= 64:
                raise Refusal(400, "Bad Request: BUTTON_DATA_INVALID")
    return dict(call.reply_markup.model_dump(exclude_none=True))


@_method
async def answer_callback_query(bot: Bot, call: Any, attached: Any) -> Any:
    if call.callback_query_id not in bot.presses:
        words = "query is too old and response timeout expired or query ID is invalid"
        raise Refusal(400, f"Bad Request: {words}")
    if len(call.text or "") > MAX_ALERT:
        raise Refusal(400, "Bad Request: MESSAGE_TOO_LONG")
    bot.presses[call.callback_query_id].append(call.text)
    return True


@_method
async def delete_message(bot: Bot, call: Any, attached: Any) -> Any:
    message = _named(bot, call, "message to delete not found")
    if time.time() - message["date"] > 48 * 3600:
        raise Refusal(400, "Bad Request: message can't be deleted for everyone")
    del bot.chat(call.chat_id).messages[call.message_id]
    return True


@_method
async def pin_chat_message(bot: Bot, call: Any, attached: Any) -> Any:
    _mark(bot, call, "message to pin not found", is_pinned=True)
    return True


@_method
async def set_message_reaction(bot: Bot, call: Any, attached: Any) -> Any:
    emoji = [one.emoji for one in call.reaction or ()]
    if set(emoji) - _EMOJI or len(emoji) > 1:
        raise Refusal(400, "Bad Request: REACTION_INVALID")
    _mark(bot, call, "message to react not found", reaction="".join(emoji))
    return True


@_method
async def send_chat_action(bot: Bot, call: Any, attached: Any) -> Any:
    bot.chat(call.chat_id)
    return True


@_method
async def get_file(bot: Bot, call: Any, attached: Any) -> Any:
    if call.file_id not in bot.files:
        raise Refusal(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
    _, size = bot.files[call.file_id]
    if size > FETCHED_BYTES:
        raise Refusal(400, "Bad Request: file is too big")
    about = {"file_id": call.file_id, "file_unique_id": call.file_id[::-1], "file_size": size}
    return given(types.File, about | {"file_path": f"documents/{call.file_id}"})


@_method
async def set_my_commands(bot: Bot, call: Any, attached: Any) -> Any:
    for command in call.commands:
        if not re.fullmatch(r"[a-z0-9_]{1,32}", command.command):
            raise Refusal(400, "Bad Request: BOT_COMMAND_INVALID")
        if not 1 <= len(command.description) <= 256:
            raise Refusal(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
    bot.commands = [command.model_dump(exclude_none=True) for command in call.commands]
    return True
