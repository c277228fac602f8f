"""Asides over ACP: each question is asked in a separate session of the same process.

The session is a copy of the conversation if the agent makes good copies, else a new one. It has no
MCP servers of RemoteClaw, every permission is denied, and the first tool call stops it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remoteclaw.errors import AsideFailed
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.acp.messages import LogNote, classify_rpc_error, cost_of, deny
from remoteclaw.runtimes.acp.session import Request, SessionModel, mode_request
from remoteclaw.runtimes.acp.usage import SessionUsage
from remoteclaw.runtimes.asides import CliAside
from remoteclaw.runtimes.jsonrpc import RpcError, RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, text

if TYPE_CHECKING:
    from remoteclaw.runtimes.acp.runtime import AcpRuntime

#: A note before the question: a copy made during a turn wrongly shows that turn as interrupted.
_COPY_NOTE = (
    "(This is a copy of the conversation, made while its last message is being worked on. That "
    "work goes on in the original: nothing of it was interrupted, and none of it is to be done "
    "here. The next message is another one.)"
)


@dataclass(slots=True)
class AsideSessions:
    """The asides' sessions of one process."""

    peer: RpcPeer
    runtime: "AcpRuntime"
    spec: AgentSpec
    directory: str
    """The working directory of a new session."""
    session_capabilities: tuple[str, ...]
    """The session capabilities that the agent announced, such as `fork` and `close`."""
    disabled_reason: str = ""
    """Why the agent can't have sessions for asides; empty unless an attempt has failed."""
    session_ids: set[str] = field(default_factory=set)
    """The ids of the sessions that were begun."""

    def new(self, *, main: str, model: str, copies: bool, is_busy: bool) -> "AcpAside":
        """Return a new aside. Raises `AsideFailed` if an earlier attempt has shown it impossible.

        `main` is the session of the conversation, of which the aside's session is a copy if
        `copies`; `model` is its model, if known; `is_busy` tells that a turn runs in it.
        """
        if self.disabled_reason:
            raise AsideFailed(f"No answer to the aside: {self.disabled_reason}.")
        return AcpAside(self, main=main, model=model, copies=copies, is_busy=is_busy)

    def forget(self) -> None:
        """Delete the agent's files of these sessions."""
        for session in self.session_ids:
            self.runtime.forget(self.spec, session)


