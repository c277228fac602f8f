"""Asides of codex: each question is asked in an ephemeral copy of the thread.

The copy has the thread's tools, so that the provider reads the prompt from its cache. It must not
use them: an attempt is refused, and the aside fails.
"""

from collections.abc import Mapping
from typing import Any

from remoteclaw.events import AgentUsage
from remoteclaw.runtimes.asides import CliAside
from remoteclaw.runtimes.codex.turn import ThreadTokens, deny, is_answer
from remoteclaw.runtimes.jsonrpc import RpcMessage, RpcPeer
from remoteclaw.runtimes.wire import mapping, text

#: The types of a turn's items that are not tool calls.
_TEXT_ITEMS = frozenset(("userMessage", "agentMessage", "reasoning"))


class CodexAside(CliAside[RpcMessage]):
    """One question, in a separate thread that is closed afterwards."""

    def __init__(self, peer: RpcPeer, method: str, thread: Mapping[str, Any]) -> None:
        """`method` and `thread` are the method and parameters of the request for its thread."""
        super().__init__()
        self._peer = peer
        self._method, self._params = method, thread
        self._request = peer.reserve()
        """The id of the request in progress: first for the thread, then for the turn."""
        self._prompt = self._thread = self._turn = ""
        self._is_stopped = False
        self._texts: list[str] = []
        self._tokens = ThreadTokens(AgentUsage() if method == "thread/start" else None)
        self._has_answer = False
        """Whether the model has answered a request."""

    async def ask(self, prompt: str) -> None:
        """Begin the thread; the question is sent once codex has answered."""
        self._prompt, self.awaits_message = prompt, True
        await self._peer.request(self._method, self._params, self._request)

    async def take(self, message: RpcMessage) -> bool:
        """Handle a message of the aside's thread, or the answer to its request."""
        if not message.method and message.id == self._request:
            await self._take_answer(message)
            return True
        if not self._thread or message.params.get("threadId") != self._thread:
            return False
        params = message.params
        item = mapping(params.get("item"))
        self._has_answer |= is_answer(message)
        if message.is_request:
            await deny(self._peer, message)
            await self._fail_and_stop("asked to use a tool")
        elif message.method == "item/started" and item.get("type") == "contextCompaction":
            # Each copy would be summarized separately, for one question.
            await self._fail_and_stop("began to summarize the conversation")
        elif message.method == "thread/tokenUsage/updated":
            self._tokens.read(params, has_answer=self._has_answer)
            self.usage = self._tokens.new
        elif message.method == "item/started" and text(item.get("type")) not in _TEXT_ITEMS:
            await self._fail_and_stop("began to use a tool")
        elif message.method == "item/completed" and item.get("type") == "agentMessage":
            self._texts.append(text(item.get("text")))
        elif message.method == "turn/completed":
            await self._end(mapping(params.get("turn")))
        return True

    async def _take_answer(self, message: RpcMessage) -> None:
        if message.error:
            self.fail(f"codex says {str(message.error).rstrip('.')}")
            await self._close()
        elif self._thread:
            self._turn = text(mapping(message.result.get("turn")).get("id"))
            if self._is_stopped:
                await self._interrupt()
        else:
            self._thread = text(mapping(message.result.get("thread")).get("id"))
            if self._is_stopped:
                self.fail("it was cancelled")
                await self._close()
                return
            parts = [{"type": "text", "text": self._prompt, "text_elements": []}]
            self._request = self._peer.reserve()
            params = {"threadId": self._thread, "input": parts}
            await self._peer.request("turn/start", params, self._request)

    async def _fail_and_stop(self, why: str) -> None:
        self.fail(f"the agent {why}")
        await self.stop()

    async def _end(self, turn: Mapping[str, Any]) -> None:
        answer = "\n\n".join(filter(None, self._texts))
        if turn.get("status") == "completed" and answer:
            self.succeed(answer)
        why = text(mapping(turn.get("error")).get("message")) or "nothing"
        self.fail(f"codex says {why.rstrip('.')}")
        await self._close()

    async def stop(self) -> None:
        """Stop the turn, at once or as soon as it begins."""
        self._is_stopped = True
        await self._interrupt()

    async def _interrupt(self) -> None:
        if self._turn:
            params = {"threadId": self._thread, "turnId": self._turn}
            await self._peer.request("turn/interrupt", params)

    async def _close(self) -> None:
        """Have codex close the thread, which ends the thread's MCP servers."""
        self.awaits_message = False
        if self._thread:
            await self._peer.request("thread/unsubscribe", {"threadId": self._thread})
