"""The contract of all agent CLIs, tested with the real ones and a scripted model."""

import asyncio
import json
import os
import signal
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.model import ChannelConfig
from remoteclaw.errors import ErrorCategory
from remoteclaw.messages import McpServerConfig
from remoteclaw.protocols import FORK_OF
from remoteclaw.runtimes import create_cli_runtime, model_wait
from tests.conftest import THOROUGH
from tests.support.agents import AgentCli
from tests.support.bridged import Agent, Open, deceptive_server, hostile_settings, said
from tests.support.prefixes import added, asked
from tests.support.waiting import HANG_S, eventually


def unknown_id(cli: AgentCli) -> str:
    """Return a well-formed id of a session that the CLI doesn't have."""
    return "ses_e011a5f1effeiMQ7b0UzBXbnmg" if cli.name == "opencode" else str(uuid.uuid4())


# -- tools and permissions ------------------------------------------------------------------------


def writing(cli: AgentCli, path: Path) -> str:
    """Return a directive that makes a CLI write a file with its own tool for that."""
    patch = f"*** Begin Patch\n*** Add File: {path}\n+written\n*** End Patch"
    tool, arguments = {
        "claude": ("Write", {"file_path": str(path), "content": "written"}),
        "codex": ("exec_command", {"cmd": f"apply_patch <<'END'\n{patch}\nEND"}),
        "gemini": ("write_file", {"file_path": str(path), "content": "written"}),
        "opencode": ("write", {"filePath": str(path), "content": "written"}),
    }[cli.name]
    return f"TOOL:{tool}:{json.dumps(arguments)}"


@pytest.mark.thorough("opencode", "gemini")
async def test_the_edits_permission_covers_only_files_of_the_workspace(
    opened: Open, cli: AgentCli, directory: Path
) -> None:
    async with opened(permissions="edits") as agent:
        (agent.workspace / "link").symlink_to(directory)
        within = await agent.ask(writing(cli, agent.workspace / "new"))
        linked = await agent.ask(writing(cli, agent.workspace / "link" / "linked"))
        await agent.ask(writing(cli, agent.workspace / ".." / "above"))
        guarded = await agent.say(writing(cli, agent.workspace / ".mcp.json"))
        command = await agent.say("SHELL:touch made-by-the-agent")
        made = {path.name for path in agent.workspace.iterdir()}
        above = (agent.workspace.parent / "above").exists()

    assert made == {"new", "link"}
    assert within.run.permission_denials == ()
    assert not above
    assert not (directory / "linked").exists()
    assert linked.run.permission_denials or "outside" in said(linked)
    assert 'allow = ["Edit(/' in guarded
    assert 'allow = ["Bash(touch made-by-the-agent)"]' in command


@pytest.mark.thorough("opencode")
@pytest.mark.parametrize("is_inherited", [False, True])
async def test_under_deny_no_mcp_tool_is_called(
    opened: Open, cli: AgentCli, directory: Path, is_inherited: bool
) -> None:
    """Whatever the tool claims about itself."""
    if is_inherited and cli.name != "codex":
        pytest.skip("the user's own settings say what a server of the user's own may do")
    log = directory / "log"
    server = deceptive_server(log)
    if is_inherited:
        config = Path(os.environ["HOME"], ".codex", "config.toml")
        config.parent.mkdir()
        config.write_text(
            f'[mcp_servers.deceptive]\ncommand = "{server.command}"\n'
            f"args = {json.dumps(server.args)}\n"
        )
    async with opened(
        permissions="deny",
        mcp_servers={} if is_inherited else {"deceptive": server},
        trust_workspace=cli.name in ("gemini", "opencode"),
        inherit_mcp=cli.name != "gemini",
    ) as agent:
        if cli.name == "opencode":
            plugin(agent.workspace, directory / "ran")
        result = await agent.ask("TOOL:look:{}")

    assert "called" not in (log.read_text() if log.exists() else "")
    assert "seen" not in said(result)
    # If opencode stops running plugins here, our refusal to start is unnecessary.
    assert (directory / "ran").exists() == (cli.name == "opencode")


# -- new processes and copies ---------------------------------------------------------------------


