"""The connector: relays MCP messages between an agent's pipes and the gateway.

Calls run beside each other, everything else one after the other. Only requests are passed on: the
gateway remembers nothing between two of them, so notifications tell it nothing.

A call may be sent twice when its connection breaks: the gateway recognises it by its id. What a
call did besides answering is in the side-effects file before the agent is answered.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping

from remoteclaw.connector.environment import Unusable, endpoint, token
from remoteclaw.connector.exchange import (
    Broken,
    Endpoint,
    Failure,
    Refused,
    RelayedCall,
    Unreachable,
    sentence,
)

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

#: How long a call may take, and anything else, in seconds.
CALL_S, OTHER_S = 120.0, 30.0
#: The same for the handshake: codex gives a server 10 s to start, and a person waits for it.
INITIALIZE_S = 5.0
#: How long a gateway that ended in a tool's call is waited for, and the pause between two attempts,
#: in seconds.
BACK_S, AGAIN_S = 5.0, 0.1
#: How many calls run at once: a gateway has other agents, too.
CALLS_AT_ONCE = 8
#: The largest message that a gateway takes, in bytes.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
#: The names in a message's `_meta` that are between the gateway and us begin so.
OURS = "remoteclaw/"
#: By which the gateway recognises a call that it has seen.
CALL_ID = OURS + "callId"
SIDE_EFFECTS = OURS + "sideEffects"
#: Which session a person's own CLI is about; an agent's is known from its token.
SESSION_KEY = OURS + "sessionKey"

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32700, -32600, -32601, -32603
#: For what the gateway did not answer: JSON-RPC leaves such numbers to servers.
GATEWAY_ERROR = -32000


class JobThreads:
    """Runs jobs in threads of its own, `width` at once, in the order in which they come."""

    def __init__(self, width: int) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for _ in range(width):
            threading.Thread(target=self._run, daemon=True).start()

    def put(self, job: Callable[[], None]) -> None:
        """Run a job, which raises nothing, as soon as there is room."""
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            self._jobs.get()()


class RelayedRequest:
    """One request of the agent's, until it is answered or cancelled."""

    def __init__(self, message: "dict[str, Any]", session_key: str) -> None:
        self.id = message["id"]
        self.method: str = message["method"]
        params = message.get("params")
        self.is_call = self.method == "tools/call"
        self.what = self.method
        """Its name in sentences."""
        self.call = RelayedCall(
            CALL_S if self.is_call else INITIALIZE_S if self.method == "initialize" else OTHER_S
        )
        if self.is_call and isinstance(params, dict):
            self.what = str(params.get("name", ""))[:100]
            meta = params.get("_meta")
            session = {SESSION_KEY: session_key} if session_key else {}
            ours = {**session, CALL_ID: os.urandom(16).hex()}
            params["_meta"] = {**ours, **(meta if isinstance(meta, dict) else {})}
        self.line = json.dumps(message).encode()


