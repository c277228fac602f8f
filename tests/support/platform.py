"""A small chat platform with an adapter, which runs in this process or in one of its own.

The platform's state is in a directory, so that all processes share it:

    platform = Platform(directory)
    platform.tell(refuses="There is no such chat.")       # `tell()` makes it work again
    async with platform.served(fleet): …                  # runs an adapter as a task
    process = platform.start_process(redis_url)           # runs one as a process, to kill

    platform.delivered            all sent messages in order, repetitions included
    platform.chat("42")           the messages that people see in a chat now
    platform.say("42", "bo", "hi")    another person writes in the chat
    platform.events               all calls, refused ones included

The account is `test/default` unless a test names another one. Message ids are m1, m4, …, because
every event has a number.

    python -m tests.support.platform URL DIRECTORY PROVIDER ACCOUNT TOKEN CLAIM_MS
"""

import asyncio
import contextlib
import fcntl
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import orjson

from remoteclaw.channels.relay import relay
from remoteclaw.channels.task_progress import ToolDetailOf
from remoteclaw.clock import now_ms
from remoteclaw.errors import (
    AccountRefused,
    PlatformAway,
    PlatformBusy,
    PlatformRefused,
    PlatformUnknown,
    Unsupported,
)
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.replies.reader import CLAIM_MS
from remoteclaw.messages import Attachment, code_files, without_mentions
from remoteclaw.protocols import Live, Operation, Part, Place, Reply, Sent
from tests.support.command import Process, start_program
from tests.support.waiting import eventually

#: How long a press waits to be confirmed, in seconds.
PRESS_S = 3.0
#: The first line of a message that was perhaps sent before.
AGAIN = "(perhaps a second time)\n"
#: The first line of a message that an agent sends to another chat than its turn's.
_ATTRIBUTION = re.compile(r"\A\(From (.+, by \w+):\)\n?")


#: A mention of a person by id, or of `all`.
MENTION = re.compile(r"<@(?P<who>\w+)>")


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The behaviour of the platform, which a test sets with `Platform.tell()`."""

    refuses: str = ""
    """Refuses every call permanently, with this message."""
    breaks: bool = False
    """Fails like a platform that is down."""
    is_held: bool = False
    """Answers no call until the behaviour changes; the calls are among the events."""
    holds: str = ""
    """The chat whose calls are not answered until the behaviour changes."""
    busy_s: dict[str, float] = field(default_factory=dict)
    """Rate limits: by chat, the seconds after which a call is allowed again."""
    answers: bool = True
    """Whether calls are answered; if not, they take effect and the connection is lost."""
    stops: str = ""
    """Holds calls at a step ("send before", "edit after") until the behaviour changes."""
    revoked: str = ""
    """Refuses the account, with this message."""
    lacks: tuple[str, ...] = ()
    """The operations that the platform lacks."""
    effects: tuple[str, ...] = ()
    """The message effects that the platform has."""
    keeps_files: bool = True
    """Whether files can be sent."""
    drops: bool = False
    """Drops what people do instead of pushing it; the history has it."""
    ends_sessions: bool = False
    """Resumes no session."""
    forgets_keys: bool = False
    """Forgets the keys of messages, as if the time were over for which it knows them."""


@dataclass(slots=True)
class Post:
    """A message in a chat."""

    id: str
    by: str
    text: str
    thread: str | None = None
    quotes: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    """The contents of its files, by name."""
    effect: str | None = None
    reaction: str = ""
    is_pinned: bool = False
    at_ms: int = 0
    key: str = ""
    """The key that the adapter gave; empty if another person wrote the message."""
    came_from: str = ""
    """The chat and agent named in the message's first line, which is no part of `text`."""


