"""The real claude, in a stock `rq worker`, with a scripted model."""

import json
import os
from pathlib import Path

from tests.support.agents import AgentCli
from tests.support.stack import Stack, said


def pid_of(detail: str) -> int:
    return int(detail.rpartition(" ")[2])


async def test_settings_of_a_trusted_workspace_are_used(stack: Stack, claude: AgentCli) -> None:
    workspace = stack.home.path / "mine"
    hook = {"type": "command", "command": f"touch {stack.home.path / 'project-ran'}"}
    (workspace / ".claude").mkdir(parents=True)
    (workspace / ".claude" / "settings.json").write_text(
        json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}})
    )
    (workspace / "CLAUDE.md").write_text("PROJECT-MEMORY")
    stack.configure(claude.config(workspace=str(workspace), trust_workspace=True))
    await stack.start_worker()

    await stack.ask("SAY:hi")

    assert (stack.home.path / "project-ran").exists()
    assert "PROJECT-MEMORY" in claude.model.bodies().splitlines()[-1]


async def test_settings_of_an_untrusted_workspace_are_ignored(
    stack: Stack, claude: AgentCli
) -> None:
    """Otherwise, whoever can write a file there could run any program, whatever the permissions."""
    workspace, user = stack.home.path / "theirs", Path(os.environ["HOME"])

    def settings(mark: Path) -> str:
        hook = {"hooks": [{"type": "command", "command": f"touch {mark}"}]}
        return json.dumps({"hooks": {"UserPromptSubmit": [hook]}})

    server = {"command": "touch", "args": [str(stack.home.path / "server-ran")]}
    files = {
        workspace / ".claude" / "settings.json": settings(stack.home.path / "project-ran"),
        workspace / ".claude" / "settings.local.json": settings(stack.home.path / "local-ran"),
        workspace / ".mcp.json": json.dumps({"mcpServers": {"hostile": server}}),
        workspace / "CLAUDE.md": "PROJECT-MEMORY",
        user / ".claude" / "settings.json": settings(stack.home.path / "user-ran"),
        user / ".claude" / "CLAUDE.md": "USER-MEMORY",
    }
    for file, content in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    secret = stack.home.path / "secret.txt"
    secret.write_text("TOP-SECRET-4711")
    stack.configure(claude.config(permissions="deny", workspace=str(workspace)))
    await stack.start_worker()

    await stack.ask("SAY:hi")

    ran = {file.name for file in stack.home.path.glob("*-ran")}
    assert ran == {"user-ran"}
    asked = claude.model.bodies().splitlines()[-1]
    assert "USER-MEMORY" in asked
    assert "PROJECT-MEMORY" not in asked
    await reads_no_file(stack, claude, secret)


async def reads_no_file(stack: Stack, claude: AgentCli, secret: Path) -> None:
    """By itself, claude replaces an @ mention with the file's content, whatever the permissions."""
    for mention in ("@{}", '@"{}"', "look\u3002@{}", "@{}#L1-2"):
        text = f"RECALL {mention.format(secret)} please"

        await stack.ask(text, user_name=f"@{secret}")

        asked = claude.model.bodies()
        # The text itself arrives unchanged.
        assert json.dumps(text, ensure_ascii=False)[1:-1] in asked
        assert "TOP-SECRET" not in asked


