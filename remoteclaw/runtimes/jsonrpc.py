"""JSON-RPC over a CLI's lines, both ways: codex's app-server and ACP speak it.

One reader at a time: a turn, or a handshake. What somebody else waits for meanwhile (the answer to
a request that was sent while the turn runs) is handed over as it passes by.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson

from remoteclaw.errors import AgentUnavailable, ErrorCategory, classify_end
from remoteclaw.events import AgentEvent, AgentRunResult, DoneEvent, ErrorEvent, NoticeEvent
from remoteclaw.messages import Image
from remoteclaw.protocols import AgentPipes, Decision
from remoteclaw.runtimes.patience import Patience
from remoteclaw.runtimes.wire import decode, mapping, text

__all__ = [
    "METHOD_NOT_FOUND",
    "Message",
    "Peer",
    "RpcError",
    "RpcProcess",
    "RpcTurn",
    "UnreadableLine",
]

#: How a request is refused whose method isn't known.
METHOD_NOT_FOUND = -32601


class UnreadableLine(Exception):
    """Raised for a line that is damaged or was too long: it may have been what is waited for."""


class RpcError(Exception):
    """Raised when the other side answers a request with an error."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


@dataclass(frozen=True, slots=True)
class Message:
    """One line: a request of theirs, a notification, or the answer to a request of ours."""

    method: str = ""
    """Empty in an answer."""
    id: int | str | None = None
    """Theirs in a request, ours in an answer; both count from where they like."""
    params: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    error: RpcError | None = None

    @property
    def is_request(self) -> bool:
        """Whether they wait for an answer."""
        return bool(self.method) and self.id is not None

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> "Message":
        """Return what a line says, however much of it is as expected."""
        message_id = line.get("id")
        if not isinstance(message_id, int | str):
            message_id = None
        error = None
        if (problem := mapping(line.get("error"))) or line.get("error"):
            code = problem.get("code")
            code = code if isinstance(code, int) else 0
            error = RpcError(code, text(problem.get("message")), mapping(problem.get("data")))
        return cls(
            method=text(line.get("method")),
            id=message_id,
            params=mapping(line.get("params")),
            result=mapping(line.get("result")),
            error=error,
        )


class Peer:
    """Our end of the line."""

    def __init__(self, pipes: AgentPipes, *, version: str | None = "2.0", last_id: int = 0) -> None:
        """Codex leaves the `version` out. `last_id` is the last one that was used before us."""
        self._pipes = pipes
        self._version = version
        self.last_id = last_id
        self._waiting: dict[int | str, asyncio.Future[Message]] = {}

    # -- sending -------------------------------------------------------------------------------

    def reserve(self) -> int:
        """Return an id for a request that is sent next."""
        self.last_id += 1
        return self.last_id

    async def request(
        self, method: str, params: Mapping[str, Any], message_id: int | None = None
    ) -> int:
        """Send a request; return the id under which its answer will come."""
        message_id = self.reserve() if message_id is None else message_id
        await self._send({"id": message_id, "method": method, "params": params})
        return message_id

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._send({"method": method, **({"params": params} if params is not None else {})})

    async def respond(self, message_id: int | str, result: Mapping[str, Any]) -> None:
        """Answer a request of theirs."""
        await self._send({"id": message_id, "result": result})

    async def refuse(self, message: Message) -> None:
        """Answer a request that we don't know: they would wait for ever."""
        error = {"code": METHOD_NOT_FOUND, "message": f"{message.method} is not supported"}
        await self._send({"id": message.id, "error": error})

    async def _send(self, message: dict[str, Any]) -> None:
        version = {"jsonrpc": self._version} if self._version else {}
        await self._pipes.write(orjson.dumps({**version, **message}))

    # -- reading -------------------------------------------------------------------------------

    async def read(self) -> Message | None:
        """Return the next message; None when the CLI has ended. Raises `UnreadableLine`."""
        line = await self._pipes.read()
        if line is None:
            self._end()
            return None
        return self._message(line)

    def take_unread(self) -> list[Message]:
        """Return what has arrived and was not read, without waiting; damaged lines are left out."""
        messages = []
        for line in self._pipes.take_unread():
            try:
                messages.append(self._message(line))
            except UnreadableLine:
                continue
        return messages

    def _message(self, line: bytes) -> Message:
        decoded = decode(line)
        if decoded is None:
            raise UnreadableLine
        message = Message.of(decoded)
        if not message.method and message.id is not None:
            waiting = self._waiting.pop(message.id, None)
            if waiting and not waiting.done():
                waiting.set_result(message)
        return message

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a request and wait for its answer, which the running turn passes by.

        Raises `RpcError`, and `ConnectionError` when the CLI has ended.
        """
        answer = asyncio.get_running_loop().create_future()
        message_id = self.reserve()
        self._waiting[message_id] = answer
        try:
            await self.request(method, params, message_id)
            message: Message = await answer
        finally:
            self._waiting.pop(message_id, None)
        if message.error:
            raise message.error
        return message.result

    def _end(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the agent has ended"))
        self._waiting.clear()


class RpcTurn:
    """What the turns of all CLIs that speak JSON-RPC have in common: how they go wrong."""

    name = "the agent"

    def __init__(self, pipes: AgentPipes, peer: Peer) -> None:
        self._pipes = pipes
        self._peer = peer
        self.unknown_messages = 0
        """Messages of a kind that this version does not know; they are skipped."""
        self._patience = Patience()
        self._given_up: ErrorEvent | None = None
        """Why we stop the turn ourselves."""

    async def _wait(self, failure: ErrorEvent, wait_s: float = 0.0) -> list[AgentEvent]:
        """Go on with a turn whose request to the model the CLI repeats, or stop it."""
        if self._given_up:
            return []
        event = self._patience.wait(failure, wait_s)
        if isinstance(event, NoticeEvent):
            return [event]
        self._given_up = event
        await self.interrupt()
        return []

    async def events(self) -> AsyncGenerator[AgentEvent, None]:
        """Read until the turn has ended; exactly one `DoneEvent`, last."""
        while True:
            try:
                async with asyncio.timeout(self._patience.left_s):
                    message = await self._peer.read()
            except TimeoutError:
                self._given_up = self._patience.give_up()
                await self.interrupt()
                continue
            except UnreadableLine:
                why = f"{self.name} printed a line that can't be read, or was too long"
                yield ErrorEvent(ErrorCategory.FATAL, why, ends_agent=True)
                break
            if message is None:
                errors = self._pipes.last_errors() or "it said nothing about that"
                yield ErrorEvent(ErrorCategory.DIED, f"{self.name} ended in mid-turn: {errors}")
                break
            for event in await self.take(message):
                self._patience.note(event)
                yield event
                if isinstance(event, DoneEvent):
                    return
        yield DoneEvent(self.result())

    async def take(self, message: Message) -> list[AgentEvent]:
        """Return what a message means; a `DoneEvent` ends the turn."""
        raise NotImplementedError

    async def steer(self, parts: list[dict[str, Any]], key: str) -> None:
        """Have a message join the turn."""
        raise NotImplementedError

    async def interrupt(self) -> None:
        """Ask the CLI to stop the turn."""
        raise NotImplementedError

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission; of one that is unknown, do nothing."""
        raise NotImplementedError

    def result(self) -> AgentRunResult:
        """Return what the turn has come to so far."""
        raise NotImplementedError