class Platform:
    """The platform, for a test."""

    def __init__(self, directory: Path, provider: str = "test", account: str = "default") -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._provider = provider
        self._account = account
        self._processes: list[Process] = []
        self._journal = _Journal(directory)
        self.tell()

    def tell(self, **behaviour: Any) -> None:
        """Set the behaviour; everything that is not named works."""
        told = self._directory / "told.json"
        told.with_suffix(".new").write_bytes(orjson.dumps(asdict(Behaviour(**behaviour))))
        told.with_suffix(".new").replace(told)

    @contextlib.asynccontextmanager
    async def served(
        self,
        fleet: Fleet,
        *,
        only_sends: bool = False,
        claim_ms: int = CLAIM_MS,
        shows_work: ToolDetailOf | None = None,
    ) -> AsyncIterator["asyncio.Task[None]"]:
        """Run an adapter, with operations unless it `only_sends`.

        It has its claim when the block begins. The claim of an adapter that was cut off lasts for
        10 s, but does not keep out the next one here.
        """
        adapter = PlatformAdapter(self._directory)
        reader = fleet.replies.reader(
            self._provider, self._account, token="the platform's", claim_ms=claim_ms
        )
        assert await reader.claim()
        shown = _Sender(adapter) if only_sends else adapter
        task = asyncio.create_task(relay(reader, shown, shows_work=shows_work))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait((task,))

    def start_process(
        self,
        redis_url: str,
        *,
        token: str = "the platform's",
        claim_ms: int = CLAIM_MS,
        program: str = __name__,
    ) -> Process:
        """Start an adapter in a process of its own; `is_read()` tells whether it has its claim.

        Adapters with the same `token` take over each other's claims at once. The default is a token
        of its own. `program` is the module that runs, such as `tests.support.looking`.
        """
        whose = [str(self._directory), self._provider, self._account, token, str(claim_ms)]
        argv = [program, redis_url, *whose]
        process = start_program(argv, env=os.environ, log=self._directory / "log")
        self._processes.append(process)
        return process

    def log(self) -> str:
        """Return the log of the processes."""
        return (self._directory / "log").read_text()

    def end(self) -> None:
        """End the processes that were started."""
        for process in self._processes:
            process.kill()
            process.wait()

    async def is_read(self, fleet: Fleet) -> bool:
        """Whether an adapter reads the account's reply stream."""
        return (await fleet.replies.readers()).is_read(self._provider, self._account)

    def say(self, chat: str, by: str, text: str, **more: Any) -> str:
        """Send a message of another person to a chat, and return its id.

        `more` are fields of `Incoming`, and `files` by name.
        """
        return self._add("said", chat=chat, by=by, text=text, **more)

    def press(self, chat: str, message_id: str, verdict: str, *, by: str, **more: Any) -> str:
        """Press the button of a verdict on a card, as a person; return the press's id."""
        (card,) = {each["card"] for each in self.delivered if each["id"] == message_id}
        about = {"chat": chat, "by": by, "card": card, "verdict": verdict}
        return self._add("pressed", **about, **more)

    def is_failed(self, press: str) -> bool:
        """Whether the platform has shown an error, because a press was not confirmed in time."""
        is_confirmed = press in [each["press"] for each in self.did("confirmed")]
        (event,) = [each for each in self.did("pressed") if each["id"] == press]
        return not is_confirmed and now_ms() - event["at_ms"] > PRESS_S * 1000

    def _add(self, event: str, **about: Any) -> str:
        """Add what a person does; the platform may drop it instead of pushing it."""
        told = orjson.loads((self._directory / "told.json").read_bytes())
        return self._journal.add(event, is_dropped=told["drops"], **about)

    def delete(self, chat: str, message_id: str) -> None:
        """Delete a message, as a person does."""
        self._journal.add("delete", chat=chat, messageId=message_id)

    @property
    def events(self) -> list[dict[str, Any]]:
        """All calls, in order."""
        return self._journal.read()

    @property
    def delivered(self) -> list[dict[str, Any]]:
        """Every accepted message, in order, repetitions included."""
        return [event for event in self.events if event["event"] == "delivered"]

    @property
    def texts(self) -> list[str]:
        """The texts of the delivered messages, without the line that names another chat."""
        return [_ATTRIBUTION.sub("", event["text"], count=1) for event in self.delivered]

    def did(self, name: str) -> list[dict[str, Any]]:
        """Every operation called `name` that was done."""
        return [event for event in self.events if event["event"] == name]

    def chat(self, chat: str) -> list[Post]:
        """Return the messages that people see in a chat now."""
        return posts(self.events, chat)


class Recipient:
    """An adapter without a platform: hands each part to `take()`."""

    key_window_s: float | None = None

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the text, and then each file; an empty last message has no parts."""
        contents: list[tuple[str, Attachment | None]] = [(reply.text, None)] if reply.text else []
        contents += [("", file) for file in reply.attachments]
        return [Part(index, text, file) for index, (text, file) in enumerate(contents)]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Hand one part to `take()`."""
        del is_again
        await self.take(reply, part, content)
        return Sent()

    async def take(self, reply: Reply, part: Part, content: bytes | None) -> None:
        """Handle one part; a subclass overrides this."""


