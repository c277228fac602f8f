"""The recording of a terminal as an asciicast, which asciinema and other players show.

Version 2 of the format is used, because all players know it. The recording has what the screen has
shown, as `attach` paints it, and no byte of the program.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from typing import IO, Any

from remoteclaw.attach.paint import Scene, ScreenPainter, plain
from remoteclaw.attach.remote import RemoteTerminal, TerminalTarget
from remoteclaw.client.link import Address
from remoteclaw.clock import boottime, now_ms
from remoteclaw.tty.frames import apply_frame

#: The largest recording, in bytes.
MAX_BYTES = 200 * 1024 * 1024
#: The frames that wait to be written are checked again after this time, in seconds: those of a
#: moment become one event.
GATHER_S = 0.05


class CastWriter:
    """Writes frames of a screen to a file as an asciicast."""

    def __init__(self, file: IO[str]) -> None:
        self.bytes_written = 0
        self._file = file
        self._began_at = 0.0
        self._painter = ScreenPainter()
        self._size = (0, 0)

    def add(self, state: Mapping[str, Any]) -> None:
        """Write the changes up to a state, which is a full frame. Raises `OSError`."""
        size, now = (int(state["cols"]), int(state["rows"])), boottime()
        if not self.bytes_written:
            self._began_at, self._size = now, size
            self._write(
                {
                    "version": 2,
                    "width": size[0],
                    "height": size[1],
                    "timestamp": now_ms() // 1000,
                    "title": plain(state["title"]) or "RemoteClaw",
                    "env": {"TERM": "xterm-256color"},
                }
            )
        at_s = round(now - self._began_at, 3)
        if size != self._size:
            self._size = size
            self._painter.reset()
            self._write([at_s, "r", f"{size[0]}x{size[1]}"])
        rows = [state["lines"].get(str(row), []) for row in range(size[1])]
        cursor = state["cursor"]
        scene = Scene(
            cols=size[0],
            lines=rows[:-1],
            status=rows[-1],
            cursor=(cursor["row"], cursor["col"]) if cursor["visible"] else None,
            shape=cursor["shape"],
            title=state["title"],
        )
        self._write([at_s, "o", self._painter.paint(scene)])

    def _write(self, value: object) -> None:
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
        self._file.write(line)
        self._file.flush()
        self.bytes_written += len(line.encode("utf-8", "replace"))


async def record(
    address: Address,
    token: str,
    session: str,
    path: str,
    *,
    on_begin: Callable[[str], None],
) -> str:
    """Record a session's open terminal in a new file; return why the recording has ended.

    Only its user can read the file. `on_begin` gets the name of the terminal. Raises `NotOpen`,
    `GatewayRefused` or `OSError`.
    """
    state: dict[str, Any] | None = None
    changed = asyncio.Event()

    def on_frame(frame: Mapping[str, Any]) -> None:
        nonlocal state
        state = apply_frame(state, dict(frame))
        if state is None:
            remote.watch_again()
        changed.set()

    remote = RemoteTerminal(
        address,
        token,
        on_change=lambda: None,
        on_frame=on_frame,
        on_notice=lambda _kind, _text: None,
    )
    tasks = [asyncio.ensure_future(remote.run())]
    try:
        await remote.find(TerminalTarget(session=session))
        with _new_file(path) as file:
            writer = CastWriter(file)
            on_begin(remote.record["name"] or remote.record["title"] or remote.sid[:8])
            tasks.append(asyncio.ensure_future(remote.keep_watching()))
            while not remote.gone.done() and writer.bytes_written < MAX_BYTES:
                waiting = asyncio.ensure_future(changed.wait())
                events: set[asyncio.Future[Any]] = {waiting, remote.gone, *tasks}
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                for task in tasks:
                    if task.done():
                        task.result()  # raises why the gateway has refused
                changed.clear()
                if state is not None:
                    writer.add(state)
                await asyncio.sleep(GATHER_S)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not remote.gone.done():
        return f"The recording has {MAX_BYTES // 1024 // 1024} MB, which is the maximum."
    if remote.gone.result() is None:
        return f"The gateway was unavailable for a minute: {remote.away_reason}"
    return "The terminal has ended."


def _new_file(path: str) -> IO[str]:
    return open(path, "x", encoding="utf-8", errors="replace", opener=_open_privately)


def _open_privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