class Connector:
    """The relay between one agent and the gateway."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises `Unusable`."""
        secret, self._token_source = token(environ)
        self._gateway = Endpoint(*endpoint(environ), secret)
        self._session_key = environ.get("REMOTECLAW_SESSION_KEY", "")
        self._effects_file = environ.get("REMOTECLAW_SIDE_EFFECTS_FILE")
        self._in_order, self._calls = JobThreads(1), JobThreads(CALLS_AT_ONCE)
        self._lock = threading.Lock()
        self._open: dict[str | int, RelayedRequest] = {}
        """The requests that are not answered yet, by their id."""
        self._output = threading.Lock()

    # -- from the agent ------------------------------------------------------------------------

    def take(self, line: bytes) -> None:
        """Take one line; what takes time is done by other threads."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return self._error(None, PARSE_ERROR, "This line is not JSON.")
        method = message.get("method") if isinstance(message, dict) else None
        if not isinstance(method, str) or not isinstance(message.get("id", ""), str | int):
            self._error(None, INVALID_REQUEST, "This is not one message of JSON-RPC 2.0.")
        elif "id" not in message:
            if method == "notifications/cancelled":
                self._cancel(message.get("params"))
        elif method == "ping":
            self._answer(message["id"], {})
        elif method == "server/discover":
            # A newer way to begin, without a handshake: who asks knows the older one, too.
            self._error(message["id"], METHOD_NOT_FOUND, "Method not found: server/discover")
        else:
            self._ask(RelayedRequest(message, self._session_key))
        return None

    def _ask(self, request: RelayedRequest) -> None:
        with self._lock:
            self._open[request.id] = request
        (self._calls if request.is_call else self._in_order).put(lambda: self._serve(request))

    def _cancel(self, params: object) -> None:
        """Cancel a request: its connection is closed, and it is not answered."""
        request_id = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(request_id, str | int):
            with self._lock:
                request = self._open.pop(request_id, None)
            if request is not None:
                request.call.cancel()

    def _serve(self, request: RelayedRequest) -> None:
        """Answer a request unless it is cancelled."""
        try:
            if not request.call.is_cancelled:
                self._relay(request)
        except Exception as error:  # noqa: BLE001 - the edge of the thread
            text = f"An unexpected {type(error).__name__} in {request.method}: please report it."
            _complain(text)
            self._error(request.id, INTERNAL_ERROR, text)
        finally:
            with self._lock:
                if self._open.get(request.id) is request:
                    del self._open[request.id]

    # -- from the gateway ----------------------------------------------------------------------

    def _relay(self, request: RelayedRequest) -> None:
        """Answer a request as the gateway does, or with an error if it doesn't."""
        try:
            answer = self._asked_until_answered(request)
        except Failure as failure:
            if not request.call.is_cancelled:
                self._fail(request, failure)
            return
        if isinstance(result := answer.get("result"), dict):
            self._look_into(request, result)
        if not request.call.is_cancelled:
            self._send(answer)

    def _asked_until_answered(self, request: RelayedRequest) -> "dict[str, Any]":
        """Ask the gateway; again while a call's connection breaks, for a few seconds.

        A gateway that ended is started again within seconds, and knows the call by its id.
        """
        if len(request.line) > MAX_MESSAGE_BYTES:
            raise Refused(413, b"")
        first: Broken | None = None
        until = 0.0
        while True:
            try:
                return self._asked(request)
            except Broken as broken:
                if not (broken.is_cut and request.is_call) or request.call.is_cancelled:
                    raise
                first, until = first or broken, until or time.monotonic() + BACK_S
                if time.monotonic() > until:
                    raise
            except Unreachable as failure:
                if first is None:
                    raise
                if time.monotonic() > until or request.call.is_cancelled:
                    why = f"{first}, and it can't be reached again: {failure}"
                    raise Broken(why) from None
            time.sleep(AGAIN_S)

    def _asked(self, request: RelayedRequest) -> "dict[str, Any]":
        """Send a request and return its answer."""
        data = self._gateway.exchange(request.line, request.call)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise Broken("its answer is not JSON") from None
        if not isinstance(message, dict) or message.get("id") != request.id:
            raise Broken("its answer is none to this request")
        return message

    def _look_into(self, request: RelayedRequest, result: "dict[str, Any]") -> None:
        """Remove from a result what only the gateway and the connector need."""
        if request.method == "initialize":
            # HTTP repeats with every message what was agreed on.
            self._gateway.headers["MCP-Protocol-Version"] = str(result["protocolVersion"])
        meta = result.get("_meta")
        if request.is_call and isinstance(meta, dict):
            self._write_down(meta.get(SIDE_EFFECTS))
            result["_meta"] = {name: meta[name] for name in meta if not name.startswith(OURS)}
            if not result["_meta"]:
                del result["_meta"]

    def _write_down(self, records: object) -> None:
        """Append what a call did to the side-effects file; if that fails, the call stands."""
        if not self._effects_file or not isinstance(records, list) or not records:
            return
        lines = "".join(json.dumps(record) + "\n" for record in records)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._effects_file, flags, 0o600)
            try:
                os.write(descriptor, lines.encode())  # at once: other calls append to it, too
            finally:
                os.close(descriptor)
        except OSError as error:
            why = error.strerror
            _complain(f"Side effects can't be written to REMOTECLAW_SIDE_EFFECTS_FILE: {why}.")

    # -- to the agent --------------------------------------------------------------------------

    def _fail(self, request: RelayedRequest, failure: Failure) -> None:
        """Answer a request that the gateway did not answer."""
        text = sentence(
            failure,
            gateway=self._gateway.name,
            token_source=self._token_source,
            what=request.what,
            is_call=request.is_call,
        )
        if request.is_call:
            result = {"content": [{"type": "text", "text": text}], "isError": True}
            self._answer(request.id, result)
        else:
            self._error(request.id, GATEWAY_ERROR, text)
            _complain(text)

    def _answer(self, request_id: object, result: "dict[str, Any]") -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _error(self, request_id: object, code: int, text: str) -> None:
        error = {"code": code, "message": text}
        self._send({"jsonrpc": "2.0", "id": request_id, "error": error})

    def _send(self, message: "dict[str, Any]") -> None:
        """Write a message; end the process when the agent has closed its end."""
        with self._output:
            left = memoryview(json.dumps(message).encode() + b"\n")
            while left:
                try:
                    left = left[os.write(1, left) :]
                except OSError:
                    os._exit(0)


def _complain(text: str) -> None:
    """Write one line to standard error."""
    with contextlib.suppress(OSError):
        os.write(2, f"remoteclaw mcp: {' '.join(text.split())}\n".encode("utf-8", "replace"))


# -- the start ---------------------------------------------------------------------------------


def main() -> None:
    """Relay until the agent closes its end."""
    status = 0
    try:
        for descriptor in (0, 1):
            os.set_blocking(descriptor, True)  # a CLI may share them with us, non-blocking
        connector = Connector(os.environ)
        for line in sys.stdin.buffer:
            if line.strip():
                connector.take(line)
    except Unusable as error:
        _complain(str(error))
        status = 1
    except Exception as error:  # noqa: BLE001 - the edge of the process
        _complain(f"An unexpected {type(error).__name__}: please report it.")
        status = 1
    os._exit(status)  # what still runs is of no use any more