async def until_saved(cli: AgentCli) -> None:
    """Wait until the CLI has an answer on disk; claude saves it a moment after the turn."""
    projects = Path(os.environ["HOME"], ".claude", "projects")

    def has_answer() -> bool:
        return any('"assistant"' in file.read_text() for file in projects.rglob("*.jsonl"))

    await eventually(lambda: cli.name != "claude" or has_answer())


@pytest.mark.thorough("gemini", "opencode", "claude")
async def test_a_new_process_continues_the_conversation_or_a_copy(
    opened: Open, cli: AgentCli
) -> None:
    """An id that the CLI doesn't know is an expired session."""
    forks = create_cli_runtime(
        cli.name
    ).capabilities.forks  # otherwise a copy of our record is used
    first = f"my colour is green {uuid.uuid4().hex} SAY:noted"
    async with opened() as agent:
        await agent.ask(first)
        ((name, original),) = agent.session_map.items()
        pid = agent.pid
        await until_saved(cli)
        if forks:
            await is_copied(agent, name, original, first)
        for unknown in (unknown_id(cli), *([FORK_OF + unknown_id(cli)] if forks else ())):
            await agent.keeper.discard()
            agent.session_map[name] = unknown
            lost = await agent.ask("SAY:two")
            assert lost.error_category is ErrorCategory.SESSION_EXPIRED
            assert agent.session_map == {}

        await agent.keeper.discard()
        agent.session_map[name] = original
        channel = ChannelConfig(instructions="Speak like a SAILOR.")
        agent.bridge._setup = replace(agent.bridge._setup, channel=channel)
        again = await agent.ask("RECALL")
        if cli.name == "gemini":  # it would destroy the conversation; a new one gets our record
            assert again.error_category is ErrorCategory.SESSION_EXPIRED
            assert agent.session_map == {}
            assert await agent.say("SAY:three") == "three"
            return
        assert agent.pid != pid
        if not cli.instructs_by_prompt:  # otherwise the first message has it
            assert await agent.say("GREPSYS:SAILOR") == "GREPSYS true"
    assert "my colour is green" in said(again)
    assert "only the copy" not in said(again)


async def is_copied(agent: Agent, name: str, original: str, first: str) -> None:
    """A conversation begins as a copy of another one, which the provider has cached completely."""
    await agent.keeper.discard()
    agent.session_map[name] = FORK_OF + original
    recall = f"{uuid.uuid4().hex} RECALL"
    copied = await agent.ask(recall)
    before, after = (asked(agent.cli.model, text) for text in (first, recall))
    if agent.cli.name != "codex":  # codex gets our system prompt once more
        assert [part["role"] for part in added(before, after)] == ["assistant", "user"]
    copy, pid = agent.session_map[name], agent.pid
    again = await agent.ask("only the copy hears this SAY:noted")

    assert (agent.session_map[name], agent.pid) == (copy, pid)
    assert "my colour is green" in said(copied)
    assert said(again) == "noted"
    assert copy not in (original, FORK_OF + original)


@pytest.mark.thorough("opencode", "gemini")
async def test_a_copy_whose_process_dies_before_its_first_answer_is_started_again(
    opened: Open, cli: AgentCli
) -> None:
    if cli.name != "claude":
        pytest.skip("only claude is known to save a copy no sooner than its answer")
    async with opened() as agent:
        await agent.ask("my colour is green SAY:noted")
        ((name, original),) = agent.session_map.items()
        await until_saved(cli)
        await agent.keeper.discard()
        agent.session_map[name] = FORK_OF + original

        async def kill(phase: str, _detail: str) -> None:
            if phase == "spawned":
                os.kill(agent.pid, signal.SIGKILL)

        died = await agent.ask("RECALL", on_phase=kill)
        again = await agent.ask("RECALL")

    assert died.error_category is ErrorCategory.DIED
    assert "my colour is green" in said(again)
    assert agent.session_map[name] not in (original, FORK_OF + original)


# -- failures -------------------------------------------------------------------------------------


