"""Permission requests of claude's terminal program, each of which a hook process holds open.

Claude shows its dialog at the same time, and the first answer counts. After an answer by keys,
claude leaves the hook running, so it is released here.
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
from remoteclaw.runtimes.claude.intent import PLAN_TOOL, QUESTION_TOOL, intent_of
from remoteclaw.runtimes.wire import count, mapping, text


def permission_hook(notes: Path) -> str:
    """Return the shell command of the hook.

    It appends the request and its process id to the file `notes`. It then prints what is written to
    its named pipe, which is the answer.
    """
    file, pipe = shlex.quote(str(notes)), f"{shlex.quote(str(notes.parent))}/ask-$$"
    return (
        f"asked=$(cat); rm -f {pipe}; if mkfifo -m 600 {pipe}; then "
        f'printf \'{{"asks":%s,"of":%s}}\\n\' $$ "$asked" >> {file}; exec cat {pipe}; fi; '
        f"printf '%s\\n' \"$asked\" >> {file} || :"
    )


class HookPermissions:
    """The open requests of one claude, by the process ids of their hooks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open_requests: dict[str, PermissionEvent | None] = {}
        """None for questions and plans, which only keys can answer."""

    def register(self, note: dict[str, Any]) -> dict[str, Any]:
        """Register the request of a hook's note, if it is one; return the hook's input."""
        if "asks" not in note:
            return note
        id_, hook_input = str(count(note["asks"])), mapping(note.get("of"))
        tool, tool_input = text(hook_input.get("tool_name")), mapping(hook_input.get("tool_input"))
        intent = intent_of(tool, tool_input, text(hook_input.get("cwd")) or None)
        event = PermissionEvent(id_, tool, tool_input, intent=intent)
        self._open_requests[id_] = None if tool in (QUESTION_TOOL, PLAN_TOOL) else event
        return hook_input

    def requests(self) -> list[PermissionEvent]:
        """Return the requests whose hooks still wait and that can be answered without keys."""
        self._open_requests = {
            id_: event for id_, event in self._open_requests.items() if self._is_waiting(id_)
        }
        return [event for event in self._open_requests.values() if event is not None]

    def answer(self, request: str, decision: Decision) -> None:
        """Answer a request; ignore an unknown one. Raises `OSError` if its hook has ended."""
        verdict: Mapping[str, str] = {"behavior": decision.verdict}
        if decision.verdict == "deny":
            verdict = {**verdict, "message": decision.message}
        output = {"hookEventName": "PermissionRequest", "decision": verdict}
        if request in self._open_requests:
            self._write(request, orjson.dumps({"hookSpecificOutput": output}))

    def release(self) -> None:
        """End all waiting hooks, because claude no longer shows a dialog."""
        for id_ in [*self._open_requests]:
            if self._is_waiting(id_):
                with contextlib.suppress(OSError):  # it doesn't read yet: the next call ends it
                    self._write(id_, b"")
            else:
                del self._open_requests[id_]

    def _is_waiting(self, id_: str) -> bool:
        """Whether the hook's process waits in `cat`, or is about to."""
        try:
            command = Path(f"/proc/{id_}/cmdline").read_bytes()
        except OSError:
            return False
        return f"ask-{id_}".encode() in command or b"ask-$$" in command

    def _write(self, id_: str, data: bytes) -> None:
        pipe = os.open(self._directory / f"ask-{id_}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, data)
        finally:
            os.close(pipe)
