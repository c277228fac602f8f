"""The connector: relays MCP messages between an agent's pipes and the gateway.

The agent can take its turn without our tools: a handshake is answered even while the gateway is
away. Calls run beside each other, everything else one after the other.

A call may be sent twice when its connection breaks: the gateway recognises it by its id. What a
call did besides answering is in the side-effects file before the agent is answered.
"""

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from remoteclaw import __version__
from remoteclaw.connector.environment import Unusable, endpoint, token
from remoteclaw.connector.exchange import Broken, Call, Endpoint, Refused, TooSlow, Unreachable
from remoteclaw.connector.failures import UNKNOWN, error_in, is_passing, sentence
from remoteclaw.connector.side_effects import SideEffects
from remoteclaw.connector.wire import dump, load

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = ["main"]

#: How long a call may take, and anything else, in seconds.
CALL_S, OTHER_S = 120.0, 30.0
#: The same for the handshake: codex gives a server 10 s to start, and a person waits for it.
INITIALIZE_S = 5.0
#: How long a gateway that ended in a tool's call is waited for, and the pause between two attempts,
#: in seconds.
BACK_S, AGAIN_S = 5.0, 0.1
#: How many calls run at once: a gateway has other agents, too.
CALLS_AT_ONCE = 8
#: Pauses between the looks for a gateway that was away when its tools were listed, in seconds: the
#: first, and the longest.
LOOK_S, LATER_LOOK_S = 0.25, 5.0
#: The longest line that is read, and the largest message that a gateway takes, in bytes.
MOST_LINE_BYTES, MOST_MESSAGE_BYTES = 16 * 1024 * 1024, 2 * 1024 * 1024
#: What can be agreed on in a handshake, the newest last.
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
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

FAILURES = (Unreachable, Broken, TooSlow, Refused)


class Lane:
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


class Request:
    """One request of the agent's, until it is answered or cancelled."""

    def __init__(self, message: "dict[str, Any]", line: bytes, session_key: str) -> None:
        self.id = message["id"]
        self.method: str = message["method"]
        params = message.get("params")
        self.params: dict[str, Any] = params if isinstance(params, dict) else {}
        self.is_call = self.method == "tools/call"
        self.what = str(self.params.get("name", ""))[:100] if self.is_call else self.method
        """Its name in sentences."""
        self.call = Call(
            CALL_S if self.is_call else INITIALIZE_S if self.method == "initialize" else OTHER_S
        )
        self.call_id = ""
        """By which the gateway recognises it; none if it carries none."""
        self.line = line
        meta = self.params.get("_meta", {})
        if self.is_call and isinstance(params, dict) and isinstance(meta, dict):
            self.call_id = str(meta.get(CALL_ID) or os.urandom(16).hex())
            session = {SESSION_KEY: session_key} if session_key else {}
            params["_meta"] = {**session, **meta, CALL_ID: self.call_id}
            self.line = dump(message)


