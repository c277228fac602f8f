"""The connector: relays MCP messages between an agent's pipes and the gateway.

Tool calls run at the same time, all other requests one after the other. Notifications are
not relayed: the gateway keeps no state that they could change.

A call is sent again when its connection breaks; the gateway recognizes it by its id. The side
effects of a call are in the side-effects file before the agent gets the answer.
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
    ExchangeFailed,
    RelayedCall,
    RequestRefused,
    Unreachable,
    sentence,
)

TYPE_CHECKING = False  # importing it from typing would take 5 ms
if TYPE_CHECKING:
    from typing import Any

#: How long a call, and any other request, may take, in seconds.
CALL_S, OTHER_S = 120.0, 30.0
#: How long the handshake may take, in seconds: codex gives a server 10 s to start, and a person
#: waits for it.
INITIALIZE_S = 5.0
#: How long to wait for a gateway that has ended during a call, in seconds.
RESTART_S = 5.0
#: The pause between two attempts, in seconds.
RETRY_S = 0.1
#: The maximum number of calls at the same time, because other agents use the gateway, too.
MAX_CALLS = 8
#: The maximum size of a message that the gateway accepts, in bytes.
MAX_MESSAGE_BYTES = 2 * 1024 * 1024
#: The prefix of the names in a message's `_meta` that only the gateway and the connector use.
OURS = "remoteclaw/"
#: The id of a call, by which the gateway recognizes a repetition.
CALL_ID = OURS + "callId"
#: The side effects of a call, in its result.
SIDE_EFFECTS = OURS + "sideEffects"
#: The session of a person's own CLI; the gateway knows an agent's from its token.
SESSION_KEY = OURS + "sessionKey"

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32700, -32600, -32601, -32603
#: The error code for a request that the gateway did not answer, from JSON-RPC's range for servers.
GATEWAY_ERROR = -32000


class JobThreads:
    """Runs jobs in `width` threads, in the order in which they are put."""

    def __init__(self, width: int) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        for _ in range(width):
            threading.Thread(target=self._run, daemon=True).start()

    def put(self, job: Callable[[], None]) -> None:
        """Run a job, which must not raise, as soon as a thread is free."""
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            self._jobs.get()()


class RelayedRequest:
    """A request of the agent, until it is answered or cancelled."""

    def __init__(self, message: "dict[str, Any]", session_key: str) -> None:
        self.id = message["id"]
        self.method: str = message["method"]
        params = message.get("params")
        self.is_call = self.method == "tools/call"
        self.shown_name = self.method
        """The name of the tool or the method, for errors."""
        if self.is_call:
            timeout_s = CALL_S
        elif self.method == "initialize":
            timeout_s = INITIALIZE_S
        else:
            timeout_s = OTHER_S
        self.call = RelayedCall(timeout_s)
        if self.is_call and isinstance(params, dict):
            self.shown_name = str(params.get("name", ""))[:100]
            meta = params.get("_meta")
            session = {SESSION_KEY: session_key} if session_key else {}
            own_meta = {**session, CALL_ID: os.urandom(16).hex()}
            params["_meta"] = {**own_meta, **(meta if isinstance(meta, dict) else {})}
        self.line = json.dumps(message).encode()


class Connector:
    """The relay between one agent and the gateway."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read the settings in `environ`. Raises `Unusable`."""
        secret, self._token_source = token(environ)
        self._gateway = Endpoint(*endpoint(environ), secret)
        self._session_key = environ.get("REMOTECLAW_SESSION_KEY", "")
        self._effects_file = environ.get("REMOTECLAW_SIDE_EFFECTS_FILE")
        self._in_order, self._calls = JobThreads(1), JobThreads(MAX_CALLS)
        self._lock = threading.Lock()
        self._unanswered: dict[str | int, RelayedRequest] = {}
        """The requests that are not answered yet, by id."""
        self._output_lock = threading.Lock()

    # -- from the agent ------------------------------------------------------------------------

    def handle(self, line: bytes) -> None:
        """Handle a line from the agent, without blocking: other threads relay requests."""
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
            # A newer alternative to the handshake; clients that try it also know the handshake.
            self._error(message["id"], METHOD_NOT_FOUND, "Method not found: server/discover")
        else:
            self._queue(RelayedRequest(message, self._session_key))
        return None

    def _queue(self, request: RelayedRequest) -> None:
        with self._lock:
            self._unanswered[request.id] = request
        (self._calls if request.is_call else self._in_order).put(lambda: self._serve(request))

    def _cancel(self, params: object) -> None:
        """Cancel a request: close its connection, and send no answer."""
        request_id = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(request_id, str | int):
            with self._lock:
                request = self._unanswered.pop(request_id, None)
            if request is not None:
                request.call.cancel()

    def _serve(self, request: RelayedRequest) -> None:
        """Answer a request, unless it is cancelled."""
        try:
            if not request.call.is_cancelled:
                self._relay(request)
        except Exception as error:  # noqa: BLE001 - the thread must continue
            text = f"An unexpected {type(error).__name__} in {request.method}: please report it."
            _complain(text)
            self._error(request.id, INTERNAL_ERROR, text)
        finally:
            with self._lock:
                if self._unanswered.get(request.id) is request:
                    del self._unanswered[request.id]

    # -- from the gateway ----------------------------------------------------------------------

    def _relay(self, request: RelayedRequest) -> None:
        """Send the agent the gateway's answer to a request, or an error if there is none."""
        try:
            answer = self._exchange_with_retries(request)
        except ExchangeFailed as failure:
            if not request.call.is_cancelled:
                self._fail(request, failure)
            return
        if isinstance(result := answer.get("result"), dict):
            self._process_result(request, result)
        if not request.call.is_cancelled:
            self._send(answer)

    def _exchange_with_retries(self, request: RelayedRequest) -> "dict[str, Any]":
        """Return the gateway's answer; repeat a call for `RESTART_S` while its connection breaks.

        A gateway that has ended is started again within seconds, and recognizes the call by its id.
        """
        if len(request.line) > MAX_MESSAGE_BYTES:
            raise RequestRefused(413, b"")
        first: Broken | None = None
        retry_until = 0.0
        while True:
            try:
                return self._exchange(request)
            except Broken as broken:
                if not (broken.is_cut and request.is_call) or request.call.is_cancelled:
                    raise
                if first is None:
                    first, retry_until = broken, time.monotonic() + RESTART_S
                if time.monotonic() > retry_until:
                    raise
            except Unreachable as failure:
                if first is None:
                    raise
                if time.monotonic() > retry_until or request.call.is_cancelled:
                    why = f"{first}, and it can't be reached again: {failure}"
                    raise Broken(why) from None
            time.sleep(RETRY_S)

    def _exchange(self, request: RelayedRequest) -> "dict[str, Any]":
        """Send a request once and return the gateway's answer. Raises `ExchangeFailed`."""
        data = self._gateway.exchange(request.line, request.call)
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise Broken("its answer is not JSON") from None
        if not isinstance(message, dict) or message.get("id") != request.id:
            raise Broken("its answer is not to this request")
        return message

    def _process_result(self, request: RelayedRequest, result: "dict[str, Any]") -> None:
        """Handle the parts of a result that are for the connector, and remove them."""
        if request.method == "initialize":
            # Over HTTP, each later message has the negotiated version in a header.
            self._gateway.headers["MCP-Protocol-Version"] = str(result["protocolVersion"])
        meta = result.get("_meta")
        if request.is_call and isinstance(meta, dict):
            self._write_side_effects(meta.get(SIDE_EFFECTS))
            result["_meta"] = {name: meta[name] for name in meta if not name.startswith(OURS)}
            if not result["_meta"]:
                del result["_meta"]

    def _write_side_effects(self, records: object) -> None:
        """Append the side effects of a call to their file. A failure doesn't change the answer."""
        if not self._effects_file or not isinstance(records, list) or not records:
            return
        lines = "".join(json.dumps(record) + "\n" for record in records)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._effects_file, flags, 0o600)
            try:
                os.write(descriptor, lines.encode())  # one write, because other calls append, too
            finally:
                os.close(descriptor)
        except OSError as error:
            why = error.strerror
            _complain(f"Side effects can't be written to REMOTECLAW_SIDE_EFFECTS_FILE: {why}.")

    # -- to the agent --------------------------------------------------------------------------

    def _fail(self, request: RelayedRequest, failure: ExchangeFailed) -> None:
        """Send the agent an error for a request that the gateway did not answer."""
        text = sentence(
            failure,
            gateway=self._gateway.name,
            token_source=self._token_source,
            what=request.shown_name,
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
        """Write a message to the agent; exit if the agent has closed its end."""
        with self._output_lock:
            left = memoryview(json.dumps(message).encode() + b"\n")
            while left:
                try:
                    left = left[os.write(1, left) :]
                except OSError:
                    os._exit(0)


def _complain(text: str) -> None:
    """Write a line to standard error."""
    with contextlib.suppress(OSError):
        os.write(2, f"remoteclaw mcp: {' '.join(text.split())}\n".encode("utf-8", "replace"))


# -- the start ---------------------------------------------------------------------------------


def main() -> None:
    """Relay messages until the agent closes its end."""
    status = 0
    try:
        for descriptor in (0, 1):
            os.set_blocking(descriptor, True)  # the CLI may have made these pipes non-blocking
        connector = Connector(os.environ)
        for line in sys.stdin.buffer:
            if line.strip():
                connector.handle(line)
    except Unusable as error:
        _complain(str(error))
        status = 1
    except Exception as error:  # noqa: BLE001 - the process must end with one line
        _complain(f"An unexpected {type(error).__name__}: please report it.")
        status = 1
    os._exit(status)  # without waiting for requests that still run