class PlatformCalls:
    """The calls of the platform, each of which behaves as the test has told it to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._journal = _Journal(directory)

    async def post(
        self,
        place: Place,
        text: str,
        *,
        key: str,
        quotes: str | None = None,
        files: Mapping[str, bytes] = MappingProxyType({}),
        effect: str | None = None,
        on_done: Callable[[Sent], object] = lambda _sent: None,
        **more: Any,
    ) -> Sent:
        """Post a message, or add a file to the message with the same key if there is no text.

        `on_done` is called once it is posted, even if the answer is lost.
        """
        chat = self._now(place.chat)
        if chat == "nowhere":
            raise PlatformRefused("There is no such chat.")
        what, about = ("file", next(iter(files))) if files else ("send", text)
        behaviour = await self._behaviour(what, about, chat)
        if files and not behaviour.keeps_files:
            raise PlatformRefused("Files can't be sent here.")
        contents = {name: content.decode("latin-1") for name, content in files.items()}
        if files and not text and any(post.key == key for post in self._posts(chat)):
            sent = Sent(self._journal.add("file", chat=chat, files=contents, key=key, **more))
            on_done(sent)
            return await self._answer(what, sent)
        has_effect = effect in behaviour.effects
        message_id = self._journal.add(
            "delivered",
            chat=chat,
            thread=place.thread,
            by="agent",
            text=text,
            quotes=quotes,
            files=contents,
            effect=effect if has_effect else None,
            key=key,
            **more,
        )
        sent = Sent(message_id, has_effect)
        on_done(sent)
        return await self._answer(what, sent)

    async def show(self, place: Place, text: str, message_id: str | None) -> str:
        """Post a preview, or edit it; return its id."""
        chat = self._now(place.chat)
        what = "edit" if message_id else "preview"
        await self._behaviour(what, text, chat)
        where: dict[str, Any] = {"chat": chat, "thread": place.thread, "by": "agent", "text": text}
        if message_id is None:
            message_id = self._journal.add("preview", **where)
        else:
            self._there(chat, message_id)
            self._journal.add("edited", messageId=message_id, **where)
        await self._stop(f"{what} after", message_id)
        return message_id

    async def put(self, place: Place, text: str, *, key: str, message_id: str) -> Sent:
        """Put a message in the place of a preview."""
        chat = self._now(place.chat)
        await self._behaviour("replace", text, chat)
        self._there(chat, message_id)
        where: dict[str, Any] = {"chat": chat, "thread": place.thread, "by": "agent", "text": text}
        self._journal.add("delivered", id=message_id, key=key, is_replaced=True, **where)
        return await self._answer("replace", Sent(message_id))

    async def take_back(self, chat: str, message_id: str) -> None:
        """Delete a preview, unless it is gone."""
        chat = self._now(chat)
        await self._behaviour("remove", message_id, chat)
        with contextlib.suppress(PlatformRefused):
            self._there(chat, message_id)
            self._journal.add("delete", chat=chat, messageId=message_id)
        await self._stop("remove after", message_id)

    async def type(self, place: Place) -> None:
        """Show that the agent types."""
        chat = self._now(place.chat)
        await self._behaviour("typing", "", chat)
        self._journal.add("typing", chat=chat, thread=place.thread)
        await self._stop("typing after")

    async def do(self, name: str, chat: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """React, delete, pin or read."""
        chat = self._now(chat)
        behaviour = await self._behaviour(name, chat)
        if name in behaviour.lacks:
            raise Unsupported(f"This platform has no such thing as {name}.")
        shown = self._posts(chat)
        if name == "read":
            self._journal.add("read", chat=chat)
            return {
                "messages": [
                    {"id": post.id, "from": post.by, "text": post.text, "at": int(post.id[1:])}
                    for post in shown[-args["limit"] :]
                ]
            }
        if args["messageId"] not in {post.id for post in shown}:
            raise PlatformRefused("There is no such message.")
        self._journal.add(name, chat=chat, **args)
        await self._stop(f"{name} after")
        return {}

    async def look(
        self, reply: Reply, part: Part, since_ms: int, known: Collection[str]
    ) -> Sent | None:
        """Return the message that has a part of a reply; the journal has the call."""
        chat, name = self._now(reply.channel_id), part.file_name
        text = "" if name else part.content
        await self._behaviour("find", text, chat)
        self._journal.add("find", about=text, since_ms=since_ms, known=sorted(known))
        found = [
            post.id
            for post in self._posts(chat)
            if (post.by, post.thread) == ("agent", reply.thread_id)
            and (name in post.files if name else post.text.removeprefix(AGAIN) == text)
            and post.at_ms >= since_ms
            and post.id not in known
        ]
        await self._stop("find after", text)
        return Sent(found[-1]) if found else None

    def _now(self, chat: str) -> str:
        """Return the current id of a chat, which may have changed."""
        for event in self._journal.read():
            if event.get("moved_to") and event["chat"] == chat:
                chat = str(event["moved_to"])
        return chat

    def _posts(self, chat: str) -> list[Post]:
        return posts(self._journal.read(), chat)

    def _there(self, chat: str, message_id: str) -> None:
        if message_id not in {post.id for post in self._posts(chat)}:
            raise PlatformRefused("There is no such message.")

    async def _stop(self, where: str, about: str | None = "") -> None:
        """Hold the call at a step if the test has set that."""
        if self._told().stops == where:
            self._journal.add("held", what=where, about=about)
            await eventually(lambda: self._told().stops != where)

    async def _answer(self, what: str, sent: Sent) -> Sent:
        """Return the answer of a call, unless the behaviour says that it is lost."""
        await self._stop(f"{what} after", sent.message_id)
        if not self._told().answers:
            raise PlatformUnknown("The connection was lost.")
        return sent

    async def _behaviour(self, what: str, about: str, chat: str = "") -> Behaviour:
        """Record a call and wait while it is held; return the behaviour, or raise its error."""
        await self._stop(f"{what} before", about)
        behaviour = self._told()
        if behaviour.is_held or (chat and behaviour.holds == chat):
            self._journal.add("held", what=what, about=about)
            await eventually(lambda: not (self._told().is_held or self._told().holds))
            behaviour = self._told()
        if behaviour.revoked:
            self._journal.add("refused", what=what, about=about)
            raise AccountRefused(behaviour.revoked)
        if chat in behaviour.busy_s:
            self._journal.add("busy", what=what, about=about)
            raise PlatformBusy("Too many messages.", after_s=behaviour.busy_s[chat])
        if behaviour.refuses:
            self._journal.add("refused", what=what, about=about)
            raise PlatformRefused(behaviour.refuses)
        if behaviour.breaks:
            self._journal.add("broke", what=what, about=about)
            raise PlatformAway("The platform is away.")
        return behaviour

    def _told(self) -> Behaviour:
        told = orjson.loads((self._directory / "told.json").read_bytes())
        return Behaviour(**told)


class PlatformAdapter(PlatformCalls, Recipient):
    """The adapter of one account on the platform."""

    has_buttons: Literal["reactions"] | bool = False

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the parts, which mention at most the person who has asked."""
        shown, made = code_files(reply.text, reply.code_file_lines)
        text = without_mentions(shown, MENTION, stays=reply.asked_by)
        contents: list[dict[str, Any]] = [{"content": text}] if text else []
        contents += [{"content": file.content, "name": file.name} for file in made]
        contents += [{"attachment": file} for file in reply.attachments]
        return [Part(index, **content) for index, content in enumerate(contents)]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send one part; files become part of the message with the text."""
        again = AGAIN if is_again else ""
        sent = await self.post(
            Place(reply.channel_id, reply.thread_id),
            "" if part.file_name else again + part.content,
            key=reply.key,
            quotes=reply.reply_to_id,
            files={part.file_name: content or b""} if part.file_name else {},
            effect=reply.effect,
            is_called=reply.call is not None,
            is_again=is_again,
            to_person=reply.to_person,
        )
        if reply.card and self.has_buttons == "reactions":
            self._journal.add("offered", chat=reply.channel_id, emoji=reply.card.emoji)
        return sent

    # Previews, which exist while a turn runs.

    async def preview(self, place: Place, live: Live, *, message_id: str | None) -> str:
        """Show a turn's live text."""
        doing = " · ".join(filter(None, (live.activity, live.plan)))
        return await self.show(place, "\n".join(filter(None, (live.text, doing))), message_id)

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Replace a preview by the answer."""
        place = Place(reply.channel_id, reply.thread_id)
        return await self.put(place, part.content, key=reply.key, message_id=message_id)

    async def remove(self, place: Place, message_id: str) -> None:
        """Remove a preview."""
        await self.take_back(place.chat, message_id)

    async def typing(self, place: Place) -> None:
        """Show that the agent types."""
        await self.type(place)

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React, delete, pin or read."""
        return await self.do(operation.name, operation.channel_id, operation.args)


