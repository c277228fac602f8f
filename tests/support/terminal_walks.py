"""Continues conversations of turns in each CLI's own program, and reads their transcripts."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson

from remoteclaw.config.home import Home
from remoteclaw.tty.input import cleaned
from tests.support.agents import AgentCli
from tests.support.dialogs import ESCALATED, HOSTILE, confirm, ignores_pastes
from tests.support.prefixes import asked, word
from tests.support.waiting import eventually
from tests.support.walks import walk

#: A text that gemini takes for a loop, also when the second answer repeats it.
LOOP = "SAY: " * 15 + "x"


async def in_its_terminal(home: Home, cli: AgentCli, conversation: str) -> None:
    """Request and refuse a tool, and send a text of commands as a message."""
    await _WALKS[cli.name](home, cli, conversation)
    assert not (home.path / "work" / "x").exists()


async def _claude(home: Home, cli: AgentCli, conversation: str) -> None:
    """Walk through claude; its first dialogs are answered, except the one about the workspace."""
    key, recall = cli.env["ANTHROPIC_API_KEY"][-20:], f"RECALL {word('here')}"
    answered = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [key], "rejected": []},
    }
    Path(os.environ["HOME"], ".claude.json").write_bytes(orjson.dumps(answered))
    async with walk(home, cli, conversation, system_prompt="who you are") as walked:
        tty, watch = walked.tty, walked.watch
        await tty.see("Yes, I trust this folder")
        assert (watch.activity, watch.is_ready) == ("unknown", False)
        await confirm(tty)
        await tty.becomes("idle")
        await tty.see("DRIP:500:50")
        await tty.submit("GREPSYS:who you are")
        await tty.see("GREPSYS true")
        await tty.becomes("idle")
        await tty.submit("SHELL:touch x")
        await tty.becomes("waiting")
        assert watch.waiting_for == "Bash: touch x"
        await ignores_pastes(tty)
        await tty.type("\x1b")
        await tty.becomes("idle")
        await tty.submit(recall + HOSTILE)
        await tty.becomes("idle")
        assert "hello from the model" in str(asked(cli.model, recall))
        assert watch.conversation == conversation
        await tty.end()  # it writes its transcript a moment later

    assert [(item.kind, item.text, item.name) for item in walked.items()[:6]] == [
        ("user", "GREPSYS:who you are", ""),
        ("agent", "GREPSYS true", ""),
        ("user", "SHELL:touch x", ""),
        ("tool", "touch x", "Bash"),
        ("notice", "The request was interrupted.", ""),
        ("user", cleaned(recall + HOSTILE), ""),
    ]
    assert walked.record.end() == walked.position, "each item once"


async def _codex(home: Home, cli: AgentCli, conversation: str) -> None:
    recall = f"RECALL {word('here')}"
    async with walk(home, cli, conversation, system_prompt='who you are: "Ada\'s"') as walked:
        tty, watch = walked.tty, walked.watch
        await tty.see("Open restricted")
        assert (watch.activity, watch.is_ready) == ("unknown", False)
        await confirm(tty)
        await tty.becomes("idle")
        await tty.submit(ESCALATED)
        await tty.becomes("waiting")
        assert watch.waiting_for == "permission"
        await ignores_pastes(tty)
        await tty.type("\x1b")
        await tty.becomes("idle")
        await tty.type("\x03")  # the pasted text is still in the composer
        await tty.submit(recall + HOSTILE)
        await tty.becomes("idle")
        request = str(asked(cli.model, recall))
        assert "hello from the model" in request
        assert "create_thread" not in request, "it has no tools for other threads"
        await eventually(lambda: watch.conversation == conversation)
        await tty.end()

    items = walked.items()
    assert [(item.kind, item.text, item.name) for item in items[:4]] == [
        ("user", ESCALATED, ""),
        ("tool", "touch x", "exec_command"),
        ("notice", "The request was interrupted.", ""),
        ("user", cleaned(recall + HOSTILE), ""),
    ]
    assert walked.items() == items, "each item once"


async def _gemini(home: Home, cli: AgentCli, conversation: str) -> None:
    signed_in = Path(os.environ["HOME"], ".gemini", "settings.json")
    signed_in.parent.mkdir(exist_ok=True)
    signed_in.write_text(
        '{"security": {"auth": {"selectedType": "gemini-api-key"}},'
        ' "general": {"enableNotifications": true}}'
    )
    async with walk(home, cli, conversation, prompt="RECALL") as walked:
        tty = walked.tty
        await eventually(lambda: tty.watch.is_ready)
        await tty.becomes("idle")
        assert tty.seen == ["unknown", "busy", "idle"], "it takes up its prompt"
        await tty.submit("SHELL: touch x")
        await tty.becomes("waiting")
        await ignores_pastes(tty)
        await tty.type("\x1b")
        await tty.becomes("idle")
        await tty.submit(LOOP)
        await tty.becomes("waiting")
        assert "loop" in tty.watch.waiting_for
        await tty.type("\x1b")
        await tty.see("A potential loop was detected. ")  # the dialog shows no more text there
        await tty.submit(f"SAY: quince{HOSTILE}")
        await tty.becomes("idle")
        await tty.end(signal.SIGTERM)

    items = walked.items()
    items = [item for item in items if "loop" not in item.text and "SAY: SAY:" not in item.text]
    recalled = items.pop(1)
    assert "hello from the model" in recalled.text, "it remembers the turns"
    assert [(item.kind, item.text) for item in items] == [
        ("user", "RECALL"),
        ("user", "SHELL: touch x"),
        ("tool", "touch x"),
        ("notice", "Request cancelled."),
        ("user", cleaned(f"SAY: quince{HOSTILE}")),
        ("agent", "quince"),
    ]


async def _opencode(home: Home, cli: AgentCli, conversation: str) -> None:
    async with walk(home, cli, conversation, prompt="RECALL") as walked:
        tty = walked.tty
        await eventually(lambda: tty.watch.is_ready)
        await tty.becomes("idle")
        assert tty.seen == ["unknown", "busy", "idle"], "it takes up its prompt"
        await tty.submit("SHELL: touch x")
        await tty.becomes("waiting")
        assert walked.watch.waiting_for == "bash: touch x"
        await tty.see("Allow once")  # a text that is pasted earlier goes to the composer
        await ignores_pastes(tty)
        await tty.type("\x1b")
        await tty.becomes("idle")
        walked.items()  # the file may be incomplete
        await tty.submit(f"SAY: quince{HOSTILE}")
        await tty.becomes("idle")
        assert walked.watch.conversation == conversation
        await tty.end(signal.SIGTERM)

    items = walked.items()
    recalled = items.pop(1)
    assert "hello from the model" in recalled.text, "it remembers the turns"
    assert [(item.kind, item.text) for item in items] == [
        ("user", "RECALL"),
        ("user", "SHELL: touch x"),
        ("tool", "touch x"),
        ("agent", "DONE The user rejected permission to use this specific tool call."),
        ("user", cleaned(f"SAY: quince{HOSTILE}")),
        ("agent", "quince"),
    ]


_WALKS: dict[str, Callable[[Home, AgentCli, str], Awaitable[None]]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
}
