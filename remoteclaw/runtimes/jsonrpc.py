"""JSON-RPC in both directions over a CLI's lines, as codex's app-server and ACP use it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remoteclaw.protocols import AgentPipes
from remoteclaw.runtimes.wire import Lines, mapping, text

#: The error for a request with an unknown method.
METHOD_NOT_FOUND = -32601


class RpcError(Exception):
    """The error with which the CLI answers a request."""

    def __init__(self, code: int, message: str, data: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


@dataclass(frozen=True, slots=True)
class RpcMessage:
    """One received line: a request of the CLI, a notification, or the answer to our request."""

    method: str = ""
    """The method; empty in an answer."""
    id: int | str | None = None
    """The CLI's id in a request, our id in an answer; None in a notification.

    The two sides number their requests independently.
    """
    params: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    error: RpcError | None = None

    @property
    def is_request(self) -> bool:
        """Whether the CLI waits for an answer."""
        return bool(self.method) and self.id is not None

    def is_answer_to(self, request: int) -> bool:
        """Whether this is the CLI's answer to our request with this id."""
        return not self.method and self.id == request

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> "RpcMessage":
        """Return the message of a line; fields of an unexpected type are ignored."""
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


class RpcPeer:
    """RemoteClaw's side of a JSON-RPC connection."""

    def __init__(self, pipes: AgentPipes, *, version: str | None = "2.0") -> None:
        """Each message has the protocol `version`; none if that is None, as codex expects."""
        self._lines = Lines(pipes)
        self._version = {"jsonrpc": version} if version else {}
        self.last_id = 0
        """The id of the last request."""

    # -- sending -------------------------------------------------------------------------------

    def reserve(self) -> int:
        """Return the id for a new request."""
        self.last_id += 1
        return self.last_id

    async def request(
        self, method: str, params: Mapping[str, Any], message_id: int | None = None
    ) -> int:
        """Send a request; return its id, which its answer will have."""
        message_id = self.reserve() if message_id is None else message_id
        await self._send({"id": message_id, "method": method, "params": params})
        return message_id

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification."""
        await self._send({"method": method, **({"params": params} if params is not None else {})})

    async def respond(self, message_id: int | str, result: Mapping[str, Any]) -> None:
        """Answer a request of the CLI."""
        await self._send({"id": message_id, "result": result})

    async def refuse(self, message: RpcMessage) -> None:
        """Answer an unknown request with an error, because the CLI waits for an answer forever."""
        error = {"code": METHOD_NOT_FOUND, "message": f"{message.method} is not supported"}
        await self._send({"id": message.id, "error": error})

    async def _send(self, message: dict[str, Any]) -> None:
        await self._lines.send({**self._version, **message})

    # -- reading -------------------------------------------------------------------------------

    async def read(self) -> RpcMessage | None:
        """Return the next message; None once the CLI has ended. Raises `UnreadableLine`."""
        line = await self._lines.read()
        return None if line is None else RpcMessage.of(line)

    def take_unread(self) -> list[RpcMessage]:
        """Return the messages that have arrived, without waiting; unreadable lines are skipped."""
        return [RpcMessage.of(line) for line in self._lines.take_unread()]
