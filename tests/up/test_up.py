"""`remoteclaw up`: one command starts, supervises and ends all processes.

Each start takes seconds of processor time, so each test checks several promises.
"""

import contextlib
import fcntl
import os
import re
import shutil
import signal
import stat
import subprocess
import threading
from pathlib import Path
from subprocess import DEVNULL, PIPE

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.host.logs import MAX_LOG_BYTES
from remoteclaw.runtimes import detect_runtime
from remoteclaw.up.embedded import EmbeddedRedis
from remoteclaw.up.lock import locked, running_pid
from tests.support.command import REMOTECLAW
from tests.support.processes import children, everything, is_alive, marked_processes
from tests.support.stack import message
from tests.support.terminal import Terminal, env
from tests.support.up import command_line, fork_server_of, parts_of, remoteclaw, running
from tests.support.waiting import HANG_S, eventually_sync

BOLD = re.compile(rb"\x1b\[[0-9;]*\b1m")


def redis_of(up_pid: int) -> int:
    """Return the process id of an `up`'s Redis."""
    (redis,) = [pid for pid in children(up_pid) if "redis.sock" in command_line(pid)]
    return redis


def wait_for_end(processes: list[int], home: Home) -> None:
    eventually_sync(
        lambda: not [pid for pid in processes if is_alive(pid)] and not marked_processes(home),
    )


# -- the chat -------------------------------------------------------------------------------------


def test_a_user_types_stops_an_answer_and_leaves_with_a_second_ctrl_c(home: Home) -> None:
    with Terminal.running(REMOTECLAW, "up", env=env(home)) as terminal:
        terminal.see("›")
        terminal.type("rubbish")
        terminal.see("› rubbish")
        terminal.type("\x03\x03")
        terminal.see("Press Ctrl-C again to leave.")
        terminal.type("hello\r")

        shown = terminal.see("what happens when an agent dies.")

        assert "agent    main is demo, as configured" in shown
        assert "› hello" in shown
        assert "rubbish" not in shown
        assert shown.count("\nThis is RemoteClaw's demo agent.") == 1
        assert BOLD.search(terminal.raw)

        # A partial answer is not printed permanently when another line is sent.
        terminal.type("slow\r")
        terminal.see("\n1 2 3")
        terminal.type("second\r")
        terminal.see("› second")
        count = len(re.findall(r"\d+", terminal.shown().partition("\n1")[2]))
        shown = terminal.see(f"\n1 2 3 4 5 6 7 8{' 9' * (count < 9)}")
        assert shown.count("\n1 2 3") == 1
        assert shown.index("› second") < shown.index("\n1 2 3")
        terminal.type("\x03")
        terminal.see("Stopped.")
        terminal.type("\x1b[200~" + "𝒙" * 132_500 + "\x1b[201~\r")
        terminal.see("The message was refused: text has 530,000 bytes")
        processes = everything(terminal.pid)
        assert len(processes) >= 4

        terminal.type("\x03\x03")

        assert terminal.leave() == 0
        assert "Leaving. Unfinished work continues at the next start." in terminal.shown()
        wait_for_end(processes, home)


async def test_a_turn_continues_after_leaving_with_ctrl_d_and_is_stopped_by_ctrl_c(
    home: Home,
) -> None:
    with Terminal.running(REMOTECLAW, "up", env=env(home)) as terminal:
        terminal.see("›")
        terminal.type("slow\r")
        terminal.see("\n1 2 3")
        terminal.type("\x04")
        assert terminal.leave() == 0

    more = env(home, REMOTECLAW__FLEET__LEASE_S="2", NO_COLOR="1")
    with Terminal.running(REMOTECLAW, "up", env=more) as terminal:
        terminal.see("I was interrupted while I worked on this.")
        terminal.see("\n1 2 3")
        assert not BOLD.search(terminal.raw)
        terminal.type("\x03\x03")
        assert terminal.leave() == 0

    assert (await newest_outcome(home)).status == "stopped"


