"""The real claude, in a stock `rq worker`, with a scripted model behind it."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from remoteclaw.session.notices import SECOND_TRY
from tests.support.agents import ROOT, AgentCli
from tests.support.processes import is_alive, marked_processes
from tests.support.stack import Stack, said
from tests.support.waiting import eventually


@pytest.fixture
async def agent(stack: Stack, claude: AgentCli) -> Stack:
    """A stack whose agent is the real claude, and one worker."""
    stack.configure(claude.config())
    await stack.start_worker()
    return stack


def pid_of(detail: str) -> int:
    return int(detail.rpartition(" ")[2])


async def test_it_remembers_over_turns_and_processes(agent: Stack) -> None:
    first = await agent.append("SAY:one")
    await agent.outcome(first)
    second = await agent.append("my colour is green RECALL")
    assert "SAY:one" in said(await agent.outcome(second))
    await agent.until_idle(second)
    pid = pid_of(await agent.reached(second, "spawned"))
    await eventually(lambda: "my colour is green" in transcripts())  # claude writes it 0.1 s later
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(pid))

    third = await agent.append("RECALL")

    assert "my colour is green" in said(await agent.outcome(third))
    assert (await agent.reached(third, "spawned")).startswith("new claude")


def transcripts() -> str:
    """Return what claude itself has kept of its conversations."""
    projects = Path(os.environ["HOME"]) / ".claude" / "projects"
    return "".join(file.read_text() for file in projects.rglob("*.jsonl"))


async def test_a_follow_up_is_answered_by_the_same_process_through_another_worker(
    agent: Stack,
) -> None:
    first = await agent.append("SAY:one")
    await agent.outcome(first)
    await agent.until_idle(first)
    pid = pid_of(await agent.reached(first, "spawned"))
    agent.workers[0].terminate()
    await eventually(lambda: agent.workers[0].poll() is not None)
    await agent.start_worker()

    second = await agent.append("RECALL")

    assert "SAY:one" in said(await agent.outcome(second))
    assert await agent.reached(second, "spawned") == f"warm claude, pid {pid}"


async def test_it_is_told_who_and_where(agent: Stack) -> None:
    workspace = agent.home.path / "workspaces" / "main"

    assert "GREPSYS true" in await agent.ask('GREPSYS:the user "alice" writes to you')
    assert "GREPSYS true" in await agent.ask(f'GREPSYS:Your working directory is "{workspace}"')
    assert '[remoteclaw {"from":{"id":"alice","name":"Alice"}' in await agent.ask(
        "ECHO", user_name="Alice"
    )


async def test_a_message_is_never_an_option_or_a_command(agent: Stack) -> None:
    for text in ("-p ECHO", "--help ECHO", "/help ECHO", "!ls ECHO", "@x ECHO"):
        assert (await agent.ask(text)).endswith(text)


async def test_a_message_reads_no_file(stack: Stack, claude: AgentCli) -> None:
    """Claude puts a file in the place of what somebody typed with an @, whoever may read it."""
    secret = stack.home.path / "secret.txt"
    secret.write_text("TOP-SECRET-4711")
    stack.configure(claude.config(permissions="deny"))
    await stack.start_worker()
    for mention in ("@{}", '@"{}"', "look\u3002@{}", "@{}#L1-2"):
        text = f"RECALL {mention.format(secret)} please"

        await stack.ask(text, user_name=f"@{secret}")

        asked = claude.model.bodies()
        # The words themselves arrive as they are.
        assert json.dumps(text, ensure_ascii=False)[1:-1] in asked
        assert "TOP-SECRET" not in asked


async def test_it_calls_a_tool_of_a_configured_mcp_server(stack: Stack, claude: AgentCli) -> None:
    server = {
        "command": sys.executable,
        "args": ["-m", "tests.support.mcp_server"],
        "env": {"PYTHONPATH": str(ROOT), "TOKEN": "only the server's"},
    }
    stack.configure(claude.config(mcp_servers={"probe": server}))
    await stack.start_worker()

    call = 'TOOL:probe__echo:{"text":"ping"}'
    accepted = await stack.append(call)

    assert "echo: ping" in said(await stack.outcome(accepted))
    assert await stack.reached(accepted, "tool") == "mcp__probe__echo"
    again = await stack.append('TOOL:probe__variable:{"name":"TOKEN"}')
    assert "only the server's" in said(await stack.outcome(again))
    assert (await stack.reached(again, "spawned")).startswith("warm")
    assert "only the server's" not in command_lines(stack)


def command_lines(stack: Stack) -> str:
    return "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in marked_processes(stack.home))


async def test_text_around_a_tool_is_two_paragraphs(stack: Stack, claude: AgentCli) -> None:
    stack.configure(claude.config(permissions="auto"))
    await stack.start_worker()
    call = json.dumps({"command": "echo done-it", "description": "x"})

    reply = await stack.ask(f"SAY:first I look\nTOOL:Bash:{call}")

    assert reply.startswith("first I look\n\n")
    assert "DONE done-it" in reply


async def test_a_workspace_that_is_trusted_is_listened_to(stack: Stack, claude: AgentCli) -> None:
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


async def test_a_workspace_says_nothing_about_its_agent(stack: Stack, claude: AgentCli) -> None:
    """Who can write a file there could otherwise run what they like, whatever the agent may do."""
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
    stack.configure(claude.config(permissions="deny", workspace=str(workspace)))
    await stack.start_worker()

    await stack.ask("SAY:hi")

    ran = {file.name for file in stack.home.path.glob("*-ran")}
    assert ran == {"user-ran"}
    asked = claude.model.bodies().splitlines()[-1]
    assert "USER-MEMORY" in asked
    assert "PROJECT-MEMORY" not in asked


# -- background tasks -----------------------------------------------------------------------------


def background(flag: Path) -> str:
    """Return what makes claude start a task; when the flag is there, claude speaks of it."""
    call = {
        "command": f"until [ -e {flag} ]; do sleep 0.02; done",
        "run_in_background": True,
        "description": "wait SLEEP:0.5 SAY:unasked",
    }
    return f"TOOL:Bash:{json.dumps(call)}"


async def test_what_it_says_unasked_is_nobodys_answer(stack: Stack, claude: AgentCli) -> None:
    """When a task ends, claude takes a turn of its own, with a result like any other."""
    stack.configure(claude.config(permissions="auto"), linger_s=20)
    await stack.start_worker()
    flag = stack.home.path / "flag"
    await stack.ask(background(flag))

    flag.touch()
    await eventually(lambda: "<task-notification>" in claude.model.requests()[-1]["last"])
    accepted = [await stack.append(f"SAY:answer {number}") for number in (1, 2, 3)]

    answers = [said(await stack.outcome(one)) for one in accepted]
    assert answers == ["answer 1", "answer 2", "answer 3"]
    assert (await stack.reached(accepted[0], "spawned")).startswith("warm")


async def test_what_it_said_unasked_between_two_messages_is_nobodys_answer(
    stack: Stack, claude: AgentCli
) -> None:
    stack.configure(claude.config(permissions="auto"), linger_s=20)
    await stack.start_worker()
    flag = stack.home.path / "flag"
    first = await stack.append(background(flag))
    await stack.outcome(first)

    flag.touch()
    await eventually(lambda: "<task-notification>" in transcripts())
    await eventually(lambda: transcripts().count("unasked") > 2)

    assert await stack.ask("SAY:answer") == "answer"


async def test_with_a_task_of_its_own_it_is_not_left_alone(stack: Stack, claude: AgentCli) -> None:
    """Parked, nobody would hear it, answer its questions, or hold its session's lease."""
    stack.configure(claude.config(permissions="auto"))
    await stack.start_worker()
    first = await stack.append(background(stack.home.path / "never"))
    await stack.outcome(first)
    await stack.until_idle(first)

    await eventually(lambda: not marked_processes(stack.home))
    second = await stack.append("SAY:answer")
    assert said(await stack.outcome(second)) == "answer"
    assert (await stack.reached(second, "spawned")).startswith("new")