class _Sender:
    """An adapter that can only send."""

    key_window_s: float | None = None

    def __init__(self, adapter: PlatformAdapter) -> None:
        self.parts, self.send = adapter.parts, adapter.send


class _Journal:
    """The platform's journal, a file with one JSON object per event."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "journal"
        self._events: list[dict[str, Any]] = []
        self._size = 0
        """The size of the part that was read, in bytes."""

    def add(self, event: str, *, id: str = "", **more: Any) -> str:
        """Add an event; return the id of its message."""
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # so that two processes never use the same number
        name = id or f"m{len(self.read()) + 1}"
        entry = {"event": event, "id": name, "at_ms": now_ms(), **more}
        os.write(descriptor, orjson.dumps(entry) + b"\n")
        os.close(descriptor)
        return name

    def read(self) -> list[dict[str, Any]]:
        """Return all events."""
        if self._file.exists() and self._file.stat().st_size > self._size:
            with self._file.open("rb") as file:
                file.seek(self._size)
                lines = file.read().splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n"):
                del lines[-1]  # this line is still being written
            self._events += map(orjson.loads, lines)
            self._size += sum(map(len, lines))
        return list(self._events)


def posts(events: Sequence[Mapping[str, Any]], chat: str) -> list[Post]:
    """Return the messages that a chat shows after the events."""
    shown: dict[str, Post] = {}
    for event in events:
        if event.get("chat") != chat:
            continue
        match event["event"]:
            case "edited":
                shown[event["messageId"]].text = event["text"]
            case "delivered" | "said" | "preview":
                names = ("id", "by", "text", "thread", "quotes", "files", "effect", "at_ms", "key")
                known = {name: event[name] for name in names if name in event}
                known["files"] = dict(known.get("files", {}))
                post = shown[event["id"]] = Post(**known)
                if match := _ATTRIBUTION.match(post.text):
                    post.came_from, post.text = match[1], post.text[match.end() :]
            case "file":
                keyed = [post for post in shown.values() if post.key == event["key"]]
                keyed[-1].files |= event["files"]
            case "react":
                shown[event["messageId"]].reaction = event["emoji"]
            case "pin":
                shown[event["messageId"]].is_pinned = True
            case "delete":
                del shown[event["messageId"]]
    return list(shown.values())


def kind_of(event: Mapping[str, Any]) -> str:
    """Return what a person has done in an event; empty if it is no person's."""
    if event["event"] == "pressed":
        return "pressed"
    if event["event"] != "said":
        return ""
    kinds = {"replaces": "edited", "deletes": "deleted", "reaction": "reacted"}
    found = [kind for name, kind in kinds.items() if event.get(name) is not None]
    return str(event.get("invitation") or next(iter(found), "message"))


