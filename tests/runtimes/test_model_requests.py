"""The requests to the model in the CLIs' transcripts, with their tokens."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remoteclaw.config.load import load_config
from remoteclaw.events import AgentUsage
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.messages import SessionKey
from remoteclaw.protocols import ModelRequest
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.tty.terminal_usage import used_in
from tests.support.stack import Stack, message
from tests.support.terminals import place_of

ID = "5ab00000-0000-4000-8000-000000000001"
AT = "2026-11-27T00:38:51.637Z"
AT_MS = 1795739931637


def write(file: Path, records: Sequence[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(record, separators=(",", ":")) for record in records)
    file.write_text("".join(f"{line}\n" for line in lines) + '{"torn')


def requests_in(name: str, home: Path) -> list[ModelRequest]:
    program = create_cli_runtime(name).terminal
    assert program is not None
    return program.model_requests(ID, {"HOME": str(home)})


def of_claude(id_: str, output: int, **more: Any) -> dict[str, Any]:
    cached = {"cache_read_input_tokens": 50, "cache_creation_input_tokens": 9}
    usage = {"input_tokens": 100, "output_tokens": output, **cached}
    said = {"id": id_, "model": "opus", "usage": usage, **more}
    return {"type": "assistant", "timestamp": AT, "uuid": f"{id_}{output}", "message": said}


def test_claude_records_a_request_for_each_block_and_subagents_in_files_of_their_own(
    directory: Path,
) -> None:
    project = directory / ".claude/projects/-work"
    synthetic = of_claude("three", 1, model="<synthetic>")
    user = {"type": "user", "message": {"content": 'says "usage"'}}
    write(project / f"{ID}.jsonl", [user, of_claude("one", 1), of_claude("one", 7), synthetic])
    write(project / ID / "subagents/agent-1.jsonl", [of_claude("two", 3)])

    first, last, of_subagent = requests_in("claude", directory)

    assert (first.id, last.id, of_subagent.id) == ("one", "one", "two")
    assert last == ModelRequest("one", AT_MS, AgentUsage(100, 7, 50, 9), "opus")


def test_codex_records_its_total_again_without_a_request(directory: Path) -> None:
    def counted(total: int, output: int) -> dict[str, Any]:
        tokens = {"input_tokens": 100, "cached_input_tokens": 30, "output_tokens": output}
        info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": tokens}
        return {
            "timestamp": AT,
            "type": "event_msg",
            "payload": {"type": "token_count", "info": info},
        }

    context = {"type": "turn_context", "payload": {"model": "gpt"}}
    limits = {"type": "event_msg", "payload": {"type": "token_count", "info": None}}
    records = [limits, context, counted(107, 7), counted(107, 7), counted(216, 9)]
    write(directory / f".codex/sessions/2026/11/27/rollout-2026-{ID}.jsonl", records)

    one, two = requests_in("codex", directory)

    assert one == ModelRequest(f"{ID}/107", AT_MS, AgentUsage(70, 7, 30), "gpt")
    assert (two.id, two.usage.output_tokens) == (f"{ID}/216", 9)


def test_gemini_records_a_message_again_after_its_tools(directory: Path) -> None:
    tokens = {"input": 100, "output": 7, "cached": 40, "thoughts": 5, "tool": 2, "total": 114}
    said: dict[str, Any] = {"id": "m1", "timestamp": AT, "type": "gemini", "model": "pro"}
    said["tokens"] = tokens
    records = [{"sessionId": ID}, said, {**said, "toolCalls": []}, {"$set": {"messages": [said]}}]
    write(directory / f".gemini/tmp/work/chats/session-2026-{ID[:8]}.jsonl", records)

    one, again = requests_in("gemini", directory)

    assert one == again == ModelRequest("m1", AT_MS, AgentUsage(62, 12, 40), "pro")


async def test_a_terminal_counts_what_is_newer_than_itself_at_its_models_prices(
    stack: Stack, directory: Path
) -> None:
    """What its conversation had before belongs to turns, or to a copied conversation."""
    prices = {"opus": {"input": 10, "cached": 1, "output": 100}}
    stack.configure({"runtime": "claude", "model": "small"}, prices=prices)
    config = load_config(stack.home.config_file, {})
    old = {**of_claude("old", 5), "timestamp": "2026-11-27T00:38:40.000Z"}
    file = directory / f".claude/projects/-work/{ID}.jsonl"
    write(file, [old, of_claude("one", 1), of_claude("one", 7), of_claude("two", 7)])
    place = place_of("1-0", places={"HOME": str(directory)}, started_ms=AT_MS - 1000)
    session = SessionKey.of(message("hello"), agent="main")

    used = used_in(place, [ID, "5ab00000-0000-4000-8000-000000000002"], config, session)

    cost = 2 * (109 * 10 + 50 * 1 + 7 * 100)
    assert used == Usage(0, 200, 14, 100, 18, 0, cost)
