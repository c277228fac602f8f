"""The agent program of a terminal: its activity, and the transcripts of its conversations."""

import contextlib
from pathlib import Path

from remoteclaw.fleet.terminals.state import TerminalPlace
from remoteclaw.protocols import ModelRequest, TerminalProgram, TerminalWatch, Transcript
from remoteclaw.runtimes import create_cli_runtime


def watch_of(place: TerminalPlace) -> TerminalWatch:
    """Return the watch that reports the program's activity, title and conversation."""
    return _program_of(place).watch(
        run_dir=Path(place.files),
        workspace=place.workspace,
        env=place.places,
        conversation=place.conversation,
    )


def transcript_of(place: TerminalPlace, conversation: str) -> Transcript:
    """Return the transcript of a conversation that was open in the terminal."""
    program = _program_of(place)
    return program.transcript(conversation, workspace=place.workspace, env=place.places)


def requests_of(place: TerminalPlace, conversation: str) -> list[ModelRequest]:
    """Return the requests to the model of a conversation; none if its transcript can't be read.

    A process of another version may not know the program.
    """
    program = create_cli_runtime(place.runtime).terminal
    with contextlib.suppress(OSError):
        return program.model_requests(conversation, place.places) if program else []
    return []


def _program_of(place: TerminalPlace) -> TerminalProgram:
    program = create_cli_runtime(place.runtime).terminal
    assert program is not None, "the runtime has started this terminal"
    return program
