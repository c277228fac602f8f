"""The scripted model: it speaks each API as the CLIs expect."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from tests.support.model_server.server import ModelServer

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
CHAT = "/v1/chat/completions"
GEMINI = "/v1beta/models/some:streamGenerateContent?alt=sse"
every_api = pytest.mark.parametrize("path", [MESSAGES, RESPONSES, CHAT, GEMINI])

HEADER = '[remoteclaw {"from":"alice","note":"she said SAY:no"}]\n\n'
#: Texts that the CLIs add to the user's message.
REMINDER = "<system-reminder>\nSAY:reminder\n</system-reminder>"
ENVIRONMENT = "<environment_context>\nSAY:environment\n</environment_context>"
SESSION = "<session_context>\nSAY:session\n</session_context>"
#: The schemas with which CLIs declare their shell tools.
COMMAND: dict[str, Any] = {"properties": {"command": {}, "description": {}}}
CMD: dict[str, Any] = {"properties": {"cmd": {}, "yield_time_ms": {}}}

Client = TestClient[Any, Any]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with TestClient(TestServer(ModelServer(tmp_path / "log").app())) as client:
        yield client


async def ask(client: Client, path: str, text: str) -> ClientResponse:
    """Send a prompt in the form that the CLI of this API uses."""
    text = HEADER + text
    bodies: dict[str, dict[str, Any]] = {
        MESSAGES: {
            "stream": True,
            "tools": [{"name": "Bash", "input_schema": COMMAND}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": REMINDER},
                        {"type": "text", "text": text},
                        {"type": "text", "text": "(End of the message.)"},
                    ],
                },
            ],
        },
        RESPONSES: {
            "stream": True,
            "tools": [{"type": "function", "name": "exec_command", "parameters": CMD}],
            "input": [{"role": "user", "content": each} for each in (ENVIRONMENT, text)],
        },
        CHAT: {
            "stream": True,
            "tools": [{"type": "function", "function": {"name": "bash", "parameters": COMMAND}}],
            "messages": [{"role": "user", "content": each} for each in (text, REMINDER)],
        },
        GEMINI: {
            "tools": [
                {
                    "functionDeclarations": [
                        {"name": "run_shell_command", "parametersJsonSchema": COMMAND}
                    ]
                }
            ],
            "contents": [{"role": "user", "parts": [{"text": SESSION}, {"text": text}]}],
        },
    }
    return await client.post(path, json=bodies[path])


async def events(response: ClientResponse) -> list[dict[str, Any]]:
    assert response.headers["content-type"] == "text/event-stream"
    lines = (await response.text()).splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def text_of(event: dict[str, Any]) -> str:
    """Return the part of the answer in an event of any API."""
    match event:
        case {"type": "content_block_delta", "delta": {"text": str(text)}}:
            return text
        case {"type": "response.output_text.delta", "delta": str(text)}:
            return text
        case {"choices": [{"delta": {"content": str(text)}}]}:
            return text
        case {"candidates": [{"content": {"parts": [{"text": str(text)}]}}]}:
            return text
    return ""


@every_api
async def test_the_model_obeys_the_user_and_not_the_text_that_the_cli_adds(
    client: Client, path: str
) -> None:
    answer = await events(await ask(client, path, "please\nSAY:a sentence of more than one piece"))

    pieces = [text for text in map(text_of, answer) if text]
    assert len(pieces) > 1
    assert "".join(pieces) == "a sentence of more than one piece"


@pytest.mark.parametrize(
    ("path", "end"),
    [
        (MESSAGES, {"type": "message_stop"}),
        (RESPONSES, {"usage": {"input_tokens": 100, "output_tokens": 7}}),
        (CHAT, {"usage": {"prompt_tokens": 100, "completion_tokens": 7}}),
        (GEMINI, {"usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 7}}),
    ],
)
async def test_the_model_ends_its_stream_as_each_api_does(
    client: Client, path: str, end: dict[str, Any]
) -> None:
    last = (await events(await ask(client, path, "SAY:x")))[-1]

    assert_has(last.get("response", last), end)


def assert_has(whole: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if isinstance(value, dict):
            assert_has(whole[key], value)
        else:
            assert whole[key] == value


async def test_the_model_calls_the_shell_of_claude(client: Client) -> None:
    answer = await events(await ask(client, MESSAGES, "SHELL:echo SAY:hi"))

    start = next(each for each in answer if each["type"] == "content_block_start")
    assert start["content_block"]["name"] == "Bash"
    delta = next(each for each in answer if each["type"] == "content_block_delta")
    assert json.loads(delta["delta"]["partial_json"])["command"] == "echo SAY:hi"


async def test_the_model_calls_the_shell_of_codex(client: Client) -> None:
    answer = await events(await ask(client, RESPONSES, "SHELL:echo SAY:hi"))

    item = next(each for each in answer if each["type"] == "response.output_item.done")["item"]
    assert (item["type"], item["name"]) == ("function_call", "exec_command")
    assert json.loads(item["arguments"])["cmd"] == "echo SAY:hi"


async def test_the_model_calls_the_shell_of_codex_from_code(client: Client) -> None:
    """Newer models call tools from code."""
    declaration = "### `exec_command`\ntools: { exec_command(args: {\n  cmd: string;\n}): Promise"
    runner = {"type": "custom", "name": "exec", "description": f"Run code\n{declaration}"}
    offer = {"type": "additional_tools", "role": "developer", "tools": [runner]}
    body = {"stream": True, "input": [offer, {"role": "user", "content": "SHELL:echo hi"}]}

    answer = await events(await client.post(RESPONSES, json=body))

    item = next(each for each in answer if each["type"] == "response.output_item.done")["item"]
    assert (item["type"], item["name"]) == ("custom_tool_call", "exec")
    assert item["input"] == 'text(await tools.exec_command({"cmd": "echo hi"}))'


async def test_the_model_calls_the_shell_of_opencode(client: Client) -> None:
    answer = await events(await ask(client, CHAT, "SHELL:echo SAY:hi"))

    choice = next(each for each in answer if "tool_calls" in each["choices"][0]["delta"])
    function = choice["choices"][0]["delta"]["tool_calls"][0]["function"]
    assert function["name"] == "bash"
    assert json.loads(function["arguments"])["command"] == "echo SAY:hi"


async def test_the_model_calls_the_shell_of_gemini(client: Client) -> None:
    answer = await events(await ask(client, GEMINI, "SHELL:echo SAY:hi"))

    call = answer[-1]["candidates"][0]["content"]["parts"][0]["functionCall"]
    assert call["name"] == "run_shell_command"
    assert call["args"]["command"] == "echo SAY:hi"


@pytest.mark.parametrize(
    ("path", "failure", "status", "error"),
    [
        (MESSAGES, "context", 400, {"type": "invalid_request_error"}),
        (RESPONSES, "context", 400, {"code": "context_length_exceeded"}),
        (CHAT, "context", 400, {"code": "context_length_exceeded"}),
        (GEMINI, "context", 400, {"status": "INVALID_ARGUMENT"}),
        (MESSAGES, "credit", 400, {"type": "invalid_request_error"}),
        (RESPONSES, "credit", 429, {"code": "insufficient_quota"}),
        (CHAT, "credit", 429, {"code": "insufficient_quota"}),
        (GEMINI, "credit", 429, {"status": "RESOURCE_EXHAUSTED"}),
    ],
)
async def test_a_named_failure_has_the_form_of_each_api(
    client: Client, path: str, failure: str, status: int, error: dict[str, str]
) -> None:
    response = await ask(client, path, f"HTTP:400:{failure}")

    assert response.status == status
    assert_has((await response.json())["error"], error)


@every_api
async def test_the_model_fails_as_often_as_the_prompt_says(client: Client, path: str) -> None:
    text = "HTTP:429*1 RETRYAFTER:3\nSAY:back"
    first, second = [await ask(client, path, text) for _ in range(2)]

    assert (first.status, first.headers["retry-after"]) == (429, "3")
    assert "".join(map(text_of, await events(second))) == "back"


@every_api
async def test_the_model_can_drop_the_connection_in_the_middle_of_an_answer(
    client: Client, path: str
) -> None:
    response = await ask(client, path, "DROP")

    assert response.status == 200
    with pytest.raises((ClientPayloadError, ConnectionResetError)):
        await response.read()


async def test_requests_of_the_cli_itself_do_not_run_scripted_commands(client: Client) -> None:
    system = {"role": "system", "content": "You are a title generator."}
    title = {"messages": [system, {"role": "user", "content": "SAY:obeyed"}]}
    schema = {"type": "OBJECT", "properties": {"score": {"type": "INTEGER"}}}
    contents = [{"role": "user", "parts": [{"text": "SAY:obeyed"}]}]
    score = {"contents": contents, "generationConfig": {"responseJsonSchema": schema}}

    titled = await (await client.post(CHAT, json=title)).json()
    scored = await (await client.post("/v1beta/models/some:generateContent", json=score)).json()

    assert titled["choices"][0]["message"]["content"] == "Scripted title"
    text = scored["candidates"][0]["content"]["parts"][0]["text"]
    assert json.loads(text) == {"score": 1}
