"""Gemini's own API, which gemini speaks."""

import json
from collections.abc import Iterable, Iterator
from itertools import takewhile
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

_ADDED = as_tags("session_context", "hook_context")
#: Behind it stand the files that the user's text names with an @.
_REFERENCED = "--- Content from referenced files ---"
_STREAM = ":streamGenerateContent"
_KINDS = {
    400: ("INVALID_ARGUMENT", "Request contains an invalid argument."),
    401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
    404: ("NOT_FOUND", "Requested entity was not found."),
    429: ("RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."),
    500: ("INTERNAL", "An internal error has occurred."),
    503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
}
_ABOUT = {
    "context": (
        400,
        "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
    ),
    "credit": (
        429,
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "image": (400, "Unable to process input image. Please retry."),
    "limit": (429, "You exceeded your current quota, please check your plan and billing details."),
    "model": (
        404,
        "models/scripted-unknown is not found for API version v1beta, or is not supported for "
        "generateContent. Call ListModels to see the list of available models.",
    ),
}
#: Anthropic's "overloaded", which Google says otherwise.
_STATUSES = {529: 503}
_RPC = "type.googleapis.com/google.rpc"
_NO_SIGNATURE = "c2ln"


class Gemini:
    """How gemini is spoken to."""

    name = "gemini"
    paths: tuple[str, ...] = (
        f"/v1beta/models/{{model}}{_STREAM}",
        "/v1beta/models/{model}:generateContent",
    )

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        settings = body.get("generationConfig") or {}
        schema = settings.get("responseJsonSchema") or settings.get("responseSchema")
        conversation = Conversation(
            model=path.rpartition("/")[2].partition(":")[0],
            streams=path.endswith(_STREAM),
            system=_texts((body.get("systemInstruction") or {}).get("parts", [])),
            tools=list(_tools(body.get("tools") or [])),
            schema=schema,
        )
        for content in body["contents"]:
            parts = content["parts"]
            if content.get("role", "user") == "user":
                conversation.results += [
                    _result(part["functionResponse"])
                    for part in parts
                    if "functionResponse" in part
                ]
                inline = [part["inlineData"] for part in parts if "inlineData" in part]
                conversation.hear(
                    _said(part["text"] for part in parts if "text" in part),
                    [Picture.of_base64(data["mimeType"], data["data"]) for data in inline],
                )
        return conversation

    def whole(self, plan: Plan, model: str) -> dict[str, Any]:
        parts = [*_thoughts(plan), {"text": plan.text}, *_calls(plan)]
        return _chunk(model, parts, plan.charge)

    def stream(self, plan: Plan, model: str) -> Iterator[Event]:
        if plan.thinking:
            yield Event(_chunk(model, _thoughts(plan)))
        for piece in plan.pieces:
            yield Event(_chunk(model, [{"text": piece}]), is_text=True)
        yield Event(_chunk(model, _calls(plan) or [{"text": ""}], plan.charge))

    def headers(self, plan: Plan) -> dict[str, str]:
        return plan.retry_after

    def broken(self, plan: Plan) -> Iterator[Event]:
        yield Event(self.error(plan)[1])

    def error(self, plan: Plan) -> tuple[int, dict[str, Any]]:
        status, message = _ABOUT.get(plan.about, (_STATUSES.get(plan.status, plan.status), ""))
        kind, usual = _KINDS.get(status, _KINDS[500])
        error: dict[str, Any] = {"code": status, "message": message or usual, "status": kind}
        if status == 429:
            error["details"] = _details(plan)
        return status, {"error": error}


def _tools(offered: list[dict[str, Any]]) -> Iterator[Tool]:
    for group in offered:
        for function in group.get("functionDeclarations", []):
            yield Tool(function["name"], function.get("parametersJsonSchema") or {})


def _said(texts: Iterable[str]) -> list[str]:
    own = takewhile(lambda text: text.strip() != _REFERENCED, texts)
    return [_ADDED.sub("", text) for text in own]


def _texts(parts: list[dict[str, Any]]) -> str:
    return "\n".join(part.get("text", "") for part in parts)


def _result(answer: dict[str, Any]) -> str:
    response = answer["response"]
    result = response.get("output", response.get("error", response))
    return result if isinstance(result, str) else json.dumps(result)


def _thoughts(plan: Plan) -> list[dict[str, Any]]:
    return [{"text": plan.thinking, "thought": True}] if plan.thinking else []


def _calls(plan: Plan) -> list[dict[str, Any]]:
    if plan.call is None:
        return []
    call = {"id": new_id("fc-"), "name": plan.call.tool.name, "args": plan.call.arguments}
    return [{"functionCall": call, "thoughtSignature": _NO_SIGNATURE}]


def _chunk(model: str, parts: list[dict[str, Any]], charge: Charge | None = None) -> dict[str, Any]:
    """Return a chunk; the last one has the charge."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    chunk: dict[str, Any] = {"candidates": [candidate], "modelVersion": model}
    if charge:
        candidate["finishReason"] = "STOP"
        chunk["usageMetadata"] = {
            "promptTokenCount": charge.read,
            "candidatesTokenCount": charge.output,
            "totalTokenCount": charge.read + charge.output,
            "cachedContentTokenCount": charge.cached,
        }
    return chunk


def _details(plan: Plan) -> list[dict[str, Any]]:
    """Say which quota it was: a day's is not worth waiting for, a minute's is."""
    period = "PerDayPerProjectPerModel-FreeTier" if plan.about else "PerMinutePerProjectPerModel"
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_requests",
        "quotaId": f"GenerateRequests{period}",
    }
    details: list[dict[str, Any]] = [
        {"@type": f"{_RPC}.QuotaFailure", "violations": [violation]},
    ]
    if plan.retry_after_s:
        delay = f"{plan.retry_after_s}s"
        details.append({"@type": f"{_RPC}.RetryInfo", "retryDelay": delay})
    return details
