"""Files that agents can't send, in an answer or with a tool: RemoteClaw's own, keys and logins."""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from remoteclaw.bridge import Hooks
from remoteclaw.bridge.outgoing import OutgoingFiles
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.gateway.auth.token_file import TokenFile
from remoteclaw.gateway.methods.config import HANDLERS as CONFIGURATION
from remoteclaw.gateway.methods.messages import HANDLERS
from remoteclaw.host.files import UnfitFile
from remoteclaw.messages import MAX_ATTACHMENTS, file_name
from remoteclaw.session.drain import Drain
from tests.support.bridges import script
from tests.support.command import run_command
from tests.support.stack import Stack, said
from tests.support.turns import ask, begin_turn, gateway, operator

#: An agent that replies with its message.
ECHO = """
while True:
    say(type='text', text=turn()['prompt'].split('\\n\\n', 1)[1])
    say(type='done')
"""
OWN = "it is in RemoteClaw's own directory or configuration, which agents don't send"
ELSEWHERE = "it is not in the agent's workspace"
ABSENT = "it is not there"
LINKED = "it has a second name (a hard link); a copy of it can be sent"
REFUSED = "[agents.main] workspace is not valid: contains RemoteClaw's state directory {home},"
DENIED = 'its agent sends no files, because its permissions are "deny"'


def refusal_of(name: str) -> str:
    return f"names like {name} are for keys and logins, which agents don't send"


#: Paths of files that can't be sent, and the reasons that are reported.
PROTECTED = {
    "home/gateway-token": OWN,
    "project/../home/host-id": OWN,
    "home/remoteclaw.toml": OWN,
    "home/redis/appendonlydir/appendonly.aof.1.incr.aof": OWN,
    "home/run/up1/mcp.json": OWN,
    "link": OWN,
    "hard": LINKED,
    "HOME/host-id": ABSENT,
    "home/workspaces/.remoteclaw/x": refusal_of(".remoteclaw"),
    "old/.remoteclaw/x": refusal_of(".remoteclaw"),
    ".ssh/id_ed25519": refusal_of("id_ed25519*"),
    "keys/config": refusal_of(".ssh"),
    ".AWS/credentials": refusal_of(".aws"),
    ".claude.json": refusal_of(".claude*"),
    ".codex/auth.json": refusal_of("auth.json"),
    ".local/share/opencode/opencode.db": refusal_of(".local/share/opencode"),
    "project/.env.local": refusal_of(".env*"),
    "project/prod.env": refusal_of("*.env"),
    "project/tls/server.key": refusal_of("*.key"),
    "project/.git/modules/lib/config": refusal_of(".git/modules"),
    "/proc/self/environ": ELSEWHERE,
    "/proc/self/cwd/pyproject.toml": ELSEWHERE,
}


@pytest.fixture
def protected(stack: Stack, directory: Path) -> Path:
    """The parent of the state directory, with all kinds of files that can't be sent."""
    TokenFile(stack.home.path).create()
    assert stack.home.host_id
    (directory / ".ssh").mkdir()
    (directory / "keys").symlink_to(directory / ".ssh")
    for name in PROTECTED.keys() - {"link", "hard", "HOME/host-id"}:
        if not (directory / name).exists():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text("a secret")
    (directory / "link").symlink_to(stack.home.path / "host-id")
    (directory / "hard").hardlink_to(directory / ".ssh" / "id_ed25519")
    return directory


@pytest.fixture
def config(stack: Stack, protected: Path) -> Config:
    """A configuration whose workspace is a link that now leads to the protected directory."""
    workspace = protected / "workspace"
    (protected / "harmless").mkdir()
    workspace.symlink_to(protected / "harmless")
    command = list(script(protected, ECHO))
    stack.configure({"runtime": "demo", "command": command, "workspace": str(workspace)})
    config = load_config(stack.home.config_file, {})
    workspace.unlink()
    workspace.symlink_to(protected)
    return config


async def answer(stack: Stack, config: Config, paths: Iterable[str]) -> Outcome:
    """Let an agent attach files to its answer, and return the outcome."""
    tags = "".join(f"[[attach:{path}]]" for path in paths)
    accepted = await stack.append(f"Look: {tags}")
    await Drain(stack.fleet, config, stack.home, Hooks()).run(accepted.session.sid)
    return await stack.outcome(accepted)


async def test_protected_files_cannot_be_attached_to_an_answer(
    stack: Stack, protected: Path, config: Config
) -> None:
    items = list(PROTECTED.items())
    for start in range(0, len(items), MAX_ATTACHMENTS):
        batch = items[start : start + MAX_ATTACHMENTS]
        outcome = await answer(stack, config, dict(batch))

        notices = [
            f'(The file "{file_name(path)}" could not be sent: {reason}.)' for path, reason in batch
        ]
        assert said(outcome) == "\n".join(("Look:\n", *notices))
    assert await stack.fleet.scripts.client.keys(keys.blob("*", "*")) == []


async def test_protected_files_cannot_be_sent_with_a_tool(
    stack: Stack, protected: Path, config: Config
) -> None:
    turn = await begin_turn(stack, HANDLERS)
    turn.gateway = gateway(stack.fleet, stack.home, HANDLERS, config=config)

    for path, reason in PROTECTED.items():
        with pytest.raises(CallRefused) as refusal:
            await turn.call("message_send_attachment", target="chat-1", file=path)
        assert str(refusal.value) == f'The file "{file_name(path)}" can\'t be sent: {reason}.'

    assert await stack.fleet.scripts.client.keys(keys.blob("*", "*")) == []
    assert await stack.fleet.scripts.client.keys(keys.replies("*", "*")) == []