async def newest_outcome(home: Home) -> Outcome:
    """Return the outcome of the last accepted message, from the data that `up` has left."""
    server = EmbeddedRedis(home)
    await server.start()
    fleet = Fleet.open(home.redis_url(Config()))
    (view,) = await fleet.sessions.list(limit=1)
    assert view.last_entry
    outcome = await fleet.outcomes.read(view.sid, view.last_entry)
    await fleet.aclose()
    await server.stop()
    assert outcome is not None
    return outcome


def test_a_redis_outage_is_reported_once_and_sigterm_ends_every_process(home: Home) -> None:
    with Terminal.running(REMOTECLAW, "up", env=env(home)) as terminal:
        terminal.see("›")
        redis = redis_of(terminal.pid)

        os.kill(redis, signal.SIGSTOP)
        try:
            terminal.see("(Redis")
            terminal.type("hello\r")
            terminal.type("I type on")
            terminal.see("› I type on")
            assert "› hello\n" in terminal.shown()
        finally:
            os.kill(redis, signal.SIGCONT)

        terminal.see("what happens when an agent dies.")
        assert "(Redis" not in terminal.see_gone("(Redis")

        os.kill(redis, signal.SIGKILL)
        terminal.type("\x15memory\r")  # Ctrl-U deletes the line first

        terminal.see("You said before:")
        processes = everything(terminal.pid)

        terminal.kill(signal.SIGTERM)

        assert terminal.leave() == 0
        wait_for_end(processes, home)


def test_closing_the_terminal_ends_up_without_an_error(home: Home) -> None:
    """Before the chat, `up` names the agents that cannot work."""
    (home.path / "remoteclaw.toml").write_text(
        "[agents.main]\nruntime = 'demo'\n"
        "[agents.other]\nruntime = 'claude'\ncommand = ['no-such-claude']\n"
        "[agents.fourth]\nruntime = 'gemini'\ncommand = ['/bin/true']\n"
        "[agents.fifth]\nruntime = 'codex'\ncommand = ['/bin/true']\n"
        f"env = {{CODEX_HOME = '{home.path}'}}\n"
    )
    (home.path / "rules").mkdir()
    (home.path / "rules" / "own.rules").write_text('prefix_rule(pattern=["rm"])')
    (home.path / ".env").touch()
    with Terminal.running(REMOTECLAW, "up", env=env(home)) as terminal:
        terminal.see("›")
        shown = terminal.words()
        assert "careful fifth: more than its permissions is allowed:" in shown
        assert "own.rules allows `rm`" in shown
        assert "problem other can't work: claude: 'no-such-claude' is not installed" in shown
        # The path may also be /tmp/.agents, which a sandboxed codex creates for a moment.
        assert re.search(r"problem fourth has no tools: gemini would obey /\S+", shown)
        assert "main can't work" not in shown
        terminal.type("slow\r")
        terminal.see("\n1 2 3")
        processes = everything(terminal.pid)

        terminal.hang_up()

        assert terminal.leave() == 0
        assert not (home.logs / "crash.log").exists()
        assert "Traceback" not in (home.logs / "up.log").read_text()
        wait_for_end(processes, home)


# -- supervised processes -------------------------------------------------------------------------


