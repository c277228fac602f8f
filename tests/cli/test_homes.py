"""State directories with unusual paths: every command finds what runs there."""

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from remoteclaw.cli import main
from remoteclaw.config.home import Home
from tests.support.command import REMOTECLAW, start_program
from tests.support.terminal import Terminal, env
from tests.support.up import remoteclaw, running
from tests.support.waiting import eventually_sync

#: What a command prints that does not find the running RemoteClaw, or fails unexpectedly.
LOST = re.compile(
    "^(Traceback|remoteclaw: .*(isn't running|can't be reached|can't make|too long|unexpected))",
    re.MULTILINE,
)
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


@contextlib.contextmanager
def at(path: Path) -> Iterator[Home]:
    """Yield a state directory; remove what it leaves outside of the test's directory."""
    home = Home(path)
    try:
        yield home
    finally:
        if home.sockets != home.path:
            shutil.rmtree(home.sockets, ignore_errors=True)


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


def arguments(command: click.Command, sid: str) -> Iterator[str]:
    """Yield a value for each parameter that a command requires."""
    for parameter in command.params:
        if parameter.required:
            if isinstance(parameter, click.Option):
                yield parameter.opts[-1]
            choices = getattr(parameter.type, "choices", None)
            yield choices[0] if choices else sid if parameter.name == "session" else "x"


def test_the_name_of_the_state_directory_may_have_any_characters(directory: Path) -> None:
    name = '-x it\'s "é" & $HOME; `id` 日本🦞 a@b:c=d,e|f'
    with at(directory / name) as home, running(home):
        assert home.sockets == home.path
        check(home)


def test_a_state_directory_has_the_same_sockets_by_each_of_its_names(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    names = [Path(name) for name in ("link", "x" * 90, "a %20 #", "./other/../link")]
    (directory / "home").mkdir(mode=0o700)
    for name in names[:3]:
        name.symlink_to("home")
    Path("other").mkdir()
    names += [directory / "home", Path("home/")]

    with running(Home(names[1])):
        for name in names:
            check(Home(name))


def check(home: Home) -> None:
    assert remoteclaw(home, "send", "hello").returncode == 0
    assert remoteclaw(home, "status").returncode == 0
    assert f"already runs in {home.path.resolve()} " in remoteclaw(home, "up").stderr


def test_every_command_works_in_a_state_directory_with_a_path_of_200_bytes(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)  # `backup` writes a file
    path = directory / ("x" * (199 - len(bytes(directory))))
    with at(path) as home, running(home):
        sid = json.loads(remoteclaw(home, "send", "hello", "--json").stdout)["reference"][:8]

        for name, command in commands(main):
            line = (*name, *arguments(command, sid))
            printed = printed_by(home, *line, log=directory / "log")
            assert printed, line
            assert not LOST.search(printed), (line, printed)


def printed_by(home: Home, *line: str, log: Path) -> str:
    """Return what a command prints until it ends; or its first output, if it runs on."""
    match line:
        case ("chat", *_):
            with Terminal.running(REMOTECLAW, *line, env=env(home)) as terminal:
                terminal.see("›")
                return terminal.shown()
        case ("attach", *_):
            with Terminal.running(REMOTECLAW, "attach", "nobody", env=env(home)) as terminal:
                terminal.see("'nobody' is no session")
                return terminal.shown()
        case ("mcp",):
            pipe = subprocess.PIPE
            with subprocess.Popen(
                [REMOTECLAW, "mcp"], env=env(home), stdin=pipe, stdout=pipe
            ) as mcp:
                assert mcp.stdin is not None
                assert mcp.stdout is not None
                mcp.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
                mcp.stdin.flush()
                return mcp.stdout.readline().decode()
        case ("worker" | "gateway" | "sweep" | "dashboard",) | ("channel", "run"):
            program = start_program((REMOTECLAW, *line), env=env(home), log=log)
            eventually_sync(lambda: log.read_text().endswith("\n") or program.poll() is not None)
            program.terminate()
            program.wait()
            return log.read_text()
        case _:
            result = remoteclaw(home, *line)
            return result.stdout + result.stderr
