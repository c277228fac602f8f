"""Questions beside a turn over ACP: each is asked in a session of its own, in the same process.

Its session is a copy of the conversation where the agent makes good ones, else an empty one. It has
no MCP servers of ours, every permission is denied, and with the first sign of a tool it is stopped.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remoteclaw.errors import AsideFailed
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes.acp_session import Request, mode_request, model_request
from remoteclaw.runtimes.acp_turn import LogNote, deny, failure
from remoteclaw.runtimes.asides import CliAside
from remoteclaw.runtimes.jsonrpc import RpcError, RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, text

if TYPE_CHECKING:
    from remoteclaw.runtimes.acp import AcpRuntime

#: What a copy of a conversation at work says of its last turn, it says wrongly.
_AT_WORK = (
    "(This is a copy of the conversation, made while its last message is being worked on. That "
    "work goes on in the original: nothing of it was interrupted, and none of it is to be done "
    "here. The next message is another one.)"
)


@dataclass(slots=True)
class AsideSessions:
    """What the questions of one process have in common."""

    peer: RpcPeer
    runtime: "AcpRuntime"
    spec: AgentSpec
    place: str
    """The working directory of an empty session."""
    abilities: tuple[str, ...]
    """What the agent can do with sessions."""
    refusal: str = ""
    """Why it has none for questions: it isn't asked again."""
    begun: set[str] = field(default_factory=set)
    """The sessions that were begun."""

    def new(self, *, main: str, copies: bool, is_busy: bool) -> "AcpAside":
        """Return another question; raises `AsideFailed` where the agent takes none.

        It is asked beside the session `main`, where a turn runs that `is_busy`.
        """
        if self.refusal:
            raise AsideFailed(f"No answer beside the turn: {self.refusal}.")
        return AcpAside(self, main=main, copies=copies, is_busy=is_busy)

    def forget(self) -> None:
        """Remove what the agent keeps of these sessions."""
        for session in self.begun:
            self.runtime.forget(self.spec, session)


class AcpAside(CliAside[RpcMessage]):
    """One question: its session is begun, given its model and its mode, asked, and left."""

    def __init__(self, sessions: AsideSessions, *, main: str, copies: bool, is_busy: bool) -> None:
        """`main` is the session that it is asked beside; a turn runs there if that `is_busy`."""
        super().__init__()
        self._sessions = sessions
        self._peer = sessions.peer
        self._main = main
        self._copies = copies
        self._is_busy = is_busy
        self.session = ""
        """Its own session, once that has begun."""
        self._prompt = ""
        self._settings: list[Request] = []
        """What is to be chosen before it is asked."""
        self._request = 0
        """The request whose answer is waited for."""
        self._then: Callable[[Mapping[str, Any]], Awaitable[None]] = self._begun
        self._is_asked = False
        self._said: list[str] = []

    # -- asking --------------------------------------------------------------------------------

    async def ask(self, prompt: str) -> None:
        """Begin the session; the rest follows when that is answered."""
        spec, is_new = self._sessions.spec, not self._copies
        instructions = spec.plain_prompt if self._sessions.runtime.instructs_by_prompt else ""
        before = instructions if is_new else _AT_WORK if self._is_busy else ""
        self._prompt = "\n\n".join(filter(None, (before, prompt)))
        # A copy is in the same place, where the agent has begun the servers that it knows.
        where = {"cwd": self._sessions.place if is_new else spec.workspace, "mcpServers": []}
        if is_new:
            await self._send(("session/new", where), self._begun)
        else:
            await self._send(("session/fork", {**where, "sessionId": self._main}), self._begun)

    async def _send(
        self, request: Request, then: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> None:
        self._request, self._then = self._peer.reserve(), then
        await self._peer.request(*request, self._request)

    async def _begun(self, result: Mapping[str, Any]) -> None:
        """Choose the model and the mode of the session."""
        session = text(result.get("sessionId"))
        if session in ("", self._main):
            self._refuse("it has no second session")
            return
        self.session = session
        self._sessions.begun.add(session)
        runtime, model = self._sessions.runtime, self._sessions.spec.model
        mode = mode_request(session, runtime.aside_modes, result)
        if mode is None and runtime.needs_aside_mode:
            self._refuse("it has no mode in which it asks for every tool")
            await self._leave()
            return
        chosen = model_request(session, model, result) if model else None
        self._settings = [request for request in (chosen, mode) if request]
        await self._go_on({})

    async def _go_on(self, _result: Mapping[str, Any]) -> None:
        if self._settings:
            await self._send(self._settings.pop(0), self._go_on)
            return
        self._is_asked = True
        parts = [{"type": "text", "text": self._prompt}]
        prompt = {"sessionId": self.session, "prompt": parts}
        await self._send(("session/prompt", prompt), self._answered)

    # -- what the agent says -------------------------------------------------------------------

    async def take(self, message: RpcMessage) -> bool:
        """Take an answer to a request of it, or what is said in its session."""
        if not message.method:
            return await self._take_answer(message)
        if not self.session or message.params.get("sessionId") != self.session:
            return False
        if message.is_request:
            await deny(self._peer, message)
            await self._give_up("it asked for a permission")
        elif message.method == "session/update":
            await self._update(mapping(message.params.get("update")))
        return True

    async def _take_answer(self, message: RpcMessage) -> bool:
        if message.id != self._request:
            return False
        if message.error is None:
            if not self.is_over:
                await self._then(message.result)
        elif self._is_asked:
            await self._give_up(failure(message.error)[1])
        else:
            self._refuse(_why(message.error))
            await self._leave()
        return True

    async def _update(self, update: Mapping[str, Any]) -> None:
        if not self._is_asked:
            return  # the conversation as it was copied, or a change of the mode
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._said.append(text(mapping(update.get("content")).get("text")))
            case "tool_call" | "tool_call_update":
                await self._give_up("it began to use a tool")

    async def take_log(self, note: LogNote) -> None:
        """Take a line of the log: who has to wait for its model has no answer."""
        if note.session not in (None, self.session):
            return
        if note.failure:
            await self._give_up(note.failure.detail)
        elif note.is_own:
            await self._give_up("the conversation is too long")

    async def _answered(self, result: Mapping[str, Any]) -> None:
        answer, reason = "".join(self._said).strip(), result.get("stopReason")
        if reason in ("cancelled", "refusal") or not answer:
            self.fail(f"it ended with {text(reason) or 'nothing'}")
        else:
            self.tell(answer)
        await self._leave()

    # -- the end -------------------------------------------------------------------------------

    def _refuse(self, why: str) -> None:
        self._sessions.refusal = why
        self.fail(why)

    async def _give_up(self, why: str) -> None:
        if not self.is_over:
            self.fail(why)
            await self.stop()

    async def stop(self) -> None:
        """End what goes on in the session, and the session itself."""
        if self._is_asked:
            await self._peer.notify("session/cancel", {"sessionId": self.session})
        await self._leave()

    async def _leave(self) -> None:
        """Ask the agent to forget the session, as far as it can; its answer is dropped."""
        self._sessions.forget()
        for ability in ("delete", "close"):
            if self.session and ability in self._sessions.abilities:
                await self._peer.request(f"session/{ability}", {"sessionId": self.session})
                return


def _why(error: RpcError) -> str:
    return f"it can't begin another session ({failure(error)[1]})"
