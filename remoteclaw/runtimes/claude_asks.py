"""Requests of claude's own program for a permission: its hook waits for the answer.

Claude shows its dialog meanwhile; what is answered first counts. It leaves a hook running whose
dialog was answered by keys, so that is let go here.
"""

import contextlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.events import PermissionEvent
from remoteclaw.protocols import Decision
from remoteclaw.runtimes.claude_turn import PLAN, QUESTION, intent_of
from remoteclaw.runtimes.wire import count, mapping, text

#: How long claude waits for the hook, in seconds: as long as a dialog may stay. More than 24 days
#: are, in milliseconds, too much for its timers, which are over at once then.
WAIT_S = 7 * 86_400


def asking_hook(notes: Path) -> str:
    """Return a command that notes what is asked, and says what is written to its pipe."""
    file, pipe = shlex.quote(str(notes)), f"{shlex.quote(str(notes.parent))}/ask-$$"
    return (
        f"asked=$(cat); rm -f {pipe}; if mkfifo -m 600 {pipe}; then "
        f'printf \'{{"asks":%s,"of":%s}}\\n\' $$ "$asked" >> {file}; exec cat {pipe}; fi; '
        f"printf '%s\\n' \"$asked\" >> {file} || :"
    )


class ClaudeAsks:
    """The requests of one claude, each by the process of its hook."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waiting: dict[str, PermissionEvent | None] = {}
        """None for what only keys answer: questions, and plans."""

    def take(self, note: dict[str, Any]) -> dict[str, Any]:
        """Take a hook's note; return what claude has told it."""
        if "asks" not in note:
            return note
        id_, asked = str(count(note["asks"])), mapping(note.get("of"))
        tool, given = text(asked.get("tool_name")), mapping(asked.get("tool_input"))
        event = PermissionEvent(id_, tool, given, intent=intent_of(tool, given))
        self._waiting[id_] = None if tool in (QUESTION, PLAN) else event
        return asked

    def requests(self) -> list[PermissionEvent]:
        """Return those that are still waited for."""
        self._waiting = {id_: each for id_, each in self._waiting.items() if self._waits(id_)}
        return [each for each in self._waiting.values() if each is not None]

    def answer(self, request: str, decision: Decision) -> None:
        """Answer one; nothing comes of it if it was answered by keys. Raises `OSError`."""
        verdict: Mapping[str, str] = {"behavior": decision.verdict}
        if decision.verdict == "deny":
            verdict = {**verdict, "message": decision.message}
        about = {"hookEventName": "PermissionRequest", "decision": verdict}
        if request in self._waiting:
            self._say(request, orjson.dumps({"hookSpecificOutput": about}))

    def let_go(self) -> None:
        """End the hooks that wait: nothing is asked any more."""
        for id_ in [*self._waiting]:
            if self._waits(id_):
                with contextlib.suppress(OSError):  # it doesn't read yet: it is let go later
                    self._say(id_, b"")
            else:
                del self._waiting[id_]

    def _waits(self, id_: str) -> bool:
        """Whether the hook is there: it waits in `cat`, or is about to."""
        try:
            command = Path(f"/proc/{id_}/cmdline").read_bytes()
        except OSError:
            return False
        return f"ask-{id_}".encode() in command or b"ask-$$" in command

    def _say(self, id_: str, said: bytes) -> None:
        pipe = os.open(self._directory / f"ask-{id_}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, said)
        finally:
            os.close(pipe)
