"""Requests to people, from their side: what waits, and what they answer.

A request is a record that outlives every process. The turn that asks waits for a while; later an
answer counts, too. `answer()` is for every door: chats, the gateway, the command line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import NotFound
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.inbound import APPEND_S, encode_entry, entry_args, entry_keys
from remoteclaw.fleet.lua import Arguments
from remoteclaw.fleet.request import Answered, Request, State
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChatPlace

#: What the second answer to a plan allows.
ALL_EDITS = {"tool": "Edit", "what": "all files of the workspace"}


class Asks:
    """The requests, from the side of people."""

    def __init__(self, scripts: Scripts, waker: Waker, blobs: Blobs) -> None:
        self._scripts = scripts
        self._waker = waker
        self._blobs = blobs

    async def whole(self, request: Request) -> str:
        """Return what would be done with its middle, also where the request leaves that out."""
        file = request.file
        content = await self._blobs.get(request.session.sid, file) if file else None
        return content.decode() if content else request.what

    async def find(self, id_: str) -> Request | None:
        """Return a request; None if there is none."""
        client = self._scripts.client
        found = await self._scripts.call(client.hgetall, keys.ask(id_))
        return Request.decode(id_, found) if found else None

    async def named(self, name: str) -> Request:
        """Return a request by its id, or the one that waits if there is one alone.

        Raises `NotFound`.
        """
        if name and (found := await self.find(name)):
            return found
        waiting = await self.waiting()
        if not name and len(waiting) == 1:
            return waiting[0]
        there = ", ".join(one.id for one in waiting)
        which = f"those that wait are {there}" if there else "none waits"
        raise NotFound(f"There is no request {name!r}: {which}.")

    async def waiting(self) -> list[Request]:
        """Return the requests that can be answered, oldest first."""
        client = self._scripts.client
        ids = await self._scripts.call(client.zrange, keys.ASKS, 0, -1)
        return [one for one in await self._read(ids) if one.is_waiting]

    async def all(self) -> list[Request]:
        """Return every request that is kept, oldest first."""
        client = self._scripts.client

        async def scan() -> list[bytes]:
            return [name async for name in client.scan_iter(match=keys.ask("*"), count=1000)]

        names = await self._scripts.call(scan)
        return await self._read([name.removeprefix(keys.ask("").encode()) for name in names])

    async def of_session(self, sid: str) -> list[Request]:
        """Return a session's requests that can be answered, oldest first."""
        return [one for one in await self.newest(sid) if one.is_waiting]

    async def newest(self, sid: str) -> list[Request]:
        """Return those, and what was asked for in the session's newest turn, oldest first."""
        client = self._scripts.client
        return await self._read(await self._scripts.call(client.zrange, keys.asked(sid), 0, -1))

    async def said_since(self, request: Request) -> tuple[bool, bool]:
        """Return whether the agent has said more since, and whether a newer turn has begun."""
        name, fields = keys.state(request.session.sid), ("turn", "finished_turn", "said_ms")
        client = self._scripts.client
        turn, finished, said_ms = await self._scripts.call(client.hmget, name, fields)
        is_over = (turn or finished or b"").decode() != request.turn
        return int(said_ms or 0) > request.waits_ms, is_over

    async def shown_in(self, place: ChatPlace) -> tuple[list[Request], set[str]]:
        """Return the requests of other conversations that a chat shows or has shown, oldest first.

        With them the ids of those below which no agent has written.
        """
        client = self._scripts.client
        ids = await self._scripts.call(client.zrange, keys.asked_in(place), 0, -1)
        below = ids[ids.index(b"") + 1 :] if b"" in ids else ids
        return await self._read(ids), {id_.decode() for id_ in below}

    async def _read(self, ids: Sequence[bytes]) -> list[Request]:
        found = await self._scripts.together(
            lambda ask: [ask.hgetall(keys.ask(id_.decode())) for id_ in ids]
        )
        requests = [
            Request.decode(id_.decode(), fields)
            for id_, fields in zip(ids, found, strict=True)
            if fields
        ]
        return sorted(requests, key=lambda one: one.asked_ms)

    async def answer(
        self,
        request: Request,
        answered: Answered,
        *,
        words: str,
        going_on: str,
        message: str = "",
    ) -> tuple[bool, State, Answered | None]:
        """Answer a request; return whether it counts, and what is true now.

        The messages that show it say `words` from then on. If no turn waits any more, the session
        is told to go on, by an entry that says `going_on` on behalf of those who asked.
        A change is only answered by that: `made()` says what became of it.
        Whether they may answer is for the caller to know. Repeating it is harmless.
        `message` is the platform's id of the message that answers, if one does.
        """
        session = request.session
        text = orjson.dumps(asdict(answered))
        what = {"tool": request.tool, "what": request.what}
        remembered = (ALL_EDITS if answered.verdict == "edits" else what) | {
            "name": answered.name,
            "at_ms": answered.at_ms,
        }
        told, state, answer, queue = await self._scripts.run(
            "answer",
            keys={
                "ask": keys.ask(request.id),
                "asks": keys.ASKS,
                "changes": keys.CHANGES,
                "rules": keys.rules(session.sid),
                "grants": keys.grants(session.sid),
                "unheard": keys.unheard(session.sid),
                **entry_keys(session),
            },
            args={
                "id": request.id,
                "answer": text,
                "by": f"{answered.by} {answered.verdict} {answered.words}",
                "message": message,
                "verdict": answered.verdict,
                "remembered": orjson.dumps(remembered),
                "words": words,
                "bell": keys.bell(session.sid),
                **_waking(request, going_on),
            },
            deadline=boottime() + APPEND_S,
        )
        await self._waker.try_hint(session, queue.decode())
        return told == b"done", state.decode(), Answered.decode(answer) if answer else None

    async def made(
        self, request: Request, became: Literal["used", "denied", "void"], *, words: str, told: str
    ) -> None:
        """Record what became of a change that is answered, and tell its session.

        The first word counts: the process that makes a change holds the lock of its file.
        """
        session = request.session
        queue = await self._scripts.run(
            "made",
            keys={
                "ask": keys.ask(request.id),
                "changes": keys.CHANGES,
                **entry_keys(session),
            },
            args={
                "id": request.id,
                "became": became,
                "words": words,
                "is_told": request.deliver == "channel",
                **_waking(request, told),
            },
            deadline=boottime() + APPEND_S,
        )
        await self._waker.try_hint(session, queue.decode())

    async def changes(self) -> list[Request]:
        """Return the changes that are answered, and of which nothing became yet."""
        client = self._scripts.client
        found: set[bytes] = await self._scripts.call(client.smembers, keys.CHANGES)
        return [one for one in await self._read(list(found)) if one.state == "answered"]

    async def rules(self, sid: str) -> list[Mapping[str, Any]]:
        """Return what is allowed for a session's conversation: `tool`, `what`, `name`, `at_ms`."""
        found = await self._scripts.call(self._scripts.client.hvals, keys.rules(sid))
        return [orjson.loads(text) for text in found]

    async def forget_rules(self, sid: str) -> int:
        """Take back what is allowed for a session's conversation; return how much that was."""
        client = self._scripts.client
        count = await self._scripts.call(client.hlen, keys.rules(sid))
        await self._scripts.call(client.delete, keys.rules(sid))
        return int(count)

    async def let_lapse(self) -> int:
        """Have requests lapse and expire whose time has come; return how many."""
        return int(await self._scripts.run("overdue", keys={"asks": keys.ASKS}, args={"most": 100}))


def _waking(request: Request, text: str) -> Arguments:
    message = request.session.message(
        id=f"ask-{request.id}", text=text, from_="operator", timestamp=now_ms()
    )
    entry = encode_entry(message, request.deliver, "verdict", people=request.people)
    return {"lane": "agents", **entry_args(request.session, entry)}
