"""A scripted model server on loopback: real agent CLIs talk to it instead of to a model.

    python -m tests.support.model_server --port 0 --log requests.jsonl

It prints `LISTENING http://127.0.0.1:PORT` and speaks the Anthropic Messages API.
What it answers stands in the last user text, as directives in capitals at the start of a word:

    SAY:<text to the end of the line>   answer this text
    LONG:<n>                            about n characters of Markdown, ending with END-OF-LONG
    DRIP:<n>:<ms>                       n words, "w1 w2 …", one every ms milliseconds
    THINK:<text>                        a thinking block first
    TOOL:<name>:<JSON>                  use the tool whose name ends so; with its result back,
                                        answer "DONE <result>"
    SLEEP:<s>                           wait before anything is sent
    IMAGES                              answer with the kinds and sizes of the pictures it came with
    READ                                read the first file that its first line names, as TOOL does
    HTTP:<status>[:context|credit|image][*n]
                                        fail like the real API; *n only the first n times
    DROP[*n]                            send a part and cut the connection
    RECALL                              answer with the user's earlier texts
    TOOLS                               answer with the names of the tools that were offered
    GREPSYS:<text>                      answer whether the system prompt has it
    LEN                                 answer with the length of the last user text
    ECHO                                answer with the first 300 characters of the last user text

Without one it answers `ECHO <the text>`.
`GET /bodies` returns the last requests as they came, one a line.
"""

import argparse
import asyncio
import base64
import json
import re
import sys
import uuid
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

_DIRECTIVE = re.compile(
    r"(?:^|(?<=\s))(SAY|LONG|DRIP|THINK|TOOL|SLEEP|HTTP|DROP|RECALL|TOOLS|GREPSYS|LEN|ECHO|IMAGES|READ)"
    r"(?![A-Za-z_])(?::|(?=\*|\s|$))"
)
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
#: The block of text with which RemoteClaw's messages to claude end.
_CLOSING = "(End of the message.)"
#: How many requests are kept as they came.
KEPT_BODIES = 20
_ERRORS = {
    400: ("invalid_request_error", "messages: the request is not valid"),
    401: ("authentication_error", "invalid x-api-key"),
    429: ("rate_limit_error", "This request would exceed your account's rate limit."),
    500: ("api_error", "Internal server error"),
    529: ("overloaded_error", "Overloaded"),
}
_VARIANTS = {
    "context": "prompt is too long: 217013 tokens > 200000 maximum",
    "image": "messages.2.content.0.image.source.base64.data: Could not process image",
    "credit": "Your credit balance is too low to access the Anthropic API.",
}


class Cut(Exception):
    """Raised to drop a connection."""


@dataclass
class Plan:
    """What one request is answered with."""

    texts: list[str] = field(default_factory=list)
    thinking: str = ""
    tool: tuple[str, dict[str, Any]] | None = None
    sleep_s: float = 0
    drip_s: float = 0
    status: int = 200
    message: str = ""
    is_cut: bool = False

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)


