"""OpenAI Responses, which codex speaks."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.model_server.conversation import (
    Call,
    Conversation,
    Event,
    Picture,
    Plan,
    Tool,
    as_tags,
    new_id,
)
from tests.support.model_server.openai_errors import openai_error

_ADDED = as_tags("environment_context", "user_instructions", "turn_aborted", "recommended_plugins")
#: codex sends AGENTS.md as a user message.
_AGENTS = re.compile(r"# AGENTS\.md instructions.*?</INSTRUCTIONS>", re.DOTALL)
#: A picture is between two texts, an opening and a closing tag.
_FRAME = re.compile(r"<image(?: [^>]*)?>|</image>")
#: The beginning of the message with which codex continues a compacted conversation.
_SUMMARY = "Another language model started to solve this problem"


class Responses:
    """The protocol of codex: reads its requests and writes the responses."""

    name = "responses"
    paths: tuple[str, ...] = ("/v1/responses",)

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        output = (body.get("text") or {}).get("format") or {}
        conversation = Conversation(
            model=body.get("model", "scripted"),
            streams=bool(body.get("stream")),
            system=body.get("instructions") or "",
            tools=list(_tools(body.get("tools") or [])),
            schema=output.get("schema"),
        )
        for item in _items(body["input"]):
            if item["type"] == "additional_tools":
                conversation.tools += _tools(item["tools"])
            elif item["type"].endswith("_call_output"):
                conversation.results.append(_texts(item["output"]))
            elif item.get("role") in ("developer", "system"):
                conversation.system += "\n" + _texts(item["content"])
            elif item.get("role") == "user":
                parts = _parts(item["content"])
                conversation.hear(
                    [_without_added(part["text"]) for part in parts if "text" in part],
                    [Picture.of_url(part["image_url"]) for part in parts if "image_url" in part],
                )
        return conversation

    def whole(self, plan: Plan, model: str) -> dict[str, Any]:
        return {**_response(model), **_completed(plan, _output(plan))}

    def stream(self, plan: Plan, model: str) -> Iterator[Event]:
        response, output = _response(model), _output(plan)
        for number, (is_text, event) in enumerate(_events(plan, response, output)):
            yield Event({**event, "sequence_number": number}, is_text)

    def error(self, plan: Plan) -> tuple[int, dict[str, Any]]:
        return openai_error(plan)

    def headers(self, plan: Plan) -> dict[str, str]:
        if plan.about != "limit":
            return plan.retry_after
        window = {"used-percent": "100", "window-minutes": "300"}
        window["reset-at"] = str(plan.resets_at)
        return {f"x-codex-primary-{name}": value for name, value in window.items()}

    def broken(self, plan: Plan) -> Iterator[Event]:
        response, error = _response("scripted"), openai_error(plan)[1]["error"]
        yield Event({"type": "response.created", "response": response})
        # The API has another name for an invalid request within a stream.
        code = "invalid_prompt" if error["code"] == "invalid_value" else error["code"]
        about = {"code": code, "message": error["message"]}
        failed = {**response, "status": "failed", "error": about}
        yield Event({"type": "response.failed", "response": failed})


def _tools(offered: list[dict[str, Any]], namespace: str = "") -> Iterator[Tool]:
    for tool in offered:
        if tool["type"] == "namespace":
            yield from _tools(tool["tools"], tool["name"])
        else:
            # Tools that OpenAI runs itself, such as web_search, have no name.
            own = Tool(tool.get("name", tool["type"]), tool.get("parameters") or {}, namespace)
            yield own
            if tool["type"] == "custom":
                yield from _tools_in_code(tool.get("description", ""), own)


def _tools_in_code(description: str, runner: Tool) -> Iterator[Tool]:
    """Yield the tools that newer models use from JavaScript: they are declared in a description."""
    for section in description.split("\n### `")[1:]:
        name, _, declaration = section.partition("`")
        arguments = declaration.partition("(args: {")[2].partition("}): Promise")[0]
        names = re.findall(r"^\s+(\w+)\??:", arguments, re.MULTILINE)
        yield Tool(name, {"properties": {key: {} for key in names}}, runner=runner)


def _items(sent: Any) -> list[dict[str, Any]]:
    if isinstance(sent, str):
        return [{"type": "message", "role": "user", "content": sent}]
    return [{"type": "message", **item} for item in sent]


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


def _texts(content: Any) -> str:
    return "".join(part.get("text", "") for part in _parts(content))


def _without_added(text: str) -> str:
    if _FRAME.fullmatch(text.strip()) or text.startswith(_SUMMARY):
        return ""
    return _AGENTS.sub("", _ADDED.sub("", text))


def _response(model: str) -> dict[str, Any]:
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": 0,
        "status": "in_progress",
        "model": model,
        "output": [],
        "usage": None,
        "error": None,
    }


def _completed(plan: Plan, output: list[dict[str, Any]]) -> dict[str, Any]:
    usage = {
        "input_tokens": plan.charge.read,
        "input_tokens_details": {"cached_tokens": plan.charge.cached},
        "output_tokens": plan.charge.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": plan.charge.read + plan.charge.output,
    }
    return {"status": "completed", "output": output, "usage": usage}


def _output(plan: Plan) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if plan.thinking:
        summary = [{"type": "summary_text", "text": plan.thinking}]
        output.append({"type": "reasoning", "id": new_id("rs_"), "summary": summary})
    if plan.text:
        content = [{"type": "output_text", "text": plan.text, "annotations": []}]
        message = {"type": "message", "id": new_id("msg_"), "role": "assistant"}
        phase = "commentary" if plan.call else "final_answer"
        output.append({**message, "phase": phase, "content": content, "status": "completed"})
    if plan.call:
        output.append(_use(plan.call))
    return output


def _use(call: Call) -> dict[str, Any]:
    tool, arguments = call.tool, json.dumps(call.arguments)
    if tool.runner:
        how = {"type": "custom_tool_call", "input": f"text(await tools.{tool.name}({arguments}))"}
        tool = tool.runner
    else:
        how = {"type": "function_call", "arguments": arguments}
    use = {**how, "id": new_id("fc_"), "call_id": new_id("call_"), "status": "completed"}
    return {**use, "name": tool.name} | ({"namespace": tool.namespace} if tool.namespace else {})


def _events(
    plan: Plan, response: dict[str, Any], output: list[dict[str, Any]]
) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Return the events of a response, each with whether it carries a piece of the text."""
    yield False, {"type": "response.created", "response": response}
    yield False, {"type": "response.in_progress", "response": response}
    for index, item in enumerate(output):
        about = {"item_id": item["id"], "output_index": index}
        yield from _item_events(plan, about, item)
        done = {"type": "response.output_item.done", "output_index": index, "item": item}
        yield False, done
    yield (
        False,
        {"type": "response.completed", "response": {**response, **_completed(plan, output)}},
    )