_T = TypeVar("_T", bound=RpcTurn)


class RpcProcess(Generic[_T]):
    """What the processes of all CLIs that speak JSON-RPC have in common: a turn at a time."""

    name = "the agent"

    def __init__(self, pipes: AgentPipes, peer: Peer) -> None:
        self._pipes = pipes
        self._peer = peer
        self._turn: _T | None = None
        self.note = ""
        """What the next process of the conversation has to know; nothing by itself."""
        self._is_asked = asyncio.Event()

    def parts(self, prompt: str, images: Sequence[Image]) -> list[dict[str, Any]]:
        """Return a message as the CLI wants it."""
        raise NotImplementedError

    async def next_of_start(self) -> Message:
        """Return the next message while it starts; raises `AgentUnavailable` if it never does."""
        try:
            message = await self._peer.read()
        except UnreadableLine:
            why = f"{self.name} printed a line that can't be read"
            raise AgentUnavailable(why, category=ErrorCategory.FATAL) from None
        if message is None:
            errors = self._pipes.last_errors()
            raise AgentUnavailable(
                f"{self.name} ended while it started: {errors}", category=classify_end(errors)
            )
        return message

    async def events_of(self, turn: _T) -> AsyncGenerator[AgentEvent, None]:
        """Yield the events of a turn that was just asked for."""
        self._turn = turn
        self._is_asked.set()
        try:
            async for event in turn.events():
                if isinstance(event, DoneEvent):
                    self._leave()  # the consumer may stop here
                yield event
        finally:
            self._leave()

    def _leave(self) -> None:
        self._turn = None
        self._is_asked.clear()

    async def steer(self, prompt: str, key: str, images: Sequence[Image] = ()) -> None:
        """Give the agent a message while it works: it joins what it does, or follows it."""
        await self._is_asked.wait()
        if self._turn is not None:
            await self._turn.steer(self.parts(prompt, images), key)

    async def interrupt(self) -> None:
        """Stop the running turn, and what it has started."""
        if self._turn is not None:
            await self._turn.interrupt()

    async def answer(self, permission_id: str, decision: Decision) -> None:
        """Answer a request for a permission."""
        if self._turn is not None:
            await self._turn.answer(permission_id, decision)