class AcpAside(CliAside[RpcMessage]):
    """One question: begins a session, sets its model and mode, sends the prompt, and closes it."""

    def __init__(
        self, sessions: AsideSessions, *, main: str, model: str, copies: bool, is_busy: bool
    ) -> None:
        """See `AsideSessions.new()`."""
        super().__init__()
        self._sessions = sessions
        self._peer = sessions.peer
        self._main = main
        self._model = model
        self._copies = copies
        self._is_busy = is_busy
        self.session = ""
        """The id of the aside's session; empty until the session has begun."""
        self._prompt = ""
        self._pending_settings: list[Request] = []
        """The requests about model and mode that are still to be sent before the prompt."""
        self._request = 0
        """The id of the request in progress."""
        self._on_result: Callable[[Mapping[str, Any]], Awaitable[None]] = self._configure
        """The handler of the result of that request."""
        self._is_asked = False
        """Whether the prompt was sent."""
        self._chunks: list[str] = []
        """The answer so far, in chunks."""
        self._usage: SessionUsage | None = None
        """The usage in the aside's session; None until it has begun."""

    # -- asking --------------------------------------------------------------------------------

    async def ask(self, prompt: str) -> None:
        """Begin the session; the prompt is sent once the agent has answered."""
        spec, is_new = self._sessions.spec, not self._copies
        instructions = spec.plain_prompt if self._sessions.runtime.instructs_by_prompt else ""
        preface = instructions if is_new else _COPY_NOTE if self._is_busy else ""
        self._prompt = "\n\n".join(filter(None, (preface, prompt)))
        # A copy has the conversation's directory, where the agent's own servers run already.
        params = {"cwd": self._sessions.directory if is_new else spec.workspace, "mcpServers": []}
        if is_new:
            await self._send(("session/new", params), self._configure)
        else:
            await self._send(("session/fork", {**params, "sessionId": self._main}), self._configure)

    async def _send(
        self, request: Request, on_result: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> None:
        self._request, self._on_result = self._peer.reserve(), on_result
        await self._peer.request(*request, self._request)

    async def _configure(self, result: Mapping[str, Any]) -> None:
        """Choose the model and the mode of the session."""
        session = text(result.get("sessionId"))
        if session in ("", self._main):
            self._disable("it has no second session")
            return
        self.session = session
        self._sessions.session_ids.add(session)
        runtime, spec = self._sessions.runtime, self._sessions.spec
        self._usage = SessionUsage(runtime, spec, session, None if self._copies else 0.0)
        mode = mode_request(session, runtime.aside_modes, result)
        if mode is None and runtime.needs_aside_mode:
            self._disable("it has no mode in which it asks for every tool")
            await self._close()
            return
        chosen = SessionModel.of(result).request(session, self._model) if self._model else None
        self._pending_settings = [request for request in (chosen, mode) if request]
        await self._send_next({})

    async def _send_next(self, _result: Mapping[str, Any]) -> None:
        """Send the next setting, or after the last one the prompt."""
        if self._pending_settings:
            await self._send(self._pending_settings.pop(0), self._send_next)
            return
        self._is_asked = self.awaits_message = True
        parts = [{"type": "text", "text": self._prompt}]
        prompt = {"sessionId": self.session, "prompt": parts}
        await self._send(("session/prompt", prompt), self._answered)

    # -- messages of the agent -----------------------------------------------------------------

    async def take(self, message: RpcMessage) -> bool:
        """Handle the answer to the aside's request, or a message in its session."""
        if not message.method:
            return await self._take_answer(message)
        if not self.session or message.params.get("sessionId") != self.session:
            return False
        if message.is_request:
            await deny(self._peer, message)
            await self._abandon("it asked for a permission")
        elif message.method == "session/update":
            if self._usage:
                self._usage.cost = cost_of(message) or self._usage.cost
            await self._update(mapping(message.params.get("update")))
        return True

    async def _take_answer(self, message: RpcMessage) -> bool:
        if message.id != self._request:
            return False
        if self._is_asked:
            self.awaits_message = False
            self._measure(message.result)
        if message.error is None:
            if not self.is_over:
                await self._on_result(message.result)
        elif self._is_asked:
            await self._abandon(classify_rpc_error(message.error)[1])
        else:
            self._disable(_session_problem(message.error))
            await self._close()
        return True

    async def _update(self, update: Mapping[str, Any]) -> None:
        if not self._is_asked:
            return  # a replay of the copied conversation, or a change of the mode
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._chunks.append(text(mapping(update.get("content")).get("text")))
            case "tool_call" | "tool_call_update":
                await self._abandon("it began to use a tool")

    async def take_log(self, note: LogNote) -> None:
        """Handle a line of the log: fail if the model fails or the agent compacts the copy."""
        if note.session not in (None, self.session):
            return
        if note.failure:
            await self._abandon(note.failure.detail)
        elif note.is_compaction:
            await self._abandon("the conversation is too long")

    async def _answered(self, result: Mapping[str, Any]) -> None:
        answer, reason = "".join(self._chunks).strip(), result.get("stopReason")
        if reason in ("cancelled", "refusal") or not answer:
            self.fail(f"it ended with {text(reason) or 'nothing'}")
        else:
            self.succeed(answer)
        await self._close()

    def _measure(self, result: Mapping[str, Any]) -> None:
        """Take the usage from the answer to the prompt."""
        if self._usage:
            self._usage.add(result)
            self.usage, self.cost_usd = self._usage.measure()

    # -- the end -------------------------------------------------------------------------------

    def _disable(self, why: str) -> None:
        """Fail, as all later asides of this process will."""
        self._sessions.disabled_reason = why
        self.fail(why)

    async def _abandon(self, why: str) -> None:
        if not self.is_over:
            self.fail(why)
            await self.stop()

    async def stop(self) -> None:
        """Cancel the prompt and close the session."""
        if self._is_asked:
            await self._peer.notify("session/cancel", {"sessionId": self.session})
        await self._close()

    async def _close(self) -> None:
        """Have the agent delete or at least close the session; its answer is ignored."""
        self._sessions.forget()
        for ability in ("delete", "close"):
            if self.session and ability in self._sessions.session_capabilities:
                await self._peer.request(f"session/{ability}", {"sessionId": self.session})
                return


def _session_problem(error: RpcError) -> str:
    return f"it can't begin another session ({classify_rpc_error(error)[1]})"