class ModelServer:
    """The scripted model."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("a", buffering=1)
        self._seen: Counter[tuple[str, str]] = Counter()
        self._bodies: deque[bytes] = deque(maxlen=KEPT_BODIES)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/messages", self.messages)
        app.router.add_get("/bodies", self.bodies)
        app.router.add_route("*", "/{rest:.*}", self.anything)
        return app

    async def anything(self, request: web.Request) -> web.Response:
        """Answer what CLIs ask besides: counts, health."""
        return web.json_response({"input_tokens": 1})

    async def bodies(self, request: web.Request) -> web.Response:
        """Return the last requests as they came."""
        return web.Response(body=b"\n".join(self._bodies))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """Answer one request for a message."""
        raw = await request.read()
        self._bodies.append(raw)
        body = json.loads(raw)
        users, results = _conversation(body)
        text = users[-1][-1] if users else ""
        plan = self._plan(text, users, results, body)
        record = {"last": text[:200], "users": len(users), "tools": _tool_names(body)}
        self._log.write(json.dumps(record) + "\n")
        await asyncio.sleep(plan.sleep_s)
        if plan.status != 200:
            kind, message = _ERRORS.get(plan.status, _ERRORS[500])
            error = {"type": kind, "message": plan.message or message}
            return web.json_response({"type": "error", "error": error}, status=plan.status)
        try:
            if body.get("stream"):
                return await self._stream(request, plan, body)
        except Cut:
            assert request.transport is not None, "it was connected"
            request.transport.abort()
            raise ConnectionResetError from None
        if plan.is_cut:
            assert request.transport is not None, "it was connected"
            request.transport.abort()
            raise ConnectionResetError
        blocks = _blocks(plan)
        return web.json_response(_message(body, blocks, _stop_reason(plan)))

    def _plan(
        self, text: str, users: list[list[str]], results: list[str], body: dict[str, Any]
    ) -> Plan:
        plan, tools = Plan(), []
        for name, rest in _directives(text):
            value = rest.split("\n")[0].strip()
            word = rest.split()[0] if rest.split() else ""
            match name:
                case "SAY":
                    plan.texts.append(value)
                case "THINK":
                    plan.thinking = value
                case "LONG":
                    plan.texts.append(_long_text(int(word)))
                case "DRIP":
                    count, pause_ms = word.split(":")
                    plan.drip_s = int(pause_ms) / 1000
                    plan.texts.append(" ".join(f"w{n + 1}" for n in range(int(count))))
                case "TOOL":
                    tool_name, _, arguments = rest.partition(":")
                    arguments = json.JSONDecoder().raw_decode(arguments.strip())[0]
                    tools.append((_full_name(tool_name, body), arguments))
                case "SLEEP":
                    plan.sleep_s += float(word)
                case "HTTP":
                    self._fail(plan, text, word)
                case "DROP":
                    plan.is_cut = self._applies(text, name, rest)
                case "RECALL":
                    earlier = [text for texts in users for text in texts][:-1]
                    plan.texts.append("RECALL " + json.dumps(earlier))
                case "TOOLS":
                    plan.texts.append("TOOLS " + json.dumps(_tool_names(body)))
                case "GREPSYS":
                    plan.texts.append(f"GREPSYS {str(value in _system(body)).lower()}")
                case "LEN":
                    plan.texts.append(f"LEN {len(text)}")
                case "IMAGES":
                    plan.texts.append("IMAGES " + json.dumps(_images(body)))
                case "READ":
                    path = re.search(r'"path":"([^"]+)"', text)
                    tools.append(("Read", {"file_path": path[1] if path else "none"}))
                case "ECHO":
                    plan.texts.append("ECHO " + text[:300])
        if tools and len(results) < len(tools):
            plan.tool = tools[len(results)]
        elif tools:
            plan.texts.insert(0, f"DONE {results[-1]}")
        if plan.is_cut and not plan.texts:
            plan.texts.append("This answer is cut off in the middle " + "of it " * 40)
        if not plan.texts and not tools and plan.status == 200:
            plan.texts.append("ECHO " + text[:300])
        return plan

    def _fail(self, plan: Plan, text: str, word: str) -> None:
        spec = word.split("*")[0]
        if self._applies(text, "HTTP", word):
            status, _, variant = spec.partition(":")
            plan.status = int(status)
            plan.message = _VARIANTS.get(variant, "")

    def _applies(self, text: str, name: str, rest: str) -> bool:
        """Whether a directive with *n still applies to this prompt."""
        match = re.match(r"[\w:]*\*(\d+)", rest)
        if match is None:
            return True
        self._seen[text, name] += 1
        return self._seen[text, name] <= int(match[1])

    async def _stream(
        self, request: web.Request, plan: Plan, body: dict[str, Any]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)

        async def send(kind: str, **data: Any) -> None:
            event = json.dumps({"type": kind, **data})
            await response.write(f"event: {kind}\ndata: {event}\n\n".encode())

        await send("message_start", message={**_message(body, [], None), "stop_reason": None})
        for index, block in enumerate(_blocks(plan)):
            await self._stream_block(send, plan, index, block)
        usage = {"output_tokens": 7}
        stop = {"stop_reason": _stop_reason(plan), "stop_sequence": None}
        await send("message_delta", delta=stop, usage=usage)
        await send("message_stop")
        await response.write_eof()
        return response

    async def _stream_block(self, send: Any, plan: Plan, index: int, block: dict[str, Any]) -> None:
        if block["type"] == "text":
            await send(
                "content_block_start", index=index, content_block={"type": "text", "text": ""}
            )
            pieces = _pieces(block["text"], by_word=plan.drip_s > 0)
            for position, piece in enumerate(pieces):
                if plan.is_cut and position >= len(pieces) // 2:
                    # A model that is asked again never says quite the same.
                    delta = {"type": "text_delta", "text": " or rather"}
                    await send("content_block_delta", index=index, delta=delta)
                    await asyncio.sleep(0.05)
                    raise Cut
                delta = {"type": "text_delta", "text": piece}
                await send("content_block_delta", index=index, delta=delta)
                await asyncio.sleep(plan.drip_s)
        elif block["type"] == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            await send("content_block_start", index=index, content_block=empty)
            for delta in (
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": "c2ln"},
            ):
                await send("content_block_delta", index=index, delta=delta)
        else:
            await send("content_block_start", index=index, content_block={**block, "input": {}})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            await send("content_block_delta", index=index, delta=delta)
        await send("content_block_stop", index=index)


def _conversation(body: dict[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Return the user's texts, and the tool results since the last one.

    A text that was never answered stands in one message with the next one.
    """
    users: list[list[str]] = []
    results: list[str] = []
    for message in body.get("messages", []):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = []
        for block in blocks:
            if block["type"] == "tool_result":
                inner = block.get("content") or ""
                if isinstance(inner, list):
                    inner = "".join(part.get("text", "") for part in inner)
                results.append(inner)
            elif block["type"] == "text" and message["role"] == "user":
                texts.append(_REMINDER.sub("", block["text"]).strip())
        if said := [part for part in texts if part and part != _CLOSING]:
            users.append(said)
            results = []
    return users, results


