"""The film of a worker that is killed in the middle of an answer, recorded from real processes."""

import json
import re
import tempfile
from contextlib import ExitStack
from pathlib import Path

from remoteclaw.config.home import Home
from tests.support.bridges import script
from tests.support.command import REMOTECLAW
from tests.support.day import at_rest
from tests.support.film import Film
from tests.support.terminal import Terminal, env
from tests.support.up import running

QUESTION = "How is the basket priced?"
ANSWER = """\
The total is computed in one place, `shop/basket.py`, and nothing else adds prices up.

1. `page.py` asks it for the total
2. `mail.py` has a copy of the sum, from before the discount

So the mail should call `total()`, too. Shall I?"""
#: An agent that takes some seconds for its answer.
_AGENT = """
while turn():
    for word in ANSWER.split(' '):
        say(type='text', text=word + ' ')
        time.sleep(0.15)
    say(type='done')
"""
#: RemoteClaw's sentence before the answer of the second attempt.
AGAIN = "Here is my second try."


def kill_film() -> str:
    """Return the picture."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp")))
        home = Home(directory / "home").create()
        command = script(directory, _AGENT.replace("ANSWER", repr(ANSWER)))
        home.config_file.write_text(f"[agents.main]\ncommand = {json.dumps(command)}\n")
        stack.enter_context(running(home, None, "--no-chat", REMOTECLAW__FLEET__WORKERS="2"))
        chat = stack.enter_context(
            Terminal.running(REMOTECLAW, "chat", env=env(home), columns=60, rows=24)
        )
        shell_env = {**env(home), "PS1": "$ ", "BASH_SILENCE_DEPRECATION_WARNING": "1"}
        shell = stack.enter_context(
            Terminal.running("bash", "--norc", "--noprofile", env=shell_env, columns=44, rows=24)
        )
        at_rest(chat)
        shell.see("$")
        return _recorded(chat, shell)


def _recorded(chat: Terminal, shell: Terminal) -> str:
    film = Film({"remoteclaw chat": chat, "another terminal": shell}, rows=23)
    film.watch_for(0.5)
    film.type(chat, f"{QUESTION}\r")
    film.type(shell, "remoteclaw status | head -3\r")
    film.watch(lambda: "busy      pid" in shell.shown())
    (pid,) = re.findall(r"busy +pid (\d+)", shell.shown())
    film.watch(lambda: shell.shown().endswith("\n$"))
    film.type(shell, f"kill -9 {pid}\r")
    killed_s = film.now_s
    film.watch(lambda: AGAIN in " ".join(chat.shown().split()))
    again_s = film.now_s
    film.watch(lambda: "Shall I?" in chat.shown())
    at_rest(chat)
    film.watch_for(0.5)
    return film.picture(
        f"Recorded in real time: killed after {killed_s:.1f} s, answered again "
        f"{again_s - killed_s:.1f} s later, done after {film.now_s:.1f} s."
    )