async def test_unprotected_files_of_the_same_workspace_can_be_sent(
    stack: Stack, protected: Path, config: Config
) -> None:
    """This includes files in the workspaces of the state directory."""
    own = stack.home.workspaces / "main" / "plot.png"
    own.parent.mkdir()
    for path in (own, protected / "plan.txt"):
        path.write_text("x")
    turn = await begin_turn(stack, HANDLERS, from_="bob", channel_id="chat-2")
    turn.gateway = gateway(stack.fleet, stack.home, HANDLERS, config=config)

    outcome = await answer(stack, config, ["plan.txt", str(own)])
    for file in ("plan.txt", str(own)):
        await turn.call("message_send_attachment", target="chat-2", file=file)

    assert [file["name"] for file in outcome.reply[0]["attachments"]] == ["plan.txt", "plot.png"]


async def test_the_configuration_file_cannot_be_sent_from_any_location(
    stack: Stack, protected: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = protected / "work"
    work.mkdir()
    for name in ("claw.toml", "claw.toml.bak", ".claw.toml.new"):
        (work / name).write_text("")
    (work / "other.toml").write_text("fine")
    (protected / "claw.toml").symlink_to(work / "claw.toml")
    monkeypatch.setenv("REMOTECLAW_CONFIG", str(protected / "claw.toml"))
    outgoing = OutgoingFiles(stack.home, "ask", work, None)

    for name in ("claw.toml", "claw.toml.bak", ".claw.toml.new"):
        with pytest.raises(UnfitFile, match="own directory or configuration"):
            outgoing.read(work / name)
    assert outgoing.read(work / "other.toml") == b"fine"


def test_the_socket_directory_and_proc_are_protected_too(home: Home, directory: Path) -> None:
    """A state directory with a long path has its run directories elsewhere, for the sockets."""
    far = Home(directory / ("x" * 120)).create()
    (far.runs / "up1").mkdir()
    secret = far.runs / "up1" / "mcp.json"
    secret.write_text("a secret")

    try:
        for path in (secret, Path("/proc/self/environ")):
            with pytest.raises(UnfitFile, match="own directory"):
                OutgoingFiles(far, "ask", Path("/"), None).read(path)
    finally:
        shutil.rmtree(far.sockets)


async def test_an_agent_with_permissions_deny_sends_no_files(stack: Stack, directory: Path) -> None:
    """It sends no files of its workspace, and no URL is fetched for it."""
    command = list(script(directory, ECHO))
    stack.configure({"runtime": "demo", "command": command, "permissions": "deny"})
    config = load_config(stack.home.config_file, {})
    (stack.home.workspaces / "main").mkdir(parents=True)
    (stack.home.workspaces / "main" / "plan.txt").write_text("x")
    turn = await begin_turn(stack, HANDLERS, from_="bob", channel_id="chat-2")

    outcome = await answer(stack, config, ["plan.txt"])

    assert said(outcome) == f'Look:\n\n(The file "plan.txt" could not be sent: {DENIED}.)'
    for file in ("plan.txt", "https://example.org/x.png"):
        with pytest.raises(CallRefused, match="permissions are"):
            await turn.call("message_send_attachment", target="chat-2", file=file)
        with pytest.raises(CallRefused, match="permissions are"):
            await turn.call("message_send", target="chat-2", message="look", media=file)
    assert await stack.fleet.scripts.client.keys(keys.blob("*", "*")) == []


# -- a workspace that contains the state directory ----------------------------------------------


@pytest.mark.parametrize("workspace", ["", "home", "link", "link/harmless/.."])
def test_a_workspace_that_contains_the_state_directory_is_refused(
    home: Home, directory: Path, workspace: str
) -> None:
    (directory / "harmless").mkdir()
    (directory / "link").symlink_to(directory)
    path = directory / workspace
    home.config_file.write_text(f'[agents.main]\nworkspace = "{path}"\n')

    for command in (["up"], ["worker"], ["doctor"], ["config", "validate"]):
        result = run_command(*command, env=dict(os.environ))
        assert result.returncode == 1
        assert REFUSED.format(home=home.path) in result.stdout + result.stderr
    home.config_file.write_text("")
    result = run_command("config", "set", "agents.main.workspace", str(path), env=dict(os.environ))
    assert REFUSED.format(home=home.path) in result.stderr
    assert home.config_file.read_text() == ""


async def test_an_operator_cannot_set_a_workspace_that_contains_the_state_directory(
    stack: Stack, directory: Path
) -> None:
    door = gateway(stack.fleet, stack.home, CONFIGURATION)
    patch = {"agents": {"main": {"workspace": str(directory)}}}

    with pytest.raises(CallRefused, match="contains RemoteClaw's state directory"):
        await ask(door, operator(), "config.patch", patches=patch)


def test_other_workspaces_are_accepted(home: Home, directory: Path) -> None:
    """Also one in the state directory, and a link to itself, which an agent can create."""
    (directory / "loop").symlink_to(directory / "loop")
    others = (directory / "work", home.workspaces / "shared", directory / "home2")
    for path in (*others, directory / "loop"):
        home.config_file.write_text(f'[agents.main]\nworkspace = "{path}"\n')
        assert load_config(home.config_file).agents["main"].workspace == path


def test_a_workspace_in_a_directory_named_like_a_key_store_is_accepted(
    home: Home, directory: Path
) -> None:
    workspace = directory / ".claude" / "worktrees" / "fix"
    workspace.mkdir(parents=True)
    (workspace / "plan.txt").write_text("x")
    (workspace / ".ssh").mkdir()
    (workspace / ".ssh" / "config").write_text("x")
    outgoing = OutgoingFiles(home, "auto", workspace, None)

    assert outgoing.read(workspace / "plan.txt") == b"x"
    with pytest.raises(UnfitFile, match="are for keys and logins"):
        outgoing.read(workspace / ".ssh" / "config")