# -- failures -------------------------------------------------------------------------------------


async def test_a_failure_is_a_sentence_and_the_agent_stays_usable(agent: Stack) -> None:
    for directive, words, category in (
        ("HTTP:401", "isn't signed in", "auth"),
        ("HTTP:400:credit", "no credit or quota left", "billing"),
        ("HTTP:404:model", "`model` under [agents.", "unknown_model"),
        ("DROP", "can't reach its model", "unreachable"),
        ("HTTP:400:context", "is too long for", "context_overflow"),
    ):
        failed = await agent.append(f"{directive} please")
        outcome = await agent.outcome(failed)
        after = await agent.append("SAY:fine again")

        assert outcome.status == "failed"
        assert (outcome.error or {})["category"] == category
        assert words in str(outcome.reply[-1]["text"])
        assert "API Error" not in said(outcome)
        assert said(await agent.outcome(after)) == "fine again"
        how = "new" if category == "context_overflow" else "warm"
        assert (await agent.reached(after, "spawned")).startswith(how)


async def test_a_busy_model_is_asked_again_until_the_person_stops_it(agent: Stack) -> None:
    for directive in ("HTTP:429", "HTTP:529", "OVERLOADED"):
        accepted = await agent.append(f"{directive} please")

        async def is_postponed(sid: str = accepted.session.sid) -> bool:
            view = await agent.fleet.sessions.view(sid)
            return view is not None and view.postponed == "retryable"

        await eventually(is_postponed)
        await agent.append("/stop")

        assert (await agent.outcome(accepted)).status == "stopped"
        after = await agent.append("SAY:fine again")
        assert said(await agent.outcome(after)) == "fine again"