def test_up_runs_without_a_terminal_and_only_once_per_state_directory(directory: Path) -> None:
    """The path is relative and has characters with a meaning in URLs, and the locale is POSIX.

    A frozen holder is ended as well.
    """
    path, bare = "a #b%20c?d", {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with contextlib.chdir(directory):
        home = Home(Path(path))
        with (
            subprocess.Popen(
                [REMOTECLAW, "up"], env=env(home, **bare), stdin=DEVNULL, stdout=PIPE, text=True
            ) as up,
            contextlib.ExitStack() as end,
        ):
            end.callback(up.kill)
            assert up.stdout is not None
            assert any(line.startswith("Ready") for line in up.stdout)
            sent = remoteclaw(home, "send", "grüße", **bare)
            assert sent.returncode == 0
            assert "RemoteClaw's demo agent" in sent.stdout
            assert "- grüße" in remoteclaw(home, "send", "memory").stdout

            second = remoteclaw(home, "up")

            assert second.returncode == 1
            assert second.stderr == (
                f"remoteclaw: RemoteClaw already runs in {directory / path} (process {up.pid}): "
                "`remoteclaw chat` talks to that one; end it before another start.\n"
            )
            assert remoteclaw(home, "status").returncode == 0
            processes, there = everything(up.pid), Home(directory / path)
            (holder,) = [pid for pid in processes if "program.main()" in command_line(pid)]
            os.kill(holder, signal.SIGSTOP)

            up.send_signal(signal.SIGINT)  # Ctrl-C; the other tests end it with SIGTERM

            assert up.wait(HANG_S) == 0
            wait_for_end(processes, there)

    assert sorted(file.name for file in directory.iterdir()) == [path]
    if not there.sockets.is_relative_to(directory):
        shutil.rmtree(there.sockets)


def test_killed_workers_and_redis_are_restarted_without_loss(home: Home) -> None:
    """A log that has become too large is rotated meanwhile."""
    log, older = home.logs / "redis.log", home.logs / "redis.log.1"
    log.touch(mode=0o600)
    log.write_bytes(b"of an earlier year\n" * 600_000)
    with running(home, REMOTECLAW__FLEET__WORKERS="2") as up:
        eventually_sync(lambda: log.stat().st_size < MAX_LOG_BYTES)

        def both() -> list[int] | None:
            found = parts_of(up.pid, "worker")
            return found if len(found) == 2 else None

        workers = eventually_sync(both)  # the second one starts when all else is ready

        for pid in workers:
            os.kill(pid, signal.SIGKILL)

        assert remoteclaw(home, "send", "hello").returncode == 0

        os.kill(redis_of(up.pid), signal.SIGKILL)

        reply = eventually_sync(
            lambda: (result := remoteclaw(home, "send", "memory")).returncode == 0 and result
        )
        assert "- hello" in reply.stdout
        assert log.read_bytes().count(b"Server initialized") == 1
        assert b"\0" not in log.read_bytes()  # the new log has no gap at its beginning
        assert older.read_bytes().startswith(b"of an earlier year\n" * 600_000)
        assert b"Server initialized" in older.read_bytes()
        assert stat.S_IMODE(older.stat().st_mode) == 0o600


def test_a_turn_is_retried_after_the_fork_server_is_killed(home: Home) -> None:
    """Workers and agents end with the fork server; the next worker repeats the turn."""
    with running(home, REMOTECLAW__FLEET__WORKERS="1") as up:
        busy = remoteclaw(home, "send", "slow", "--wait", "0").stdout.strip()

        def trace() -> str:
            return remoteclaw(home, "sessions", "trace", busy).stdout

        eventually_sync(lambda: "output" in trace())
        server = fork_server_of(up.pid)
        processes = everything(server) + (marked := marked_processes(home))
        assert len(marked) >= 2

        os.kill(server, signal.SIGKILL)

        eventually_sync(lambda: not [pid for pid in processes if is_alive(pid)])
        eventually_sync(lambda: "attempt 2" in trace())
        assert remoteclaw(home, "stop", busy.partition("-")[0]).returncode == 0
        assert remoteclaw(home, "send", "hello", "--from", "bob").returncode == 0


async def test_up_on_a_full_redis_finishes_accepted_messages_and_reports_it(
    home: Home,
) -> None:
    server = EmbeddedRedis(home)
    await server.start()
    fleet = Fleet.open(home.redis_url(Config()))
    accepted = await fleet.inbound.append(message("hello"), agent="main")
    await fleet.scripts.client.set("ballast", b"x" * 30_000_000)
    await server.stop()

    home.config_file.write_text('[redis]\nmaxmemory = "20mb"')

    shown: list[str] = []
    with running(home, shown):
        assert re.search(r"  problem  Redis is full, 1\d\d% of 20 MB in use: ", "".join(shown))
        outcome = await fleet.outcomes.wait(accepted.session.sid, accepted.entry_id, timeout_s=30)
        assert outcome is not None
        assert outcome.status == "done"
        sent = remoteclaw(home, "send", "more")
        assert sent.returncode == 1
        assert "nothing new is accepted" in sent.stderr
        status = remoteclaw(home, "status")
        assert status.returncode == 0
        assert "memory    Redis is full, " in status.stdout

        await fleet.scripts.client.delete("ballast")

        assert remoteclaw(home, "send", "hello").returncode == 0
    await fleet.aclose()


def test_killing_up_ends_every_process_and_a_damaged_redis_file_is_repaired(home: Home) -> None:
    """The next `up` continues the turn, after it has cut off the damaged end of Redis' file.

    The trace must not say that the agent died by itself.
    """

    def trace() -> str:
        return remoteclaw(home, "sessions", "trace", busy).stdout

    with running(home) as up:
        assert remoteclaw(home, "send", "hello").returncode == 0  # an agent is warm
        busy = remoteclaw(home, "send", "slow", "--from", "bob", "--wait", "0").stdout.strip()
        eventually_sync(lambda: "output" in trace())
        processes = everything(up.pid) + (marked := marked_processes(home))
        assert len(marked) >= 4

        up.kill()

        wait_for_end(processes, home)
    (file,) = [*home.redis_data.glob("appendonly.aof"), *home.redis_data.glob("*/*.incr.aof")]
    with file.open("ab") as opened:
        opened.write(b"*3\r\n" + b"\0" * 4096)

    shown: list[str] = []
    with running(home, shown):
        printed = "".join(shown)
        assert f"  problem  Redis starts with less than there was: {file} was damaged" in printed
        assert "4,100 bytes after the last complete command were removed" in printed
        eventually_sync(lambda: "attempt 2" in trace())
        assert remoteclaw(home, "stop", busy.partition("-")[0]).returncode == 0
        assert "died" not in trace()
        assert "- hello" in remoteclaw(home, "send", "memory").stdout


# -- starting -------------------------------------------------------------------------------------


def test_a_missing_hook_is_reported_before_anything_starts(home: Home) -> None:
    (home.path / "remoteclaw.toml").write_text("[hooks]\nagent_end = ['nowhere:f']")

    result = remoteclaw(home, "up", "--no-chat")

    assert result.returncode == 1
    assert result.stderr.startswith("remoteclaw: [hooks] agent_end names 'nowhere:f'")


def test_a_worker_that_cannot_start_is_reported_with_the_reason(
    home: Home, directory: Path
) -> None:
    (home.path / "remoteclaw.toml").write_text("[hooks]\nagent_end = ['picky:f']")
    (directory / "picky.py").write_text(
        "import sys\nif 'workers.settings' not in sys.modules: f = print\n"
    )

    result = remoteclaw(home, "up", "--no-chat", PYTHONPATH=str(directory))

    assert result.returncode == 1
    assert "A worker ended at its start: [hooks] agent_end names 'picky:f'" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_first_installed_agent_cli_is_used_or_else_the_demo(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(directory))
    assert detect_runtime() == (
        "demo",
        "no agent CLI was found on PATH (looked for claude, codex, gemini, opencode)",
    )
    (directory / "codex").write_text("#!/bin/sh\n")
    (directory / "codex").chmod(0o755)
    assert detect_runtime() == ("codex", f"the first agent CLI found: {directory}/codex")


def test_up_starts_while_status_holds_the_lock(home: Home) -> None:
    """`status` holds the lock for a moment, to check whether `up` has it."""
    with (home.path / "up.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        unlocking = threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN))
        unlocking.start()

        with locked(home):
            assert running_pid(home) == os.getpid()

        unlocking.join()
