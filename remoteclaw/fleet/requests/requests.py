"""Requests to people, as the people who answer see them: the waiting requests and their answers.

A request is a record in Redis, so it outlives every process. The turn that asks waits for a limited
time; an answer after that still counts. Chats, the gateway and the command line all call
`Requests.answer()`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import orjson

from remoteclaw.clock import boottime, now_ms
from remoteclaw.errors import NotFound
from remoteclaw.fleet import keys
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.chats import Chats
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.lua import Values
from remoteclaw.fleet.memories import Memories
from remoteclaw.fleet.requests.request import Request, RequestAnswer, State
from remoteclaw.fleet.turns.inbound import APPEND_S, encode_entry, entry_args
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChatPlace, SessionKey

#: The rule that the answer `edits` to a plan adds to the conversation.
ALL_EDITS = {"tool": "Edit", "what": "all files of the workspace"}


class Requests:
    """Finds and answers requests to people."""

    def __init__(self, scripts: Scripts, waker: Waker, blobs: Blobs, memories: Memories) -> None:
        """`memories` are those that allowed requests change."""
        self._scripts = scripts
        self._waker = waker
        self._blobs = blobs
        self.memories = memories
        self.chats = Chats(scripts)

    async def full_text(self, request: Request) -> str:
        """Return the complete text of `request.what`, even if the request shows it shortened."""
        file = request.file
        content = await self._blobs.get(request.session.sid, file) if file else None
        return content.decode() if content else request.what

    async def find(self, id_: str) -> Request | None:
        """Return a request by its id; None if it doesn't exist."""
        client = self._scripts.client
        fields = await self._scripts.call(client.hgetall, keys.request(id_))
        return Request.decode(id_, fields) if fields else None

    async def named(self, id_: str) -> Request:
        """Return a request by its id. An empty `id_` means the only request that waits.

        Raises `NotFound` if the request doesn't exist, or if `id_` is empty and not exactly one
        request waits.
        """
        if id_ and (request := await self.find(id_)):
            return request
        waiting = await self.waiting()
        if not id_ and len(waiting) == 1:
            return waiting[0]
        ids = ", ".join(request.id for request in waiting)
        choice = f"those that wait are {ids}" if ids else "none waits"
        raise NotFound(f"There is no request {id_!r}: {choice}.")

    async def waiting(self) -> list[Request]:
        """Return the requests that can be answered, oldest first."""
        client = self._scripts.client
        ids = await self._scripts.call(client.zrange, keys.REQUESTS, 0, -1)
        return [request for request in await self._read(ids) if request.is_waiting]

    async def all(self) -> list[Request]:
        """Return every request that is still kept, also the closed ones, oldest first."""
        client = self._scripts.client

        async def scan() -> list[bytes]:
            return [name async for name in client.scan_iter(match=keys.request("*"), count=1000)]

        names = await self._scripts.call(scan)
        return await self._read([name.removeprefix(keys.request("").encode()) for name in names])

    async def of_session(self, sid: str) -> list[Request]:
        """Return the requests of a session that can be answered, oldest first."""
        return [request for request in await self.newest(sid) if request.is_waiting]

    async def newest(self, sid: str) -> list[Request]:
        """Return a session's unanswered requests, and all of its newest turn, oldest first."""
        client = self._scripts.client
        return await self._read(
            await self._scripts.call(client.zrange, keys.session_requests(sid), 0, -1)
        )

    async def activity_since(self, request: Request) -> tuple[bool, bool]:
        """Return what has happened since the agent began to wait for the answer to `request`.

        The first flag is whether the agent has sent a message; the second is whether the session
        has begun another turn.
        """
        if request.budget:  # no turn of an agent waits for it
            return False, False
        name, fields = keys.state(request.session.sid), ("turn", "finished_turn", "said_ms")
        client = self._scripts.client
        turn, finished_turn, sent_ms = await self._scripts.call(client.hmget, name, fields)
        is_newer_turn = (turn or finished_turn or b"").decode() != request.turn
        return int(sent_ms or 0) > request.waits_ms, is_newer_turn

    async def shown_in(self, place: ChatPlace) -> tuple[list[Request], set[str]]:
        """Return the requests of other conversations that the chat `place` shows, oldest first.

        Also return the ids of those that were shown after the last message of an agent there.
        """
        client = self._scripts.client
        ids = await self._scripts.call(client.zrange, keys.shown_requests(place), 0, -1)
        # The empty member stands for the newest message of an agent.
        newest_ids = ids[ids.index(b"") + 1 :] if b"" in ids else ids
        return await self._read(ids), {id_.decode() for id_ in newest_ids}

    async def _read(self, ids: Sequence[bytes]) -> list[Request]:
        hashes = await self._scripts.run_pipeline(
            lambda pipeline: [pipeline.hgetall(keys.request(id_.decode())) for id_ in ids]
        )
        requests = [
            Request.decode(id_.decode(), fields)
            for id_, fields in zip(ids, hashes, strict=True)
            if fields
        ]
        return sorted(requests, key=lambda request: request.asked_ms)

    async def answer(
        self,
        request: Request,
        answered: RequestAnswer,
        *,
        holders: Sequence[str],
        closing_text: str,
        entry_text: str,
        message_id: str = "",
    ) -> tuple[bool, State, RequestAnswer | None]:
        """Answer a request. Return whether `answered` counts, and the request's state and answer.

        The messages that show the request change to `closing_text`. If the turn that asked waits no
        longer, an entry with `entry_text` wakes the session, on behalf of the people for whom the
        turn worked. A request for a change of the configuration becomes `answered`; when the change
        was made or refused, `close_change()` closes it. The answer to a request about a budget
        takes effect, and wakes all sessions that wait for the budget.
        A permission for the conversation is kept for each of `holders`.
        `message_id` is the platform's id of the message that answers; empty if none does.
        The caller checks whether the person may answer. Repeating the same answer is harmless.
        """
        session = request.session
        text = orjson.dumps(asdict(answered))
        by = f"{answered.by} {answered.verdict} {answered.words}"
        if request.budget:
            answering = await self._scripts.run(
                "answer_budget",
                request_id=request.id,
                budget_id=request.budget,
                budget=keys.budget(request.budget),
                answer=text,
                by=by,
                message=message_id,
                verdict=answered.verdict,
                words=closing_text,
                deadline=boottime() + APPEND_S,
            )
            for woken in answering.woken:
                await self._waker.try_hint(SessionKey.parse(woken.session_key), woken.queue)
            return _answered(answering)
        allowed = {"tool": request.tool, "what": request.what}
        rule = (ALL_EDITS if answered.verdict == "edits" else allowed) | {
            "name": answered.name,
            "at_ms": answered.at_ms,
        }
        answering = await self._scripts.run(
            "answer",
            request_id=request.id,
            answer=text,
            by=by,
            message=message_id,
            verdict=answered.verdict,
            remembered=orjson.dumps(rule),
            words=closing_text,
            holders=holders,
            **_entry_args(request, entry_text),
            deadline=boottime() + APPEND_S,
        )
        await self._waker.try_hint(session, answering.queue)
        return _answered(answering)

    async def close_change(
        self,
        request: Request,
        state: Literal["used", "denied", "void"],
        *,
        closing_text: str,
        entry_text: str,
    ) -> None:
        """Close an answered request for a change of the configuration.

        The messages that show the request change to `closing_text`, and an entry with `entry_text`
        informs the session. Only the first call has an effect. Two processes can't both make the
        change, because the one that makes it holds the lock of its file.
        """
        session = request.session
        queue = await self._scripts.run(
            "close_change",
            request_id=request.id,
            became=state,
            words=closing_text,
            notifies_session=request.deliver == "channel",
            **_entry_args(request, entry_text),
            deadline=boottime() + APPEND_S,
        )
        await self._waker.try_hint(session, queue)

    async def answered_changes(self) -> list[Request]:
        """Return the requests for changes that are answered and not closed yet."""
        client = self._scripts.client
        ids: set[bytes] = await self._scripts.call(client.smembers, keys.CHANGES)
        return [request for request in await self._read(list(ids)) if request.state == "answered"]

    async def rules(self, sid: str) -> list[Mapping[str, Any]]:
        """Return the permissions of a session's conversation.

        Each has `tool`, `what` is allowed, the `name` of the person who allowed it, and `at_ms`.
        """
        rules = await self._scripts.call(self._scripts.client.hvals, keys.rules(sid))
        return [orjson.loads(text) for text in dict.fromkeys(rules)]  # several people may have one

    async def forget_rules(self, sid: str) -> int:
        """Revoke the permissions of a session's conversation; return the number of them."""
        client = self._scripts.client
        count = len(await self.rules(sid))
        await self._scripts.call(client.delete, keys.rules(sid))
        return count

    async def expire_due(self) -> int:
        """Let requests whose time is over lapse or expire, at most 100; return the number."""
        return int(await self._scripts.run("overdue_requests", max_count=100))


def _answered(answering: Any) -> tuple[bool, State, RequestAnswer | None]:
    """Return the result of `Requests.answer()` from that of its script."""
    answer = RequestAnswer.decode(answering.answer) if answering.answer else None
    return answering.status == "done", answering.state, answer


def _entry_args(request: Request, text: str) -> Values:
    """Return the script arguments of an entry that informs the request's session."""
    message = request.session.message(
        id=f"request-{request.id}", text=text, from_="operator", timestamp=now_ms()
    )
    entry = encode_entry(message, request.deliver, "verdict", people=request.people)
    return {"lane": "agents", **entry_args(request.session, entry)}
