"""Anthropic Messages, which claude speaks."""

import json
from collections.abc import Iterator
from typing import Any

from tests.support.model_server.conversation import (
    Conversation,
    Event,
    Picture,
    Plan,
    Tool,
    as_tags,
    new_id,
)

_ADDED = as_tags(
    "system-reminder",
    "local-command-caveat",
    "local-command-stdout",
    "command-name",
    "command-message",
    "command-args",
)
#: What claude says in the user's name behind an answer with nothing in it.
_NOTHING_SAID = "[Your previous response had no visible output."
#: The block of text with which RemoteClaw's messages to claude end.
_CLOSING = "(End of the message.)"
_KINDS = {
    400: ("invalid_request_error", "messages: the request is not valid"),
    401: ("authentication_error", "invalid x-api-key"),
    404: ("not_found_error", "Not found"),
    429: ("rate_limit_error", "This request would exceed your account's rate limit."),
    500: ("api_error", "Internal server error"),
    529: ("overloaded_error", "Overloaded"),
}
_ABOUT = {
    "limit": "This request would exceed your account's rate limit. Please try again later.",
    "model": "model: scripted-unknown",
    "context": "prompt is too long: 217013 tokens > 200000 maximum",
    "image": "messages.2.content.0.image.source.base64.data: Could not process image",
    "credit": "Your credit balance is too low to access the Anthropic API.",
}
_STATUSES = {"limit": 429, "model": 404}
_NO_SIGNATURE = "c2ln"


class Anthropic:
    """How claude is spoken to."""

    name = "anthropic"
    paths: tuple[str, ...] = ("/v1/messages",)

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        output = body.get("output_config") or {}
        conversation = Conversation(
            model=body.get("model", "scripted"),
            streams=bool(body.get("stream")),
            system="\n".join(part["text"] for part in _parts(body.get("system") or "")),
            tools=[
                Tool(tool["name"], tool.get("input_schema") or {}) for tool in body.get("tools", [])
            ],
            schema=(output.get("format") or {}).get("schema"),
        )
        for message in body.get("messages", []):
            parts = _parts(message["content"])
            conversation.results += [_result(part) for part in parts if _is(part, "tool_result")]
            # What reaches claude in the middle of a turn stands in a "system" message.
            if message["role"] == "user":
                texts = [_ADDED.sub("", part["text"]) for part in parts if _is(part, "text")]
                conversation.hear(
                    [
                        text
                        for text in texts
                        if text.strip() != _CLOSING and not text.startswith(_NOTHING_SAID)
                    ],
                    [_picture(part["source"]) for part in parts if _is(part, "image")],
                )
        return conversation

    def whole(self, plan: Plan, model: str) -> dict[str, Any]:
        return _message(model, _blocks(plan), _stop_reason(plan), plan)

    def stream(self, plan: Plan, model: str) -> Iterator[Event]:
        yield Event({"type": "message_start", "message": _message(model, [], None, plan)})
        for index, block in enumerate(_blocks(plan)):
            yield from _stream_block(plan, index, block)
        stop = {"stop_reason": _stop_reason(plan), "stop_sequence": None}
        usage = {"output_tokens": plan.charge.output}
        yield Event({"type": "message_delta", "delta": stop, "usage": usage})
        yield Event({"type": "message_stop"})

    def headers(self, plan: Plan) -> dict[str, str]:
        if plan.about != "limit":
            return plan.retry_after
        claim = {"status": "rejected", "representative-claim": "five_hour"}
        claim["reset"] = str(plan.resets_at)
        return {f"anthropic-ratelimit-unified-{name}": value for name, value in claim.items()}

    def broken(self, plan: Plan) -> Iterator[Event]:
        yield Event({"type": "message_start", "message": _message("scripted", [], None, plan)})
        yield Event(self.error(plan)[1])

    def error(self, plan: Plan) -> tuple[int, dict[str, Any]]:
        status = _STATUSES.get(plan.about, 400) if plan.about else plan.status
        kind, message = _KINDS.get(status, _KINDS[500])
        error = {"type": kind, "message": _ABOUT.get(plan.about, message)}
        return status, {"type": "error", "error": error}


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _is(part: dict[str, Any], kind: str) -> bool:
    return bool(part["type"] == kind)


def _result(part: dict[str, Any]) -> str:
    return "".join(inner.get("text", "") for inner in _parts(part.get("content") or ""))


def _picture(source: dict[str, Any]) -> Picture:
    return Picture.of_base64(source["media_type"], source["data"])


def _blocks(plan: Plan) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if plan.thinking:
        thinking = {"type": "thinking", "thinking": plan.thinking, "signature": _NO_SIGNATURE}
        blocks.append(thinking)
    if plan.text:
        blocks.append({"type": "text", "text": plan.text})
    if call := plan.call:
        use = {"type": "tool_use", "id": new_id("toolu_")}
        blocks.append({**use, "name": call.tool.name, "input": call.arguments})
    return blocks


def _stop_reason(plan: Plan) -> str:
    return "tool_use" if plan.call else "end_turn"


def _message(
    model: str, blocks: list[dict[str, Any]], stop: str | None, plan: Plan
) -> dict[str, Any]:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": plan.charge.input,
            "cache_read_input_tokens": plan.charge.cached,
            "cache_creation_input_tokens": plan.charge.written,
            "output_tokens": plan.charge.output,
        },
    }


def _stream_block(plan: Plan, index: int, block: dict[str, Any]) -> Iterator[Event]:
    """Begin a block with what is empty of it, then send it."""
    match block["type"]:
        case "text":
            empty: dict[str, Any] = {"text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in plan.pieces]
        case "thinking":
            empty = {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case _:
            empty = {"input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    start = {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
    yield Event(start)
    for delta in deltas:
        event = {"type": "content_block_delta", "index": index, "delta": delta}
        yield Event(event, is_text=block["type"] == "text")
    yield Event({"type": "content_block_stop", "index": index})