async def test_a_failure_that_passes_is_not_seen_and_nothing_is_said_twice(agent: Stack) -> None:
    for directive in ("HTTP:429*1", "HTTP:529*1"):
        assert await agent.ask(f"{directive} now\nSAY:got it") == "got it"
    text = "this sentence is long enough to be cut in the middle of it, and it is said once"
    assert await agent.ask(f"DROP*1 now\nSAY:{text}") == text

    outcome = await agent.outcome(await agent.append("DROP*1 LONG:9000"))

    text = "".join(str(part["text"]) for part in outcome.reply)
    assert len(outcome.reply) > 2
    assert text.count("## Section 1\n") == 1
    assert text.endswith("END-OF-LONG")


async def test_a_command_with_half_a_character_in_it_is_decided(
    stack: Stack, claude: AgentCli
) -> None:
    stack.configure(claude.config(permissions="deny"))
    await stack.start_worker()

    assert "not allowed" in await stack.ask('TOOL:Bash:{"command": "touch a\\ud83d"}')


async def test_a_message_that_a_hook_of_the_users_refuses_is_answered(agent: Stack) -> None:
    settings = Path(os.environ["HOME"]) / ".claude" / "settings.json"
    settings.parent.mkdir()
    hook = {"hooks": [{"type": "command", "command": "echo not today >&2; exit 2"}]}
    settings.write_text(json.dumps({"hooks": {"UserPromptSubmit": [hook]}}))

    assert "not today" in await agent.ask("SAY:hi")


async def test_a_turn_is_stopped_and_the_next_one_knows_it(agent: Stack) -> None:
    running = await agent.append("DRIP:300:50")
    await agent.reached(running, "output")

    await agent.fleet.sessions.stop(running.session.sid)

    outcome = await agent.outcome(running)
    assert outcome.status == "stopped"
    assert said(outcome).startswith("w1")
    assert said(outcome).endswith("Stopped.")
    after = await agent.append("RECALL")
    assert "DRIP:300:50" in said(await agent.outcome(after))
    assert (await agent.reached(after, "spawned")).startswith("warm")


def runs(stack: Stack, command: bytes) -> bool:
    found = []
    for pid in marked_processes(stack.home):
        try:
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:
            continue
    return any(command in line for line in found)


async def test_its_tool_shells_end_with_the_worker(stack: Stack, claude: AgentCli) -> None:
    """claude starts them in sessions of their own, out of reach of a process group."""
    stack.configure(claude.config(permissions="auto"))
    worker = await stack.start_worker()
    call = json.dumps({"command": "sleep 1000", "description": "x"})
    running = await stack.append(f"TOOL:Bash:{call}")
    await stack.reached(running, "tool")
    await eventually(lambda: runs(stack, b"sleep\x001000"))
    processes = marked_processes(stack.home)

    worker.kill()

    await eventually(lambda: not [pid for pid in processes if is_alive(pid)])