async def test_claude_gets_messages_as_text_and_no_secrets_and_answers_once(
    stack: Stack, claude: AgentCli
) -> None:
    """No message is read as an option or a command. The long answer's stream breaks off once."""
    stack.configure(claude.config())
    await stack.start_worker(
        OPENAI_API_KEY="another provider's",
        GEMINI_API_KEY="another provider's",
        REMOTECLAW__REDIS__URL=stack.redis.url,
        TELEGRAM_TOKEN="a channel's",
        CLAUDECODE="1",
    )
    accepted = await stack.append("SAY:hi")
    await stack.outcome(accepted)
    pid = pid_of(await stack.reached(accepted, "spawned"))

    environment = Path(f"/proc/{pid}/environ").read_text().split("\0")

    names = {line.partition("=")[0] for line in environment}
    assert "ANTHROPIC_API_KEY" in names
    assert not names & {"OPENAI_API_KEY", "GEMINI_API_KEY", "TELEGRAM_TOKEN", "CLAUDECODE"}
    assert {name for name in names if name.startswith("REMOTECLAW")} == {"REMOTECLAW_HOLDER"}
    assert "nobody's key" not in Path(f"/proc/{pid}/cmdline").read_text()

    for text in ("-p ECHO", "--help ECHO", "/help ECHO", "!ls ECHO", "@x ECHO"):
        assert (await stack.ask(text)).endswith(text)

    outcome = await stack.outcome(await stack.append("DROP*1 LONG:9000"))
    text = "".join(str(part["text"]) for part in outcome.reply)
    assert len(outcome.reply) > 2
    assert text.count("## Section 1\n") == 1
    assert text.endswith("END-OF-LONG")


# -- messages that join a running turn ------------------------------------------------------------


async def test_messages_join_a_running_turn_of_claude(
    stack: Stack, claude: AgentCli, directory: Path
) -> None:
    stack.configure(claude.config(permissions="auto"), queue={"mode": "steer"})
    await stack.start_worker()
    await has_no_background_tasks(stack)
    await gets_a_message_with_the_result_of_its_tool(stack, claude, directory)
    await answers_late_messages_right_after_its_answer(stack)
    await is_stopped_with_the_messages_that_it_has_not_read(stack)


async def has_no_background_tasks(stack: Stack) -> None:
    """At the end of a background task, claude would start a turn that answers no message."""
    call = json.dumps({"command": "true", "run_in_background": True})

    assert "unexpected parameter `run_in_background`" in await stack.ask(f"TOOL:Bash:{call}")


def bash(command: str) -> str:
    return f"TOOL:Bash:{json.dumps({'command': command})}"


async def gets_a_message_with_the_result_of_its_tool(
    steered: Stack, claude: AgentCli, directory: Path
) -> None:
    until_go = f"until [ -e {directory}/go ]; do sleep 0.01; done"
    # Nothing shows when claude has read the message, so the tool runs a moment longer.
    first = await steered.append(bash(f"{until_go}; sleep 0.5; echo ok"))
    await steered.reached(first, "tool")
    second = await steered.append("SAY:two")
    await steered.reached(second, "steered")
    (directory / "go").touch()

    outcomes = [await steered.outcome(first), await steered.outcome(second)]
    assert [outcome.status for outcome in outcomes] == ["done", "steered"]
    assert [said(outcome) for outcome in outcomes] == ["DONE ok", "DONE ok"]
    last = json.loads(claude.model.bodies().splitlines()[-1])
    assert "SAY:two" in json.dumps(last["messages"][-2:])


async def answers_late_messages_right_after_its_answer(steered: Stack) -> None:
    first = await steered.append("DRIP:40:50")
    await steered.reached(first, "output")
    second = await steered.append("SAY:two")
    third = await steered.append("SAY:three")

    outcomes = [await steered.outcome(each) for each in (first, second, third)]

    assert [outcome.status for outcome in outcomes] == ["done", "steered", "steered"]
    texts = [str(part["text"]) for part in outcomes[0].reply]
    assert texts[0].endswith("w40")
    assert texts[-1] == "three"  # claude may answer both at once
    fourth = await steered.append("RECALL")
    recalled = said(await steered.outcome(fourth))
    assert "SAY:two" in recalled
    assert "SAY:three" in recalled
    assert (await steered.reached(fourth, "spawned")).startswith("warm")


async def is_stopped_with_the_messages_that_it_has_not_read(steered: Stack) -> None:
    first = await steered.append(bash("sleep 600"))
    await steered.reached(first, "tool")
    second = await steered.append(bash("touch ran; echo never"))
    await steered.reached(second, "steered")
    await steered.fleet.sessions.stop(first.session.sid)

    assert (await steered.outcome(first)).status == "stopped"
    assert (await steered.outcome(second)).status == "stopped"
    assert "never" not in await steered.ask("SAY:on we go")
    assert not (steered.home.path / "workspaces" / "main" / "ran").exists()