class Connector:
    """The relay between one agent and the gateway."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises `Unusable`."""
        self._token, self._token_source = token(environ)
        self._gateway = Endpoint(*endpoint(environ), self._token)
        self._session_key = environ.get("REMOTECLAW_SESSION_KEY", "")
        path = environ.get("REMOTECLAW_SIDE_EFFECTS_FILE")
        self._effects = SideEffects(path) if path else None
        self._in_order, self._calls = Lane(1), Lane(CALLS_AT_ONCE)
        self._lock = threading.Lock()
        self._open: dict[bytes, Request] = {}
        """The requests that are not answered yet, by their id."""
        self._owes_list = False
        """Whether the agent was shown no tools because the gateway was away."""
        self._output = threading.Lock()
        self._told: set[str] = set()

    # -- from the agent ------------------------------------------------------------------------

    def take(self, line: bytes) -> None:
        """Take one line; what takes time is done by other threads."""
        try:
            message = load(line)
        except ValueError as error:
            return self._error(None, PARSE_ERROR, f"This line can't be understood: {error}.")
        is_rpc = isinstance(message, dict) and message.get("jsonrpc") == "2.0"
        is_reply = is_rpc and ("result" in message or "error" in message)
        method = message.get("method") if is_rpc else None
        if is_reply and method is None:
            self._in_order.put(lambda: self._tell(line))
        elif not isinstance(method, str) or ("id" in message and not _is_id(message["id"])):
            self._error(None, INVALID_REQUEST, "This is not one message of JSON-RPC 2.0.")
        elif "id" not in message:
            self._notify(message, line)
        elif method == "ping":
            self._answer(message["id"], {})
        elif method == "server/discover":
            # A newer way to begin, without a handshake: who asks knows the older one, too.
            self._error(message["id"], METHOD_NOT_FOUND, "Method not found: server/discover")
        else:
            self._ask(message, line)
        return None

    def _notify(self, message: "dict[str, Any]", line: bytes) -> None:
        if message["method"] == "notifications/cancelled":
            self._cancel(message)
        # The gateway remembers no handshake, so it needn't be told that one is over.
        elif message["method"] != "notifications/initialized":
            self._in_order.put(lambda: self._tell(line))

    def _ask(self, message: "dict[str, Any]", line: bytes) -> None:
        try:
            request = Request(message, line, self._session_key)
        except ValueError as error:
            return self._error(message["id"], INVALID_REQUEST, f"This can't be sent on: {error}.")
        with self._lock:
            self._open[dump(request.id)] = request
        (self._calls if request.is_call else self._in_order).put(lambda: self._serve(request))
        return None

    def _serve(self, request: Request) -> None:
        """Answer a request unless it is cancelled."""
        try:
            if not request.call.is_cancelled:
                self._relay(request)
        except Exception as error:  # noqa: BLE001 - the edge of the thread
            text = f"An unexpected {type(error).__name__} in {request.method}: please report it."
            self._say(text)
            self._error(request.id, INTERNAL_ERROR, text)
        finally:
            key = dump(request.id)
            with self._lock:
                if self._open.get(key) is request:
                    del self._open[key]

    def _tell(self, line: bytes) -> None:
        """Pass on what needs no answer; when that fails, no one waits for it."""
        with contextlib.suppress(*FAILURES):
            for _ in self._gateway.exchange(line, Call(OTHER_S)):
                pass

    def _cancel(self, message: "dict[str, Any]") -> None:
        """Cancel a request, and tell the gateway which that was."""
        params = message.get("params")
        if not isinstance(params, dict) or not _is_id(params.get("requestId")):
            return
        with self._lock:
            request = self._open.pop(dump(params["requestId"]), None)
        if request is None:
            return
        request.call.cancel()
        self._withdraw(request, str(params.get("reason", "")))

    def _withdraw(self, request: Request, reason: str) -> None:
        """Tell the gateway that no answer is expected any more."""
        told = {"requestId": request.id, "reason": reason}
        if request.call_id:  # every connector counts its requests from 0: their ids say nothing
            told["_meta"] = {CALL_ID: request.call_id}
        line = dump({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told})
        self._in_order.put(lambda: self._tell(line))

    # -- from the gateway ----------------------------------------------------------------------

    def _relay(self, request: Request) -> None:
        """Have the gateway answer a request; answer with an error if it doesn't."""
        try:
            self._ask_until_answered(request)
        except FAILURES as failure:
            if request.call.is_cancelled:
                return
            if isinstance(failure, TooSlow):
                self._withdraw(request, "no answer in time")
            self._fail(request, failure)
        else:
            self._gateway_answered(lists=request.method == "tools/list")

    def _ask_until_answered(self, request: Request) -> None:
        """Ask the gateway; again while a call's connection breaks, for a few seconds.

        A gateway that ended is started again within seconds, and knows the call by its id.
        """
        if len(request.line) > MOST_MESSAGE_BYTES:
            raise Refused(413, b"")
        first: Broken | None = None
        until = 0.0
        while True:
            try:
                return self._ask_once(request)
            except Broken as broken:
                if not (broken.is_cut and request.call_id) or request.call.is_cancelled:
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

    def _ask_once(self, request: Request) -> None:
        """Send a request and pass on what comes back, up to the answer."""
        for data in self._gateway.exchange(request.line, request.call):
            try:
                message = load(data)
            except ValueError:
                raise Broken("its answer is not JSON") from None
            if not isinstance(message, dict):
                raise Broken("its answer is no message of JSON-RPC")
            if "method" in message:
                self._send(_in_one_line(data, message))
            elif message.get("id") == request.id and ("result" in message or "error" in message):
                return self._pass_on(request, message, data)
        raise Broken("it gave no answer")

    def _pass_on(self, request: Request, message: "dict[str, Any]", data: bytes) -> None:
        """Give the agent its answer, without what is between the gateway and us."""
        result = message.get("result")
        is_changed = isinstance(result, dict) and self._look_into(request, result)
        if not request.call.is_cancelled:
            self._send(dump(message) if is_changed else _in_one_line(data, message))

    def _look_into(self, request: Request, result: "dict[str, Any]") -> bool:
        """Take what is meant for us out of a result; return whether it has changed."""
        if request.method == "initialize":
            version = result.get("protocolVersion")
            self._gateway.protocol_version = version if version in VERSIONS else ""
            capabilities = result.get("capabilities")
            tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
            if isinstance(tools, dict):
                tools["listChanged"] = True  # we tell when the gateway is back
            return isinstance(tools, dict)
        meta = result.get("_meta")
        if not request.is_call or not isinstance(meta, dict):
            return False
        ours = [name for name in meta if name.startswith(OURS)]
        if not ours:
            return False
        self._write_down(meta.get(SIDE_EFFECTS))
        for name in ours:
            del meta[name]
        if not meta:
            del result["_meta"]
        return True

    def _write_down(self, records: object) -> None:
        """Append what a call did to the side-effects file; if that fails, the call stands."""
        if self._effects is None or not isinstance(records, list) or not records:
            return
        try:
            self._effects.append(records)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._say(f"Side effects can't be written to REMOTECLAW_SIDE_EFFECTS_FILE: {why}.")

    # -- when the gateway is away --------------------------------------------------------------

    def _fail(self, request: Request, failure: Exception) -> None:
        """Answer a request that the gateway did not answer."""
        text = sentence(
            failure,
            gateway=self._gateway.name,
            token_source=self._token_source,
            what=request.what,
            may_be=UNKNOWN if request.is_call else "",
        ).replace(self._token, "[token]")
        if request.is_call:
            result = {"content": [{"type": "text", "text": text}], "isError": True}
            return self._answer(request.id, result)
        if request.method not in ("initialize", "tools/list") or not is_passing(failure):
            error = error_in(failure) if isinstance(failure, Refused) else None
            code = error.get("code") if error else None
            return self._error(request.id, code if isinstance(code, int) else GATEWAY_ERROR, text)
        self._say(text)
        if request.method == "initialize":
            return self._answer(request.id, self._own_handshake(request))
        with self._lock:
            was_owed, self._owes_list = self._owes_list, True
        self._answer(request.id, {"tools": []})
        if not was_owed:
            threading.Thread(target=self._look_for_gateway, daemon=True).start()
        return None

    def _own_handshake(self, request: Request) -> "dict[str, Any]":
        """Return the result of a handshake without the gateway."""
        asked = request.params.get("protocolVersion")
        self._gateway.protocol_version = asked if asked in VERSIONS else VERSIONS[-1]
        return {
            "protocolVersion": self._gateway.protocol_version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "remoteclaw", "version": __version__},
        }

    def _look_for_gateway(self) -> None:
        """Wait until the gateway answers: an agent that sees no tools would never ask for one."""
        ping = b'{"jsonrpc":"2.0","id":"remoteclaw","method":"ping"}'
        pause = LOOK_S
        while self._owes_list:
            time.sleep(pause)
            pause = min(pause * 2, LATER_LOOK_S)
            try:
                for _ in self._gateway.exchange(ping, Call(OTHER_S)):
                    break
            except FAILURES as failure:
                if is_passing(failure):
                    continue
            self._gateway_answered()

    def _gateway_answered(self, *, lists: bool = False) -> None:
        """Tell an agent that was shown no tools to ask again, unless it just did."""
        with self._lock:
            owes, self._owes_list = self._owes_list, False
        if owes and not lists:
            self._send(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')

    # -- to the agent --------------------------------------------------------------------------

    def _answer(self, request_id: object, result: "dict[str, Any]") -> None:
        self._send(dump({"jsonrpc": "2.0", "id": request_id, "result": result}))

    def _error(self, request_id: object, code: int, text: str) -> None:
        error = {"code": code, "message": text}
        self._send(dump({"jsonrpc": "2.0", "id": request_id, "error": error}))

    def _send(self, line: bytes) -> None:
        """Write a message; end the process when the agent has closed its end."""
        with self._output:
            left = memoryview(line + b"\n")
            while left:
                try:
                    left = left[os.write(1, left) :]
                except OSError:
                    os._exit(0)

    def _say(self, text: str) -> None:
        """Tell people something, once."""
        if text not in self._told:
            self._told.add(text)
            _complain(text)


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _in_one_line(data: bytes, message: object) -> bytes:
    """Return a message as it came, unless it came in several lines."""
    data = data.strip()
    return dump(message) if b"\n" in data or b"\r" in data else data


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
        for line in _lines():
            if line.strip():
                connector.take(line)
    except Unusable as error:
        _complain(str(error))
        status = 1
    except Exception as error:  # noqa: BLE001 - the edge of the process
        _complain(f"An unexpected {type(error).__name__}: please report it.")
        status = 1
    os._exit(status)  # what still runs is of no use any more


def _lines() -> Iterator[bytes]:
    """Yield the lines of standard input; one that is too long becomes one that is no message."""
    is_too_long = False
    while part := sys.stdin.buffer.readline(MOST_LINE_BYTES):
        if not part.endswith(b"\n"):
            is_too_long = True
        elif is_too_long:
            is_too_long = False
            yield b"(too long)"
        else:
            yield part