async def test_a_conversation_that_it_does_not_know_starts_anew_and_says_so(
    agent: Stack, claude: AgentCli
) -> None:
    first = await agent.append("SAY:one")
    await agent.outcome(first)
    await agent.until_idle(first)
    await eventually(lambda: "SAY:one" in transcripts())
    os.kill(pid_of(await agent.reached(first, "spawned")), signal.SIGKILL)
    for transcript in (Path(os.environ["HOME"]) / ".claude" / "projects").rglob("*.jsonl"):
        transcript.unlink()

    second = await agent.outcome(await agent.append("SAY:two"))

    assert second.status == "done"
    told = [str(part["text"]) for part in second.reply]
    # If it is asked in the moment in which it ends, nobody knows what it did.
    notice, answer = [text for text in told if text != SECOND_TRY]
    assert notice == "(I no longer have our earlier conversation itself, but notes of it.)"
    assert answer == "two"


async def test_it_gets_no_secret_that_it_does_not_need(
    stack: Stack, claude: AgentCli, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# -- messages that join a running turn ------------------------------------------------------------


@pytest.fixture
async def steered(stack: Stack, claude: AgentCli) -> Stack:
    """A stack whose claude hears of messages while it works."""
    stack.configure(claude.config(permissions="auto"), queue={"mode": "steer"})
    await stack.start_worker()
    return stack


def bash(command: str) -> str:
    return f"TOOL:Bash:{json.dumps({'command': command})}"


async def test_it_hears_of_a_message_with_the_result_of_its_tool(
    steered: Stack, claude: AgentCli, directory: Path
) -> None:
    until_told = f"until [ -e {directory}/go ]; do sleep 0.01; done"
    # Nothing shows when claude has read the message, so the tool goes on for a moment.
    first = await steered.append(bash(f"{until_told}; sleep 0.5; echo ok"))
    await steered.reached(first, "tool")
    second = await steered.append("SAY:two")
    await steered.reached(second, "steered")
    (directory / "go").touch()

    outcomes = [await steered.outcome(first), await steered.outcome(second)]
    assert [outcome.status for outcome in outcomes] == ["done", "steered"]
    assert [said(outcome) for outcome in outcomes] == ["DONE ok", "DONE ok"]
    last = json.loads(claude.model.bodies().splitlines()[-1])
    assert "SAY:two" in json.dumps(last["messages"][-2:])


async def test_it_answers_what_came_too_late_for_its_answer_right_behind(steered: Stack) -> None:
    first = await steered.append("DRIP:40:50")
    await steered.reached(first, "output")
    second = await steered.append("SAY:two")
    third = await steered.append("SAY:three")

    outcomes = [await steered.outcome(each) for each in (first, second, third)]

    assert [outcome.status for outcome in outcomes] == ["done", "steered", "steered"]
    texts = [str(part["text"]) for part in outcomes[0].reply]
    assert texts[0].endswith("w40")
    assert texts[-1] == "three"  # claude may take up both at once
    fourth = await steered.append("RECALL")
    recalled = said(await steered.outcome(fourth))
    assert "SAY:two" in recalled
    assert "SAY:three" in recalled
    assert (await steered.reached(fourth, "spawned")).startswith("warm")


async def test_a_stop_ends_it_with_what_it_has_not_heard_of_yet(steered: Stack) -> None:
    first = await steered.append(bash("sleep 600"))
    await steered.reached(first, "tool")
    second = await steered.append(bash("touch ran; echo never"))
    await steered.reached(second, "steered")
    await steered.fleet.sessions.stop(first.session.sid)

    assert (await steered.outcome(first)).status == "stopped"
    assert (await steered.outcome(second)).status == "stopped"
    assert "never" not in await steered.ask("SAY:on we go")
    assert not (steered.home.path / "workspaces" / "main" / "ran").exists()