#: Texts of claude's failures in a person's chat: claude's own reason, and what to do.
CLAUDES_REASONS = {
    "HTTP:401": ("refuses the key in ANTHROPIC_API_KEY (claude: `", "or remove it and run"),
    "HTTP:404:model": ("model `sonnet` (claude: `", "Correct `model` under [agents.main], or"),
    "HTTP:529": ("is busy right now (claude: `", "send it again in a minute."),
    "HTTP:400:credit": ("no credit or quota left (claude: `", "Top it up at its provider"),
}


@pytest.mark.thorough("opencode")
async def test_a_failure_has_its_category_and_the_next_turn_works(
    opened: Open, cli: AgentCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = {"web": McpServerConfig(command="/not/there")}
    of_claude = {"model": "sonnet", "provider": "web", "mcp_servers": servers}
    options = of_claude if cli.name == "claude" else {}
    categories = {
        "HTTP:401": ErrorCategory.AUTH,
        "HTTP:404:model": ErrorCategory.UNKNOWN_MODEL,
    }
    if cli.name == "claude":
        categories |= {
            "HTTP:400:credit": ErrorCategory.BILLING,
            "HTTP:429": ErrorCategory.RETRYABLE,
            "OVERLOADED": ErrorCategory.RETRYABLE,
            "DROP": ErrorCategory.UNREACHABLE,
            "HTTP:529": ErrorCategory.RETRYABLE,
        }
    if cli.name != "opencode":  # opencode compacts the conversation and continues
        categories["HTTP:400:context"] = ErrorCategory.CONTEXT_OVERFLOW
    if cli.name in ("gemini", "opencode"):  # the others report when it ends; see below
        categories["HTTP:429:limit"] = ErrorCategory.USAGE_LIMIT
    async with opened(**options) as agent, asyncio.timeout(HANG_S * 3):
        first = await agent.say("SAY:fine")
        notice = "(main works without the MCP server `web`, which claude could not"
        assert (notice in first) is (cli.name == "claude")
        for directive, category in categories.items():
            failed = await agent.ask(f"{directive} please")
            after = await agent.say("SAY:fine again")
            assert (directive, failed.error_category) == (directive, category)
            assert "fine again" in after
            assert "nobody's key" not in said(failed)
            reasons = CLAUDES_REASONS.get(directive, ()) if cli.name == "claude" else ()
            assert all(words in said(failed) for words in reasons)
        if cli.name == "gemini":  # the others don't pass the time on
            began = time.time()
            failed = await agent.ask("RETRYAFTER:50 HTTP:429")
            assert failed.error_category is ErrorCategory.RETRYABLE
            assert failed.retry_at_ms is not None
            assert failed.retry_at_ms / 1000 >= began + 50
        reply = await agent.say(f"RETRYAFTER:1 HTTP:503*1 {uuid.uuid4().hex} SAY:then it works")
        assert "then it works" in reply
        if cli.name != "gemini":  # it does not ask again
            await drops_a_partial_text(agent)
        monkeypatch.setattr(model_wait, "MAX_WAIT_AFTER_OUTPUT_S", 3.0)
        await says_that_an_answer_breaks_off(agent)
        if cli.name in ("claude", "codex"):  # the others don't report the end of an answer
            await is_done_with_its_answer(agent)
        if cli.name == "opencode":  # only opencode sends its summary as text
            await hides_its_summary(agent)
        # Gemini's first pause takes 5 s.
        monkeypatch.setattr(model_wait, "MAX_WAIT_BEFORE_OUTPUT_S", 6.0)
        await is_not_waited_for(agent)
        # If two opencodes create the database at once, one exits; a drain would start it again.
        if cli.name != "gemini" or THOROUGH:
            async with opened() as other:
                await are_separate(agent, other)


async def drops_a_partial_text(agent: Agent) -> None:
    """The first stream of the answer breaks off; its partial text is not in the reply."""
    result = await agent.ask(f"DROP*1 {uuid.uuid4().hex} SAY:the whole answer")

    assert result.error_category is None
    assert said(result).endswith("the whole answer")
    assert said(result).count("the whole answer") == 1
    assert "or rather" not in said(result)


async def says_that_an_answer_breaks_off(agent: Agent) -> None:
    """The stream breaks after some words, and the model is busy then."""
    result = await agent.ask(f"DROP*1 HTTP:503 {uuid.uuid4().hex} SAY:one two three four five six")

    first, last = (payload.text for payload in result.payloads)
    assert result.error_category in (ErrorCategory.RETRYABLE, ErrorCategory.UNREACHABLE)
    assert first.startswith("one two three")
    assert last.startswith("The answer above breaks off, because ")
    assert "send it again" not in last


async def is_done_with_its_answer(agent: Agent) -> None:
    """The stream breaks behind the end of the answer."""
    result = await agent.ask(f"DROP:end HTTP:503 {uuid.uuid4().hex} SAY:the whole answer")

    assert (result.error_category, said(result)) == (None, "the whole answer")


async def hides_its_summary(agent: Agent) -> None:
    """The summary of a conversation that became too long is not shown."""
    shown: list[str] = []
    answer = await agent.ask(
        f"HTTP:400:context*1 {uuid.uuid4().hex}\nSAY:two",
        on_live_text=lambda _, text: shown.append(text),
    )

    assert said(answer) == "two"
    assert not any("Scripted summary" in text for text in shown)


async def is_not_waited_for(agent: Agent) -> None:
    """A model that stays busy ends the turn; gemini and opencode would retry for minutes."""
    shown: list[str] = []
    failed = await agent.ask("HTTP:503", on_live_text=lambda _, text: shown.append(text))
    after = await agent.say("SAY:fine again")

    assert failed.error_category is ErrorCategory.RETRYABLE
    if agent.cli.name in ("gemini", "opencode"):  # they report it only in their logs
        assert any("The model is busy; trying again" in text for text in shown)
    assert "fine again" in after


async def are_separate(one: Agent, two: Agent) -> None:
    """Two sessions run in one workspace at once."""
    results = await asyncio.gather(one.ask("I am one SAY:1"), two.ask("I am two SAY:2"))
    assert [result.error for result in results] == [None, None]
    first, second = map(said, results)
    recalled = await asyncio.gather(one.say("RECALL"), two.say("RECALL"))

    assert (first, second) == ("1", "2")
    assert ["I am one" in text for text in recalled] == [True, False]
    assert ["I am two" in text for text in recalled] == [False, True]


async def test_a_usage_limit_reports_when_it_ends(opened: Open, cli: AgentCli) -> None:
    if cli.name not in ("claude", "codex"):
        pytest.skip("its API names no plan")
    env = {**create_cli_runtime(cli.name).environment(os.environ), **cli.env}
    if cli.name == "claude":  # a subscription, because an API key has no plan
        del env["ANTHROPIC_API_KEY"]
        env["CLAUDE_CODE_OAUTH_TOKEN"] = "-".join(("sk", "ant", "oat01", "nobodys"))
    async with opened(env=env) as agent, asyncio.timeout(HANG_S):
        failed = await agent.ask("RETRYAFTER:9000 HTTP:429:limit please")
        after = await agent.say("SAY:fine again")

    assert failed.error_category is ErrorCategory.USAGE_LIMIT
    assert failed.retry_at_ms is not None
    assert 8900 < failed.retry_at_ms / 1000 - time.time() <= 9000
    assert "what its plan allows until" in said(failed)
    assert after == "fine again"


@pytest.mark.thorough("opencode", "gemini")
async def test_an_unreachable_model_is_not_waited_for(
    opened: Open, cli: AgentCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_wait, "MAX_WAIT_BEFORE_OUTPUT_S", 2.0)
    url = "http://nowhere.invalid"
    env = {name: value.replace(cli.model.url, url) for name, value in cli.env.items()}
    env = {**create_cli_runtime(cli.name).environment(os.environ), **env}
    command = tuple(word.replace(cli.model.url, url) for word in cli.command)
    async with opened(env=env, command=command) as agent, asyncio.timeout(HANG_S):
        failed = await agent.ask("SAY:nothing")

    assert failed.error_category is ErrorCategory.UNREACHABLE
    assert "can't reach its model over the network" in said(failed)


async def test_a_missing_claude_sign_in_is_reported_with_instructions(
    opened: Open, cli: AgentCli
) -> None:
    if cli.name != "claude":
        pytest.skip("it is claude's own way")
    env = {**create_cli_runtime("claude").environment(os.environ), **cli.env}
    del env["ANTHROPIC_API_KEY"]
    async with opened(env=env, provider="web") as agent, asyncio.timeout(HANG_S):
        failed = await agent.ask("hello")

    assert failed.payloads[0].text.startswith(
        "main isn't signed in to its model (claude: `Not logged in · Please run /login`). "
        "Run `claude auth login`, on the computer that RemoteClaw runs on; then send"
    )


async def test_codex_without_a_login_fails_at_once(opened: Open, cli: AgentCli) -> None:
    if cli.name != "codex":
        pytest.skip("only codex asks its model for minutes")
    async with opened(command=(cli.program,)) as agent, asyncio.timeout(HANG_S):
        failed = await agent.ask("SAY:nothing")

    assert failed.error_category is ErrorCategory.AUTH
    assert "`codex login`" in str(failed.error)


# -- settings of the workspace --------------------------------------------------------------------


async def test_codex_uses_the_workspaces_settings_only_if_it_is_trusted(
    opened: Open, cli: AgentCli, directory: Path
) -> None:
    if cli.name != "codex":
        pytest.skip("seen in test_conversation.py")
    log = directory / "log"
    settings = Path(os.environ["HOME"], ".codex", "config.toml")
    async with opened(permissions="ask") as agent:
        hostile_settings(cli, agent.workspace, log)
        tools = await agent.say("TOOLS")
        await agent.keeper.discard()  # at its first start, codex stores its trust
        tools += await agent.say("TOOLS")
        refused = await agent.ask("SHELL:touch made-by-the-agent")
        is_made = (agent.workspace / "made-by-the-agent").exists()
    is_started = log.exists()
    async with opened(permissions="ask", trust_workspace=True) as agent:
        trusted = await agent.say("TOOLS")

    assert "evil" in trusted
    assert not settings.exists()
    assert not is_started
    assert "evil" not in tools
    assert not is_made
    assert refused.run.permission_denials


async def test_codex_ignores_settings_of_a_repository_that_only_the_user_trusts(
    opened: Open, cli: AgentCli, directory: Path
) -> None:
    """The user trusts it in codex's settings; only RemoteClaw's own setting counts."""
    if cli.name != "codex":
        pytest.skip("it is codex' own way")
    log, repository = directory / "log", directory / "repository"
    (repository / "part").mkdir(parents=True)
    git = await asyncio.create_subprocess_exec("git", "init", "-q", str(repository))
    assert await git.wait() == 0
    (directory / "link").symlink_to(repository / "part")
    hostile_settings(cli, repository, log)
    settings = Path(os.environ["HOME"], ".codex", "config.toml")
    settings.parent.mkdir()
    settings.write_text(f'[projects."{repository}"]\ntrust_level = "trusted"\n')
    for workspace in (repository, repository / "part", directory / "link"):
        async with opened(permissions="ask", workspace=str(workspace)) as agent:
            assert "evil" not in await agent.say("TOOLS")

    assert not log.exists()


def plugin(workspace: Path, ran: Path) -> None:
    """Add a plugin for opencode to the workspace."""
    plugins = workspace / ".opencode" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "p.js").write_text(
        f"import fs from 'fs'; fs.writeFileSync({json.dumps(str(ran))}, '');\n"
        "export const P = async () => ({})\n"
    )


async def test_the_real_opencode_does_not_run_plugins_of_an_untrusted_workspace(
    opened: Open, cli: AgentCli, home: Home, directory: Path
) -> None:
    if cli.name != "opencode":
        pytest.skip("it is opencode's own way")
    async with opened(permissions="deny") as agent:
        plugin(agent.workspace, directory / "ran")
        refused = await agent.ask("SAY:one")
        left = [*home.runs.iterdir()]

    assert refused.error_category is ErrorCategory.NOT_INSTALLED
    assert "trust_workspace" in str(refused.error)
    assert not (directory / "ran").exists()
    assert left == []
