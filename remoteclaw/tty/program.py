"""The program of a terminal, and its conversations, by where it was started."""

from pathlib import Path

from remoteclaw.fleet.terminal_state import TerminalPlace
from remoteclaw.protocols import TerminalProgram, TerminalWatch, Transcript
from remoteclaw.runtimes import create_cli_runtime


def watch_of(place: TerminalPlace) -> TerminalWatch:
    """Return what follows the program."""
    return _program_of(place).watch(
        run_dir=Path(place.files),
        workspace=place.workspace,
        env=place.places,
        conversation=place.conversation,
    )


def transcript_of(place: TerminalPlace, conversation: str) -> Transcript:
    """Return the record of a conversation that was open in it."""
    program = _program_of(place)
    return program.transcript(conversation, workspace=place.workspace, env=place.places)


def _program_of(place: TerminalPlace) -> TerminalProgram:
    program = create_cli_runtime(place.runtime).terminal
    assert program is not None, "it was started by it"
    return program
