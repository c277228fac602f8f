"""An agent with one conversation in turns and in terminals, stored in one file, as CLIs do it.

    python -m tests.support.conversation_agent PROGRAM [ARGUMENT …]

runs one of our programs, such as a worker or a gateway, with this runtime as `demo`.
"""

import json
import runpy
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from remoteclaw.protocols import AgentSpec, Launch
from remoteclaw.runtimes import RUNTIMES
from remoteclaw.runtimes.demo.runtime import DemoRuntime
from tests.support.bridges import script
from tests.support.command import MODULES
from tests.support.terminal_program import PROGRAM, ProgramTerminal, Transcript, Watch

#: The agent of turns: stores its messages, and replies with the earlier ones. The model is busy for
#: a message that begins with "busy", until there is a file `free`.
_AGENT = """
file = sys.argv[2] + '.talk'
while True:
    message = turn()
    if message['type'] != 'turn': continue
    lines = open(file).readlines() if os.path.exists(file) else []
    asked = [line for line in message['prompt'].splitlines() if line and line[0] != '['][-1]
    if asked.startswith('busy') and not os.path.exists('free'):
        say(type='done', error='busy', category='retryable', retry_at_ms=time.time() * 1000 + 60000)
        continue
    knew = [note['text'] for note in map(json.loads, lines) if note['kind'] == 'user']
    answer = 'You wrote ' + asked + ', and before: ' + ', '.join(knew) + '.'
    with open(file, 'a') as notes:
        for number, (kind, text) in enumerate([('user', asked), ('agent', answer)], len(lines) + 1):
            notes.write(json.dumps(dict(id=f'h{number}', kind=kind, text=text)) + chr(10))
    say(type='text', text=answer)
    say(type='done')
"""


class ConversationTerminal(ProgramTerminal):
    """The program of `shown.py`, with conversations that outlive it."""

    def launch(
        self, spec: AgentSpec, *, session_id: str | None, prompt: str, run_dir: Path
    ) -> Launch:
        """Return the launch of the program."""
        known = session_id or uuid.uuid4().hex
        argv = [sys.executable, "-c", PROGRAM, str(_file(spec.workspace, known))]
        argv += [prompt] if prompt else []
        return Launch(argv=tuple(argv), env=dict(spec.env), cwd=spec.workspace, session_id=known)

    def watch(
        self, *, run_dir: Path, workspace: str, env: Mapping[str, str], conversation: str | None
    ) -> Watch:
        """Return the watch of the program."""
        assert conversation is not None, "it is chosen"
        return Watch(_file(workspace, conversation), conversation)

    def transcript(
        self, conversation: str, *, workspace: str, env: Mapping[str, str]
    ) -> Transcript:
        """Return the transcript of the program."""
        return Transcript(_file(workspace, conversation))


class ConversationRuntime(DemoRuntime):
    """The demo runtime, with this agent and this terminal."""

    terminal = ConversationTerminal()


def agent_of(directory: Path) -> dict[str, Any]:
    """Return the configuration of the agent; its files are in `directory`."""
    workspace = directory / "workspace"
    workspace.mkdir(exist_ok=True)
    command = list(script(directory, _AGENT))
    return {"runtime": "demo", "command": command, "workspace": str(workspace)}


def said_in(directory: Path) -> list[dict[str, str]]:
    """Return all messages that the agent has stored, in order."""
    files = sorted((directory / "workspace").glob("*.talk"), key=lambda file: file.stat().st_ctime)
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _file(workspace: str, conversation: str) -> Path:
    return Path(workspace) / f"{conversation}.talk"


if __name__ == "__main__":
    cast(dict[str, Any], RUNTIMES)["demo"] = ConversationRuntime
    program, *arguments = sys.argv[1:]
    module = MODULES.get(program, program)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