def _item_events(
    plan: Plan, about: dict[str, Any], item: dict[str, Any]
) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield the events of an item: first the item without its content, then the content."""
    added = {"type": "response.output_item.added", "output_index": about["output_index"]}
    match item["type"]:
        case "message":
            yield False, {**added, "item": {**item, "content": [], "status": "in_progress"}}
            about = {**about, "content_index": 0}
            part = item["content"][0]
            yield False, _event("content_part.added", about, part={**part, "text": ""})
            for piece in plan.pieces:
                yield True, _event("output_text.delta", about, delta=piece)
            yield False, _event("output_text.done", about, text=part["text"])
            yield False, _event("content_part.done", about, part=part)
        case "reasoning":
            yield False, {**added, "item": {**item, "summary": []}}
            about = {**about, "summary_index": 0}
            part = item["summary"][0]
            name = "reasoning_summary"
            yield False, _event(f"{name}_part.added", about, part={**part, "text": ""})
            yield False, _event(f"{name}_text.delta", about, delta=part["text"])
            yield False, _event(f"{name}_text.done", about, text=part["text"])
            yield False, _event(f"{name}_part.done", about, part=part)
        case "custom_tool_call":
            yield False, {**added, "item": {**item, "input": "", "status": "in_progress"}}
            yield False, _event("custom_tool_call_input.delta", about, delta=item["input"])
            yield False, _event("custom_tool_call_input.done", about, input=item["input"])
        case _:
            yield False, {**added, "item": {**item, "arguments": "", "status": "in_progress"}}
            name, arguments = "function_call_arguments", item["arguments"]
            yield False, _event(f"{name}.delta", about, delta=arguments)
            yield False, _event(f"{name}.done", about, arguments=arguments)


def _event(name: str, about: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": f"response.{name}", **about, **more}
