"""A gateway whose one terminal is played by a test, and a terminal that shows what a user sees."""

import contextlib
import copy
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pexpect
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve, unix_serve

from remoteclaw import __version__
from remoteclaw.config.home import Home
from remoteclaw.gateway.auth.token_file import token_files
from remoteclaw.tty.frames import Frames, Modes, row_text
from tests.support.command import REMOTECLAW
from tests.support.terminal import Terminal
from tests.support.waiting import HANG_S

SID = "5e55" * 8
RECORD = {
    "sid": SID,
    "sessionKey": "main/web/default/admin.ada:admin.ada:_",
    "agent": "main",
    "name": "",
    "host": "here",
    "state": "live",
    "reason": "",
    "activity": "idle",
    "waitingFor": "",
    "title": "",
    "draft": "",
    "openedBy": "Ada",
    "writer": "",
    "viewers": 1,
    "cols": 80,
    "rows": 23,
    "conversation": None,
    "resumable": True,
    "sinceMs": 0,
    "openedMs": 0,
    "exit": None,
}
#: Input that a terminal may send although no user has typed it.
HOSTILE_INPUT = (
    b"\x1b[?62;22c",  # answers to queries of other programs
    b"\x1b[>1;10;0c",
    b"\x1b[?1u",
    b"\x1b[24;80R",
    b"\x1b[?1;0;256S",
    b"\x1b[?2026;2$y",
    b"\x1b[8;24;80t",
    b"\x1bP>|xterm.js(6.0.0)\x1b\\",
    b"\x1bP1+r544e=787465726d\x1b\\",
    b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\x1b]52;c;cm0gLXJm\x07",
    b"\x1b_Gi=1;OK\x1b\\",
    b"\x1b^private\x1b\\",
    b"\x1bXstring\x1b\\",
    b"\x1b[I\x1b[O",  # the window gets or loses the focus
    b"\x1b[<0;10;10M\x1b[<0;10;10m",  # the mouse, in three encodings
    b"\x1b[M !!",
    b"\x1b[32;10;10M",
    b"\x1b[97;1:3u",  # the release of a key
    b"\x1b[57441;2u",  # Shift alone
    b"\x1b[97;9u",  # with a modifier that programs don't know
    b"\x1b[201~",
    b"\x1b[1;2;3;4;5;6X\x1b[!p\x1b[ q",
    b"\x80\x9b\xff\xfe\xc2\x9b\xc2\x90",  # invalid UTF-8, and C1
)
#: All escape sequences that `attach` writes; any other one comes from the program.
OURS = re.compile(
    r"\x1b\[[0-9;]*[mHGK]|\x1b\[2J|\x1b\[[0-6] q|\x1b\[\?(?:2026|25)[hl]"
    r"|\x1b\]8;;(?:https?://[!-~]+)?\x1b\\|\x1b\]2;[^\x00-\x1f\x7f-\x9f]*\x07"
)
#: Sequences of terminals that pyte would print or reject.
_UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>][0-9;]*[a-zA-Z]|\x1b\[\?1007[rs]")
_BEGUN = re.compile(rb"\x1b(\[[<>?]?[0-9;]*)?\Z")


class RemoteGateway:
    """Speaks the gateway's protocol; a test controls what its terminal shows and does."""

    def __init__(self) -> None:
        self.version = __version__
        self.record: dict[str, Any] = dict(RECORD)
        self.screen = Frames(80, 23)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """The calls of terminal methods, in order."""
        self.refuses: dict[str, tuple[str, str]] = {}
        """The methods that are refused, with code and message."""
        self.leaves_at = ""
        """The method at which the gateway stops answering for good."""
        self.waits = False
        self.gives = threading.Event()
        """Clear while the answer to a call that takes the keyboard is held."""
        self.gives.set()
        self.overtakes: dict[str, Any] = {}
        """Changes of the record at the next input, which are sent before the input is answered."""
        self.history: list[list[Any]] = []
        self.port = 0
        self._lines: dict[int, list[Any]] = {}
        self._connections: list[ServerConnection] = []
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._path: Path | None = None
        self.show()

    # -- for tests -----------------------------------------------------------------------------

    def open(self) -> None:
        """Start answering."""
        self._start(serve(self._serve, "127.0.0.1", self.port, compression=None))
        assert self._server is not None
        self.port = self._server.socket.getsockname()[1]

    def open_privately(self, home: Home) -> None:
        """Start answering as the gateway of a state directory."""
        token_files(home.path)[0].create()
        home.gateways.mkdir(parents=True, exist_ok=True)
        self._path = home.gateways / "remote"
        self._start(unix_serve(self._serve, str(self._path), compression=None))

    def close(self) -> None:
        """Stop answering, and close all connections."""
        if self._server:
            self._server.shutdown()
            self._server = None
        if self._path:
            self._path.unlink(missing_ok=True)
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.socket.shutdown(2)
        self._connections.clear()

    def show(self, lines: Mapping[int, Sequence[Any]] | None = None, **rest: Any) -> None:
        """Change rows of the screen and other fields of a frame, and send it to all viewers."""
        with self._lock:
            before = {
                "cursor": {"row": 0, "col": 0, "visible": True, "shape": "block"},
                "title": "",
                "modes": Modes().as_json(),
                "history": len(self.history),
                **self.screen.other_fields,
            }
            revision = self.screen.revision
            rows = {row: list(runs) for row, runs in (lines or {}).items()}
            self.screen.update(rows, {**before, **rest})
            frame = self.screen.since(revision)
        if frame:
            self.tell("terminal.screen", {"sid": SID, **frame})

    def change(self, **changes: Any) -> None:
        """Change the terminal's record, and notify its viewers."""
        self.record.update(changes)
        self.tell("terminal.state", self.record)

    def gone(self, **changes: Any) -> None:
        """End the terminal."""
        self.record.update(changes)
        self.tell("terminal.gone", {"sid": SID, "record": self.record})

    def tell(self, event: str, payload: Mapping[str, Any]) -> None:
        """Send an event to every client."""
        data = orjson.dumps({"type": "event", "event": event, "payload": payload}).decode()
        for connection in [*self._connections]:
            with contextlib.suppress(ConnectionClosed):
                connection.send(data)

    def of(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of all calls of a method."""
        return [params for name, params in self.asked if name == method]

    def screen_result(self) -> dict[str, Any]:
        """Return the result of `terminals.screen`."""
        text = "\n".join(map(row_text, self.screen.rows))
        return {"sid": SID, "frame": self.screen.since(None), "text": text}

    @property
    def typed(self) -> list[str]:
        """All input, in order."""
        return [key for params in self.of("terminals.type") for key in params["keys"]]

    def _start(self, server: Server) -> None:
        self._server = server
        threading.Thread(target=server.serve_forever, daemon=True).start()

    # -- for clients ---------------------------------------------------------------------------

    def _serve(self, connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            for text in connection:
                request = orjson.loads(text)
                method, params = request["method"], request["params"]
                if method.startswith("terminals."):
                    self.asked.append((method, params))
                if method == "terminals.watch" and connection not in self._connections:
                    self._connections.append(connection)
                answer: dict[str, Any] = {"type": "res", "id": request["id"]}
                if method == self.leaves_at:
                    threading.Thread(target=self.close).start()
                    return
                if refused := self.refuses.get(method):
                    error = {"code": refused[0], "message": refused[1]}
                    answer |= {"ok": False, "error": error}
                else:
                    answer |= {"ok": True, "payload": self._answer(method, params)}
                if method == "terminals.type" and self.overtakes:
                    self.change(**self.overtakes)
                connection.send(orjson.dumps(answer).decode())
                if method == "terminals.watch":
                    frame = {"sid": SID, **(self.screen.since(None) or {})}
                    event = {"type": "event", "event": "terminal.screen", "payload": frame}
                    connection.send(orjson.dumps(event).decode())

    def _answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        match method:
            case "connect":
                return {"policy": {"maxPayload": 1_000_000}}
            case "health":
                return {"status": "ok", "version": self.version}
            case "terminals.open":
                return {"terminal": self.record, "created": True, "waits": self.waits}
            case "terminals.list":
                return {"terminals": [self.record]}
            case "terminals.screen":
                return self.screen_result()
            case "terminals.history":
                rows = self.history[params["start"] : params["start"] + params["count"]]
                return {**params, "total": len(self.history), "rows": rows}
            case "terminals.take":
                self.gives.wait(HANG_S)
                self.record["writer"] = "Ada"
        return copy.copy(self.record)


class Witness(Terminal):
    """A user's terminal, without the modes that pyte does not know."""

    _rest = b""

    def read(self) -> None:
        """Read what the program has written, or wait briefly."""
        with contextlib.suppress(pexpect.TIMEOUT, pexpect.EOF):
            data = self._child.read_nonblocking(65536, timeout=0.02)
            self.raw += data
            self._shown = None
            data = self._rest + data
            begun = _BEGUN.search(data)
            end = begun.start() if begun else len(data)
            self._rest = data[end:]
            self._stream.feed(_UNKNOWN_TO_PYTE.sub(b"", data[:end]))

    @property
    def rings(self) -> int:
        """How often the bell has rung, without the same character at the end of titles."""
        return re.sub(rb"\x1b\][^\x07]*\x07", b"", self.raw).count(b"\x07")

    def until(self, gateway: RemoteGateway, method: str, count: int = 1) -> None:
        """Wait until a method was called `count` times."""
        deadline = time.monotonic() + HANG_S
        while len(gateway.of(method)) < count:
            assert time.monotonic() < deadline, (method, gateway.asked, self.shown())
            self.read()

    def until_typed(self, gateway: RemoteGateway, *keys: str) -> None:
        """Wait until exactly these keys were typed."""
        deadline = time.monotonic() + HANG_S
        while _joined(gateway.typed) != _joined(keys):
            assert time.monotonic() < deadline, (gateway.typed, self.shown())
            self.read()


def _joined(keys: Sequence[str]) -> list[str]:
    """Return keys with adjacent texts joined, because input may be cut anywhere."""
    joined: list[str] = []
    for key in keys:
        if key.startswith("t:") and joined and joined[-1].startswith("t:"):
            joined[-1] += key[2:]
        else:
            joined.append(key)
    return joined


@contextlib.contextmanager
def attached(
    gateway: RemoteGateway,
    *arguments: str,
    env: Mapping[str, str],
    columns: int = 80,
    rows: int = 24,
) -> Iterator[Witness]:
    """Run `remoteclaw attach` with a gateway that is played by a test."""
    gateway.open()
    url = f"http://127.0.0.1:{gateway.port}"
    try:
        with Witness.running(
            *(REMOTECLAW, "attach", "--url", url, *arguments),
            env={**env, "REMOTECLAW_GATEWAY_TOKEN": "token", "COLORTERM": "truecolor"},
            columns=columns,
            rows=rows,
        ) as screen:
            assert isinstance(screen, Witness)
            yield screen
    finally:
        gateway.close()
