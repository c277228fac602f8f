"""The tutorial, as a reader does it: each command of docs/tutorial.md is typed as it is written."""

import contextlib
import itertools
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.support.agents import ROOT
from tests.support.documents import blocks, shell_lines
from tests.support.servers import installed_servers
from tests.support.telegram import TelegramBot
from tests.support.terminal import Terminal
from tests.support.waiting import HANG_S, eventually_sync

#: The other computer is a second home directory here. Copies have that directory's paths, as they
#: would have on a computer with the same user name.
SCP = """\
#!/bin/sh -e
for it; do case $it in first:*) cp -rp "{first}/${{it#first:}}" ~/.remoteclaw/ ;; esac; done
sed -i "s#{first}/#$HOME/#g" ~/.remoteclaw/remoteclaw.toml
"""
#: `ssh -o … -fNL OWN:THEIRS first`: the own socket leads to that of the first computer.
SSH = """\
#!/bin/sh -e
while [ "$1" = -o ]; do shift 2; done
[ "$1 $3" = "-fNL first" ] && ln -s "{first}/.remoteclaw/fleet/redis.sock" "${{2%%:*}}"
"""
#: The installed packages are those of this checkout, except before a release.
SETUP = '#!/bin/sh -e\ncd "$(dirname "$0")/.."\n[ -e .venv ] || ln -s \'{venv}\' .venv\n'


class Reader:
    """A shell in a terminal, in which a person types."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._typed = 1

    def type(self, line: str, *, then: str | None = None) -> str:
        """Type a line; wait for a text, or for the next prompt."""
        before = len(self.terminal.shown())
        self.terminal.type(f"{line}\r")
        if then is not None:
            return self.terminal.see(then)
        self._typed += line.count("\n") + 1
        self.terminal.see(f"({self._typed})$")
        return self.terminal.shown()[before:]

    def leave(self, key: str = "\x04") -> None:
        """Leave the chat with Ctrl-D, or end a program without one with Ctrl-C."""
        self.terminal.type(key)
        self._typed += 1
        self.terminal.see(f"({self._typed})$")


@contextlib.contextmanager
def computer(home: Path, programs: Path) -> Iterator[Reader]:
    home.mkdir(exist_ok=True)
    env = {
        "HOME": str(home),
        # A checkout may belong to another user than the one who runs the tests.
        **{
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        },
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "PS1": "(\\#)$ ",
        "PYTHON": sys.executable,
        "REMOTECLAW__FLEET__WORKERS": "2",
        "REMOTECLAW__GATEWAY__PORT": "0",
    }
    shell = ("bash", "--norc", "--noprofile")
    with Terminal.running(*shell, env=env, directory=home, columns=150) as terminal:
        terminal.see("(1)$")
        yield Reader(terminal)


@pytest.mark.usefixtures("home")  # so it begins early, as all slow tests do
@pytest.mark.parametrize("setup", [pytest.param("own", marks=pytest.mark.thorough), "shared"])
def test_the_tutorial_leads_from_a_clone_to_a_second_host(
    directory: Path, bot: TelegramBot, setup: str, capsys: pytest.CaptureFixture[str]
) -> None:
    programs, first, second = directory / "bin", directory / "first", directory / "second"
    programs.mkdir()
    (programs / "redis-server").symlink_to(installed_servers()[0].path)
    for name, text in (("scp", SCP), ("ssh", SSH)):
        (programs / name).write_text(text.format(first=first))
        (programs / name).chmod(0o755)
    (first / "project").mkdir(parents=True)
    (first / "project" / "plan.txt").touch()
    steps = iter(
        [
            [line for _, line in shell_lines(block)]
            for block in blocks("sh", page="docs/tutorial.md")
        ]
    )
    parts: list[tuple[str, float]] = [("", time.monotonic())]

    def reached(part: str) -> None:
        parts.append((part, time.monotonic()))

    def cloned(reader: Reader, home: Path, clone: str, enter: str) -> None:
        reader.type(clone.replace("PLACEHOLDER", str(ROOT)))
        reader.type(enter)
        if setup == "shared":
            (home / "remoteclaw/scripts/setup").write_text(SETUP.format(venv=sys.prefix))

    with contextlib.ExitStack() as computers:
        here = computers.enter_context(computer(first, programs))
        clone, enter, start = next(steps)
        cloned(here, first, clone, enter)
        reached("clone")
        here.type(start, then="Ready in")
        here.terminal.see("›")
        reached("start")
        here.type("hello", then="plan.txt")
        reached("first answer")

        beside = computers.enter_context(computer(first, programs))
        enter, send = next(steps)
        beside.type(enter)
        assert "plan.txt" in beside.type(send)
        here.terminal.see("what is in this directory?")
        (setting,) = next(steps)
        assert "agents.main.permissions is set." in beside.type(setting)
        listing, trace = next(steps)
        found = re.search(r"^([0-9a-f]{8})  hello", beside.type(listing), re.MULTILINE)
        assert found
        assert "finished" in beside.type(trace.replace("SESSION", found[1]))
        reached("project")

        (add,) = next(steps)
        beside.terminal.type(f"{add} --api-url {bot.api_url}\r")
        beside.terminal.see("Token (it is not shown)")
        beside.terminal.type(f"{bot.token}\r")
        if setup == "own":
            beside.terminal.see("Install it?")
            beside.terminal.type("y\r")
        beside.terminal.see("so that it learns who you are")
        bot.say("hello", chat=7)
        beside.terminal.see("Is that you?")
        beside.type("y")
        eventually_sync(lambda: any("demo agent" in text for text in bot.texts(7)))
        reached("phone")

        *prepare, start = next(steps)
        here.leave()
        for line in prepare:
            here.type(line)
        socket = first / ".remoteclaw" / "fleet" / "redis.sock"
        server = redis.Redis(unix_socket_path=str(socket))
        computers.callback(server.shutdown, nosave=True)
        here.type(start, then="your own")
        here.terminal.see_so_often("/help shows", 2)
        there = computers.enter_context(computer(second, programs))
        clone, enter, *prepare, start = next(steps)
        assert not list(steps)
        cloned(there, second, clone, enter)
        for line in prepare:
            if setup == "own" or "pip install" not in line:
                there.type(line)
        there.type(start, then="Ready in")
        reached("both run")
        bot.say("memory", chat=7)
        eventually_sync(lambda: len(bot.texts(7)) == 2)
        reached("an answer of either")
        here.leave()
        reached("the first one ends")
        bot.say("are you the second one?", chat=7)
        eventually_sync(lambda: len(bot.texts(7)) == 3, within_s=HANG_S)
        reached("second host")
        there.leave("\x03")
        reached("end")
    with capsys.disabled() if setup == "own" else contextlib.nullcontext():
        for (_, begun), (part, ended) in itertools.pairwise(parts):
            print(f"{part:20}{ended - begun:6.1f} s")  # noqa: T201
