"""OpenAI Chat Completions, which opencode speaks to whatever is compatible with OpenAI."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.model_server.charge import Charge
from tests.support.model_server.conversation import (
    Conversation,
    Event,
    Picture,
    Plan,
    Tool,
    as_tags,
    new_id,
)
from tests.support.model_server.openai_errors import openai_error

_ADDED = as_tags("system-reminder")
#: What opencode says in the user's name: about files, and when it has shortened a conversation.
_IN_THEIR_NAME = re.compile(
    r"Called the Read tool with the following input: .*|Image read successfully"
    r"|What did we do so far\?|The previous request exceeded .*|Continue if you have next steps.*",
    re.DOTALL,
)


class Chat:
    """How opencode is spoken to."""

    name = "chat"
    paths: tuple[str, ...] = ("/v1/chat/completions",)

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        output = (body.get("response_format") or {}).get("json_schema") or {}
        functions = [tool["function"] for tool in body.get("tools") or []]
        conversation = Conversation(
            model=body.get("model", "scripted"),
            streams=bool(body.get("stream")),
            system="",
            tools=[Tool(each["name"], each.get("parameters") or {}) for each in functions],
            schema=output.get("schema"),
        )
        for message in body["messages"]:
            parts = _parts(message.get("content") or [])
            texts = [part["text"] for part in parts if part["type"] == "text"]
            match message["role"]:
                case "system" | "developer":
                    conversation.system += "\n".join([*texts, ""])
                case "tool":
                    conversation.results.append("".join(texts))
                case "user":
                    urls = [part["image_url"]["url"] for part in parts if "image_url" in part]
                    conversation.hear(
                        [_ADDED.sub("", text) for text in texts if not _IN_THEIR_NAME.match(text)],
                        [Picture.of_url(url) for url in urls],
                    )
        return conversation

    def whole(self, plan: Plan, model: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": plan.text}
        if plan.thinking:
            message["reasoning_content"] = plan.thinking
        if plan.call:
            message["tool_calls"] = _calls(plan)
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(plan)}
        about = _about(model, "chat.completion")
        return {**about, "choices": [choice], "usage": _usage(plan.charge)}

    def stream(self, plan: Plan, model: str) -> Iterator[Event]:
        about = _about(model, "chat.completion.chunk")

        def chunk(finish_reason: str | None = None, /, **delta: Any) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
            return {**about, "choices": [choice]}

        yield Event(chunk(role="assistant", content=""))
        if plan.thinking:
            yield Event(chunk(reasoning_content=plan.thinking))
        for piece in plan.pieces:
            yield Event(chunk(content=piece), is_text=True)
        if plan.call:
            yield Event(chunk(tool_calls=_calls(plan)))
        yield Event(chunk(_finish_reason(plan)))
        yield Event({**about, "choices": [], "usage": _usage(plan.charge)})
        yield Event("[DONE]")

    def error(self, plan: Plan) -> tuple[int, dict[str, Any]]:
        return openai_error(plan)

    def headers(self, plan: Plan) -> dict[str, str]:
        return plan.retry_after

    def broken(self, plan: Plan) -> Iterator[Event]:
        yield Event(openai_error(plan)[1])


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _calls(plan: Plan) -> list[dict[str, Any]]:
    assert plan.call is not None, "whoever asks has looked"
    function = {"name": plan.call.tool.name, "arguments": json.dumps(plan.call.arguments)}
    return [{"index": 0, "id": new_id("call_"), "type": "function", "function": function}]


def _finish_reason(plan: Plan) -> str:
    return "tool_calls" if plan.call else "stop"


def _about(model: str, kind: str) -> dict[str, Any]:
    return {"id": new_id("chatcmpl-"), "object": kind, "created": 0, "model": model}


def _usage(charge: Charge) -> dict[str, Any]:
    return {
        "prompt_tokens": charge.read,
        "prompt_tokens_details": {"cached_tokens": charge.cached},
        "completion_tokens": charge.output,
        "total_tokens": charge.read + charge.output,
    }