def source_of(event: Mapping[str, Any]) -> str:
    """Return the name of the place whose history has an event: `CHAT`, or `CHAT/THREAD`."""
    return "/".join(filter(None, (event["chat"], event.get("thread"))))


def sources_of(events: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return the chats and threads of an account by name, chats first.

    Each has the numbers of the event since which the account is there, and of its newest event.
    """
    found: dict[str, tuple[int, int]] = {}
    for number, event in enumerate(events, 1):
        kind, source = kind_of(event), source_of(event) if kind_of(event) else ""
        if kind == "removed":
            del found[source]
        elif kind and kind != "pressed":
            since, _ = found.get(source, (0, 0))
            found[source] = number if kind == "invited" else since, number
    return dict(sorted(found.items(), key=lambda each: "/" in each[0]))


def history_of(
    events: Sequence[Mapping[str, Any]], chat: str, thread: str | None, after: int
) -> list[tuple[int, Mapping[str, Any]]]:
    """Return what people did in a chat or thread after an event, as its history shows it now.

    Each is an event with its number. A message that was deleted is not shown, and one that was
    edited is shown as it is now. A press is in no history.
    """
    found: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for number, event in enumerate(events, 1):
        if number <= after or (event.get("chat"), event.get("thread")) != (chat, thread):
            continue
        match kind_of(event):
            case "edited" if event["replaces"] in found:
                first, message = found[event["replaces"]]
                found[event["replaces"]] = first, {**message, "text": event["text"]}
            case "deleted" if event["deletes"] in found:
                del found[event["deletes"]]
            case "" | "pressed":
                pass
            case _:
                found[event["id"]] = number, event
    return list(found.values())


async def main(
    url: str,
    directory: str,
    provider: str,
    account: str,
    token: str,
    claim_ms: str,
    *,
    kind: type["PlatformAdapter"] | None = None,
) -> None:
    """Deliver until killed."""
    fleet = Fleet.open(url)
    reader = fleet.replies.reader(provider, account, token=token or None, claim_ms=int(claim_ms))
    await relay(reader, (kind or PlatformAdapter)(Path(directory)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