def _images(body: dict[str, Any]) -> list[str]:
    """Return the kinds of the pictures in the last message, with their sizes in bytes."""
    contents = [message["content"] for message in body["messages"]]
    content = next(content for content in contents[::-1] if isinstance(content, list))
    pictures = [block["source"] for block in content if block["type"] == "image"]
    sizes = [len(base64.b64decode(picture["data"])) for picture in pictures]
    return [f"{p['media_type']} {size}" for p, size in zip(pictures, sizes, strict=True)]


def _directives(text: str) -> list[tuple[str, str]]:
    return [(match[1], text[match.end() :]) for match in _DIRECTIVE.finditer(text)]


def _full_name(name: str, body: dict[str, Any]) -> str:
    """Return the offered tool whose name ends so; agents put their server's name before it."""
    return next((full for full in _tool_names(body) if full.endswith(name)), name)


def _tool_names(body: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in body.get("tools", [])]


def _system(body: dict[str, Any]) -> str:
    system = body.get("system") or ""
    return system if isinstance(system, str) else "\n".join(part["text"] for part in system)


def _blocks(plan: Plan) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if plan.thinking:
        blocks.append({"type": "thinking", "thinking": plan.thinking, "signature": "c2ln"})
    if plan.text:
        blocks.append({"type": "text", "text": plan.text})
    if plan.tool:
        name, arguments = plan.tool
        tool_id = f"toolu_{uuid.uuid4().hex[:20]}"
        blocks.append({"type": "tool_use", "id": tool_id, "name": name, "input": arguments})
    return blocks


def _stop_reason(plan: Plan) -> str:
    return "tool_use" if plan.tool else "end_turn"


def _message(
    body: dict[str, Any], blocks: list[dict[str, Any]], stop: str | None
) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex[:20]}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "scripted"),
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 100, "output_tokens": 7},
    }


def _pieces(text: str, *, by_word: bool) -> list[str]:
    if by_word:
        return re.findall(r"\S+\s*", text)
    size = 24 if len(text) < 4000 else 120
    return [text[start : start + size] for start in range(0, len(text), size)]


def _long_text(size: int) -> str:
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        number = len(parts) + 1
        parts.append(
            f"## Section {number}\n\nParagraph {number} has **bold** and `code`, and goes on so "
            f"that there is something to cut.\n\n- one of {number}\n- two of {number}\n\n"
            f"```python\ndef f_{number}(x):\n    return x + {number}\n```\n\n"
        )
    return "".join(parts) + "END-OF-LONG"


async def _serve(port: int, log: Path) -> None:
    runner = web.AppRunner(ModelServer(log).app(), access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    assert site._server is not None, "it was started"
    bound = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    sys.stdout.write(f"LISTENING http://127.0.0.1:{bound}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)  # until whoever started us goes


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("requests.jsonl"))
    arguments = parser.parse_args()
    asyncio.run(_serve(arguments.port, arguments.log))


if __name__ == "__main__":
    main()
