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
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.channels.relay import relay
from remoteclaw.channels.task_progress import ToolDetailOf
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
from remoteclaw.messages import Attachment, without_mentions
from remoteclaw.protocols import Live, Operation, Part, Place, Reply, Sent
from tests.support.command import Process, start_program
from tests.support.waiting import eventually

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
        self, redis_url: str, *, token: str = "the platform's", claim_ms: int = CLAIM_MS
    ) -> Process:
        """Start an adapter in a process of its own; `is_read()` tells whether it has its claim.

        Adapters with the same `token` take over each other's claims at once. The default is a token
        of its own.
        """
        whose = [str(self._directory), self._provider, self._account, token, str(claim_ms)]
        argv = [__name__, redis_url, *whose]
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
        return self._journal.add("said", chat=chat, by=by, text=text, **more)

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
        return _posts(self.events, chat)


class Recipient:
    """An adapter without a platform: hands each part to `take()`."""

    has_keys = False

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


class PlatformAdapter(Recipient):
    """The adapter of one account on the platform."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._journal = _Journal(directory)

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the parts, which mention at most the person who has asked."""
        text = without_mentions(reply.text, MENTION, stays=reply.asked_by)
        return super().parts(replace(reply, text=text))

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Send one part; files become part of the message with the text."""
        reply = replace(reply, channel_id=self._now(reply.channel_id))
        if reply.channel_id == "nowhere":
            raise PlatformRefused("There is no such chat.")
        file = part.attachment
        what, about = ("file", file.name) if file else ("send", part.content)
        behaviour = await self._behaviour(what, about, reply.channel_id)
        if file and not behaviour.keeps_files:
            raise PlatformRefused("Files can't be sent here.")
        files = {file.name: (content or b"").decode("latin-1")} if file else {}
        if part.attachment and part.index:
            more: dict[str, Any] = {"files": files, "key": reply.key, "is_again": is_again}
            name = self._journal.add("file", chat=reply.channel_id, **more)
            return await self._answer(what, Sent(name))
        has_effect = reply.effect in behaviour.effects
        again = "(perhaps a second time)\n" if is_again else ""
        message_id = self._journal.add(
            "delivered",
            chat=reply.channel_id,
            thread=reply.thread_id,
            by="agent",
            text=again + part.content,
            quotes=reply.reply_to_id,
            files=files,
            effect=reply.effect if has_effect else None,
            key=reply.key,
            is_called=reply.call is not None,
        )
        return await self._answer(what, Sent(message_id, has_effect))

    # Previews, which exist while a turn runs.

    async def preview(self, place: Place, live: Live, *, message_id: str | None) -> str:
        """Show a turn's live text."""
        place = Place(self._now(place.chat), place.thread)
        doing = " · ".join(filter(None, (live.activity, live.plan)))
        text = "\n".join(filter(None, (live.text, doing)))
        what = "edit" if message_id else "preview"
        await self._behaviour(what, text, place.chat)
        where: dict[str, Any] = {
            "chat": place.chat,
            "thread": place.thread,
            "by": "agent",
            "text": text,
        }
        if message_id is None:
            message_id = self._journal.add("preview", **where)
        else:
            self._there(place.chat, message_id)
            self._journal.add("edited", messageId=message_id, **where)
        await self._stop(f"{what} after", message_id)
        return message_id

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Replace a preview by the answer."""
        reply = replace(reply, channel_id=self._now(reply.channel_id))
        await self._behaviour("replace", part.content, reply.channel_id)
        self._there(reply.channel_id, message_id)
        self._journal.add(
            "delivered",
            id=message_id,
            chat=reply.channel_id,
            thread=reply.thread_id,
            by="agent",
            text=part.content,
            key=reply.key,
            is_replaced=True,
        )
        return await self._answer("replace", Sent(message_id))

    async def remove(self, place: Place, message_id: str) -> None:
        """Remove a preview."""
        place = Place(self._now(place.chat), place.thread)
        await self._behaviour("remove", message_id, place.chat)
        with contextlib.suppress(PlatformRefused):
            self._there(place.chat, message_id)
            self._journal.add("delete", chat=place.chat, messageId=message_id)
        await self._stop("remove after", message_id)

    async def typing(self, place: Place) -> None:
        """Show that the agent types."""
        place = Place(self._now(place.chat), place.thread)
        await self._behaviour("typing", "", place.chat)
        self._journal.add("typing", chat=place.chat, thread=place.thread)
        await self._stop("typing after")

    def _now(self, chat: str) -> str:
        """Return the current id of a chat, which may have changed."""
        for event in self._journal.read():
            if event.get("moved_to") and event["chat"] == chat:
                chat = str(event["moved_to"])
        return chat

    def _there(self, chat: str, message_id: str) -> None:
        if message_id not in {post.id for post in _posts(self._journal.read(), chat)}:
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

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React, delete, pin or read."""
        operation = replace(operation, channel_id=self._now(operation.channel_id))
        behaviour = await self._behaviour(operation.name, operation.channel_id)
        if operation.name in behaviour.lacks:
            raise Unsupported(f"This platform has no such thing as {operation.name}.")
        posts = _posts(self._journal.read(), operation.channel_id)
        if operation.name == "read":
            newest = posts[-operation.args["limit"] :]
            self._journal.add("read", chat=operation.channel_id)
            return {
                "messages": [
                    {"id": post.id, "from": post.by, "text": post.text, "at": int(post.id[1:])}
                    for post in newest
                ]
            }
        if operation.args["messageId"] not in {post.id for post in posts}:
            raise PlatformRefused("There is no such message.")
        self._journal.add(operation.name, chat=operation.channel_id, **operation.args)
        await self._stop(f"{operation.name} after")
        return {}


class _Sender:
    """An adapter that can only send."""

    has_keys = False

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
        os.write(descriptor, orjson.dumps({"event": event, "id": name, **more}) + b"\n")
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


def _posts(events: list[dict[str, Any]], chat: str) -> list[Post]:
    posts: dict[str, Post] = {}
    for event in events:
        if event.get("chat") != chat:
            continue
        match event["event"]:
            case "edited":
                posts[event["messageId"]].text = event["text"]
            case "delivered" | "said" | "preview":
                names = ("id", "by", "text", "thread", "quotes", "files", "effect", "key")
                known = {name: event[name] for name in names if name in event}
                known["files"] = dict(known.get("files", {}))
                post = posts[event["id"]] = Post(**known)
                if match := _ATTRIBUTION.match(post.text):
                    post.came_from, post.text = match[1], post.text[match.end() :]
            case "file":
                keyed = [post for post in posts.values() if post.key == event["key"]]
                keyed[-1].files |= event["files"]
            case "react":
                posts[event["messageId"]].reaction = event["emoji"]
            case "pin":
                posts[event["messageId"]].is_pinned = True
            case "delete":
                del posts[event["messageId"]]
    return list(posts.values())


async def main(
    url: str, directory: str, provider: str, account: str, token: str, claim_ms: str
) -> None:
    """Deliver until killed."""
    fleet = Fleet.open(url)
    reader = fleet.replies.reader(provider, account, token=token or None, claim_ms=int(claim_ms))
    await relay(reader, PlatformAdapter(Path(directory)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
