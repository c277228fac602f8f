"""A conversation that moves from turns to a CLI's own program in a terminal, and back."""

import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remoteclaw.config.home import Home, private_directory
from remoteclaw.protocols import AgentSpec, Launch, TerminalWatch, Transcript, TranscriptItem
from remoteclaw.runtimes import create_cli_runtime
from tests.support.agents import AgentCli
from tests.support.tty import Tty


@dataclass
class Walk:
    """A conversation of turns that is open in a terminal."""

    cli: AgentCli
    conversation: str
    workspace: Path
    tty: Tty
    record: Transcript
    position: str
    _items: list[TranscriptItem] = field(default_factory=list)

    @property
    def watch(self) -> TerminalWatch:
        """The watch of the program."""
        return self.tty.watch

    def items(self) -> list[TranscriptItem]:
        """Return the transcript items of the terminal, each once."""
        while True:
            items, self.position = self.record.read(self.position)
            if not items:
                return [*self._items]
            self._items += items


@contextlib.asynccontextmanager
async def walk(
    home: Home, cli: AgentCli, conversation: str, *, prompt: str = "", **of_spec: Any
) -> AsyncIterator[Walk]:
    """Open a conversation of turns in the CLI's own program."""
    runtime = create_cli_runtime(cli.name)
    terminal = runtime.terminal
    assert terminal is not None
    env = {**runtime.environment(os.environ), **cli.env}
    workspace = home.path / "work"
    record = terminal.transcript(conversation, workspace=str(workspace), env=env)
    position = record.end()
    launch, watch = program(
        cli, env, workspace, home.path, conversation=conversation, prompt=prompt, **of_spec
    )
    async with Tty.running(launch, watch) as tty:
        yield Walk(cli, conversation, workspace, tty, record, position)


def program(
    cli: AgentCli,
    env: Mapping[str, str],
    workspace: Path,
    directory: Path,
    *,
    conversation: str | None = None,
    prompt: str = "",
    **of_spec: Any,
) -> tuple[Launch, TerminalWatch]:
    """Return the launch of a CLI's own program in a workspace, and its watch."""
    runtime = create_cli_runtime(cli.name)
    terminal = runtime.terminal
    assert terminal is not None
    run_dir = private_directory(directory / "terminal")
    spec = AgentSpec(
        runtime=cli.name,
        command=cli.command,
        workspace=str(workspace),
        env=env,
        model=cli.model_name,
        **of_spec,
    )
    launch = terminal.launch(
        runtime.fitted(spec), session_id=conversation, prompt=prompt, run_dir=run_dir
    )
    watch = terminal.watch(
        run_dir=run_dir,
        workspace=str(workspace),
        env=terminal.places(env),
        # The file that codex has open is found through its process.
        conversation=None if cli.name == "codex" else launch.session_id,
    )
    return launch, watch
