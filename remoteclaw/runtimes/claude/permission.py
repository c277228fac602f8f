"""The requests of claude for permissions, in one turn."""

from collections.abc import Mapping
from typing import Any

from remoteclaw.events import PermissionEvent
from remoteclaw.protocols import Decision
from remoteclaw.runtimes.claude.hook import Directories, answer_of, decides_itself, is_own_file
from remoteclaw.runtimes.claude.intent import PLAN_TOOL, QUESTION_TOOL, intent_of
from remoteclaw.runtimes.claude.peer import ClaudePeer
from remoteclaw.runtimes.questions import questions_of
from remoteclaw.runtimes.wire import mapping, text

#: The denial of a command that would run beside another one which may change its directory.
_BESIDE = "Another command runs, and one of the two may change the directory: run it afterwards."


class Permissions:
    """Translates requests into events, and decisions into answers.

    For one use of a tool there can be two requests: that of the hook, and claude's own, if one of
    its rules demands it.
    """

    def __init__(self, peer: ClaudePeer, unasked: tuple[str, ...]) -> None:
        """`unasked` are the MCP servers whose tools need no permission."""
        self._peer = peer
        self._unasked = tuple(f"mcp__{server}__" for server in unasked)
        self._directories = Directories()
        self._allowed: dict[str, Mapping[str, Any]] = {}
        """The arguments that the hook has allowed, by the id of the call."""

    async def take(self, message: dict[str, Any]) -> PermissionEvent | None:
        """Return the event of a request; answer one that needs no decision, and return None."""
        request = mapping(message.get("request"))
        match request.get("subtype"):
            case "hook_callback":
                return await self._take_hook(message, mapping(request.get("input")))
            case "can_use_tool":
                return await self._take_own(message, request)
        await self._peer.refuse(message)
        return None

    async def _take_hook(
        self, message: dict[str, Any], hook_input: Mapping[str, Any]
    ) -> PermissionEvent | None:
        """Take the request before claude and the user's hooks decide."""
        tool, call = text(hook_input.get("tool_name")), text(hook_input.get("tool_use_id"))
        if tool == "Bash" and not self._directories.begin(call, hook_input):
            await self._peer.respond(message, answer_of(Decision("deny", _BESIDE)))
            return None
        tool_input = mapping(hook_input.get("tool_input"))
        intent = intent_of(tool, tool_input, self._directories.of(call))
        is_claudes = intent is None and decides_itself(tool, tool_input)
        if is_claudes or tool.startswith(self._unasked) or is_own_file(tool, hook_input):
            await self._peer.respond(message, {})
            return None
        return PermissionEvent(text(message.get("request_id")), tool, tool_input, intent=intent)

    async def _take_own(
        self, message: dict[str, Any], request: Mapping[str, Any]
    ) -> PermissionEvent | None:
        tool, call = text(request.get("tool_name")), text(request.get("tool_use_id"))
        tool_input = mapping(request.get("input"))
        if self._allowed.pop(call, None) == tool_input:
            await self._peer.respond(message, {"behavior": "allow", "updatedInput": tool_input})
            return None
        return PermissionEvent(
            text(message.get("request_id")),
            tool,
            tool_input,
            intent=intent_of(tool, tool_input, self._directories.of(call)),
            questions=questions_of(tool_input) if tool == QUESTION_TOOL else (),
            plan=text(tool_input.get("plan")) if tool == PLAN_TOOL else None,
        )

    async def answer(self, message: dict[str, Any], decision: Decision) -> None:
        """Answer a request with a decision."""
        request = mapping(message.get("request"))
        tool_input = mapping(request.get("input"))
        if request.get("subtype") == "hook_callback":
            if decision.verdict == "allow":
                arguments = mapping(tool_input.get("tool_input"))
                self._allowed[text(tool_input.get("tool_use_id"))] = arguments
            await self._peer.respond(message, answer_of(decision))
            return
        if decision.verdict == "deny":
            if decision.ends_planning:
                await self._peer.set_mode("default")
            denial = {"behavior": "deny", "message": decision.message}
            await self._peer.respond(message, denial)
            return
        if decision.answers:
            texts = (question.text for question in questions_of(tool_input))
            tool_input = {**tool_input, "answers": dict(zip(texts, decision.answers, strict=True))}
        await self._peer.respond(message, {"behavior": "allow", "updatedInput": tool_input})

    def end(self, call: str) -> None:
        """Note the end of a tool call, or its denial."""
        self._directories.end(call)


def tool_of(message: dict[str, Any]) -> str:
    """Return the name of the tool that a request is about."""
    request = mapping(message.get("request"))
    return text(request.get("tool_name")) or text(mapping(request.get("input")).get("tool_name"))
