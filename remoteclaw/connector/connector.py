"""The connector: relays MCP messages between an agent's pipes and the gateway.

The agent can take its turn without our tools: a handshake is answered even while the gateway is
away.  Calls run beside each other, everything else one after the other.

A call may be sent twice when its connection breaks: it carries an id by which the gateway
recognises it.  What a call did besides answering is in the side-effects file before the agent
hears of it.
"""

import _thread
import posix  # what os wraps; its import would take a millisecond
import time

from remoteclaw import __version__
from remoteclaw.connector.environment import Unusable, endpoint, token
from remoteclaw.connector.exchange import (
    MOST_BYTES,
    Broken,
    Call,
    Gateway,
    Refused,
    TooSlow,
    Unreachable,
)
from remoteclaw.connector.wire import dump, load

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from remoteclaw.connector.side_effects import SideEffects

__all__ = ["main"]

#: How long a call may take, and anything else, in seconds.
CALL_S, OTHER_S = 120.0, 30.0
#: The same for the handshake: codex gives a server 10 s to start, and a person waits for it.
INITIALIZE_S = 5.0
#: How long a gateway that ended in a tool's call is waited for, and how often it is looked for, in
#: seconds.
BACK_S, AGAIN_S = 5.0, 0.1
#: How many calls run at once: a gateway has other agents, too.
CALLS_AT_ONCE = 8
#: How soon, and how often at last, a gateway is looked for that was away when its tools were
#: asked for, in seconds.
LOOK_S, LATER_LOOK_S = 0.25, 5.0
#: What can be agreed on in a handshake, the newest last.
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
#: What the gateway and we tell each other in a message's `_meta` begins so.
OURS = "remoteclaw/"
#: By which the gateway recognises a call that it has seen.
CALL_ID = OURS + "callId"
SIDE_EFFECTS = OURS + "sideEffects"
#: Which session a person's own CLI is about; an agent's is known from its token.
SESSION_KEY = OURS + "sessionKey"

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32700, -32600, -32601, -32603
#: For what the gateway did not answer: JSON-RPC leaves such numbers to servers.
GATEWAY_ERROR = -32000


class Lane:
    """Does things in other threads, in the order in which they come, so many at once."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lock = _thread.allocate_lock()
        self._waiting: list[Callable[[], None]] = []
        self._running = 0

    def put(self, job: "Callable[[], None]") -> None:
        """Do something as soon as there is room."""
        with self._lock:
            self._waiting.append(job)
            if self._running == self._width:
                return
            self._running += 1
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                job = self._waiting.pop(0)
            job()


class Request:
    """One request of the agent's, until it is answered or given up."""

    def __init__(self, message: "dict[str, Any]", line: bytes, session_key: str) -> None:
        self.id = message["id"]
        self.method: str = message["method"]
        params = message.get("params")
        self.params: dict[str, Any] = params if isinstance(params, dict) else {}
        self.is_call = self.method == "tools/call"
        self.what = str(self.params.get("name", ""))[:100] if self.is_call else self.method
        """What people call it."""
        self.call = Call(
            CALL_S if self.is_call else INITIALIZE_S if self.method == "initialize" else OTHER_S
        )
        self.call_id = ""
        """By which the gateway recognises it; none if it carries none."""
        self.is_answered = False
        self.line = line
        meta = self.params.get("_meta", {})
        if self.is_call and isinstance(params, dict) and isinstance(meta, dict):
            self.call_id = str(meta.get(CALL_ID) or posix.urandom(16).hex())
            session = {SESSION_KEY: session_key} if session_key else {}
            params["_meta"] = {**session, **meta, CALL_ID: self.call_id}
            self.line = dump(message)


class Connector:
    """Between one agent and the gateway."""

    def __init__(self, environ: dict[bytes, bytes]) -> None:
        self._token, self._token_source = token(environ)
        self._gateway = Gateway(*endpoint(environ), self._token)
        self._session_key = environ.get(b"REMOTECLAW_SESSION_KEY", b"").decode("utf-8", "replace")
        self._effects_path = environ.get(b"REMOTECLAW_SIDE_EFFECTS_FILE")
        self._effects: SideEffects | None = None
        self._in_order, self._calls = Lane(1), Lane(CALLS_AT_ONCE)
        self._lock = _thread.allocate_lock()
        self._open: dict[bytes, Request] = {}
        """What was asked and is not answered yet, by its id."""
        self._owes_list = False
        """Whether the agent was shown no tools because the gateway was away."""
        self._output = _thread.allocate_lock()
        self._said: set[str] = set()

    # -- what the agent says -------------------------------------------------------------------

    def take(self, line: bytes) -> None:
        """Take one line of the agent's; what takes time is done by other threads."""
        try:
            message = load(line)
        except ValueError as error:
            return self._error(None, PARSE_ERROR, f"This line can't be understood: {error}.")
        if isinstance(message, list):
            return self._error(None, INVALID_REQUEST, "Batches aren't supported: send one by one.")
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return self._error(None, INVALID_REQUEST, "This is no message of JSON-RPC 2.0.")
        method = message.get("method")
        if "method" not in message and ("result" in message or "error" in message):
            self._in_order.put(lambda: self._tell(line))
        elif not isinstance(method, str) or ("id" in message and not _is_id(message["id"])):
            self._error(None, INVALID_REQUEST, "This is no message of JSON-RPC 2.0.")
        elif method == "notifications/cancelled":
            self._cancel(message)
        elif "id" not in message:
            # The gateway remembers no handshake, so it needn't be told that one is over.
            if method != "notifications/initialized":
                self._in_order.put(lambda: self._tell(line))
        elif method == "ping":
            self._answer(message["id"], {})
        elif method == "server/discover":
            # A newer way to begin, without a handshake: whoever asks knows the older one, too.
            self._error(message["id"], METHOD_NOT_FOUND, "Method not found: server/discover")
        else:
            self._ask(message, line)
        return None

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
        """Answer a request, whatever happens, unless it is given up."""
        try:
            if not request.call.is_given_up:
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
        """Pass on what needs no answer; when that fails, nobody waits for it."""
        try:
            self._gateway.post(line, Call(OTHER_S), self._pass_on)
        except (Unreachable, Broken, TooSlow, Refused):
            pass

    def _cancel(self, message: "dict[str, Any]") -> None:
        """Give a request up, and tell the gateway which that was."""
        params = message.get("params")
        if not isinstance(params, dict) or not _is_id(params.get("requestId")):
            return
        with self._lock:
            request = self._open.pop(dump(params["requestId"]), None)
        if request is None:
            return
        request.call.give_up()
        self._withdraw(request, str(params.get("reason", "")))

    def _withdraw(self, request: Request, reason: str) -> None:
        """Tell the gateway that nobody waits for an answer any more."""
        told = {"requestId": request.id, "reason": reason}
        if request.call_id:  # every connector counts its requests from 0: their ids say nothing
            told["_meta"] = {CALL_ID: request.call_id}
        line = dump({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": told})
        self._in_order.put(lambda: self._tell(line))

    # -- what the gateway says -----------------------------------------------------------------

    def _relay(self, request: Request) -> None:
        """Have the gateway answer a request; say so if it doesn't."""
        try:
            self._post(request)
            if not request.is_answered:
                raise Broken("it gave no answer")
        except (Unreachable, Broken, TooSlow, Refused) as failure:
            if request.call.is_given_up:
                return
            if isinstance(failure, TooSlow):
                self._withdraw(request, "no answer in time")
            self._fail(request, failure)
        else:
            self._gateway_answered(lists=request.method == "tools/list")

    def _post(self, request: Request) -> None:
        """Send a request; once more if the first wasn't read, or the next is recognised."""

        def take(data: bytes) -> bool:
            return self._heard(request, data)

        try:
            self._gateway.post(request.line, request.call, take)
        except Broken as broken:
            may_repeat = broken.is_cut if request.call_id else broken.is_untouched
            if (request.is_call and not request.call_id) or not may_repeat:
                raise
            if request.is_answered or request.call.is_given_up:
                raise
            # A gateway that ended is started again within seconds, and knows the call by its id.
            until = time.monotonic() + (BACK_S if request.call_id else 0)
            while True:
                try:
                    return self._gateway.post(request.line, request.call, take, fresh=True)
                except (Unreachable, Broken) as failure:
                    is_over = time.monotonic() > until or request.call.is_given_up
                    if isinstance(failure, Broken):
                        # One that is ending takes connections until the last moment.
                        if is_over or request.is_answered or not failure.is_cut:
                            raise
                    elif is_over:
                        why = f"{broken}, and it can't be reached again: {failure}"
                        raise Broken(why) from None
                time.sleep(AGAIN_S)

    def _heard(self, request: Request, data: bytes) -> bool:
        """Take a message that the gateway sent because of a request; whether it is the answer."""
        try:
            message = load(data)
        except ValueError:
            raise Broken("its answer is not JSON") from None
        if not isinstance(message, dict):
            raise Broken("its answer is no message of JSON-RPC")
        if "method" in message:
            self._send(_in_one_line(data, message))
            return False
        if message.get("id") != request.id or not ("result" in message or "error" in message):
            return False
        request.is_answered = True
        result = message.get("result")
        is_changed = isinstance(result, dict) and self._look_into(request, result)
        if not request.call.is_given_up:
            self._send(dump(message) if is_changed else _in_one_line(data, message))
        return True

    def _look_into(self, request: Request, result: "dict[str, Any]") -> bool:
        """Take out of a result what is meant for us; whether it is another one now."""
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
        """Write what a call did into the file for that; if it can't be, the call stands."""
        if not isinstance(records, list) or not records or not self._effects_path:
            return
        with self._lock:
            if self._effects is None:
                from remoteclaw.connector.side_effects import SideEffects

                self._effects = SideEffects(self._effects_path)
        try:
            self._effects.append(records)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._say(f"Side effects can't be written to REMOTECLAW_SIDE_EFFECTS_FILE: {why}.")

    def _pass_on(self, data: bytes) -> bool:
        """Pass on a message that came though nothing was asked."""
        try:
            self._send(_in_one_line(data, load(data)))
        except ValueError:
            pass
        return False

    # -- when the gateway is away --------------------------------------------------------------

    def _fail(self, request: Request, failure: Exception) -> None:
        """Answer a request that the gateway did not answer."""
        from remoteclaw.connector.failures import UNKNOWN, error_in, is_passing, sentence

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
            said = error_in(failure) if isinstance(failure, Refused) else None
            code = said.get("code") if said else None
            return self._error(request.id, code if isinstance(code, int) else GATEWAY_ERROR, text)
        self._say(text)
        if request.method == "initialize":
            return self._answer(request.id, self._own_handshake(request))
        with self._lock:
            was_owed, self._owes_list = self._owes_list, True
        self._answer(request.id, {"tools": []})
        if not was_owed:
            _thread.start_new_thread(self._look_for_gateway, ())
        return None

    def _own_handshake(self, request: Request) -> "dict[str, Any]":
        """Return what we can say of the gateway without it."""
        asked = request.params.get("protocolVersion")
        self._gateway.protocol_version = asked if asked in VERSIONS else VERSIONS[-1]
        return {
            "protocolVersion": self._gateway.protocol_version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "remoteclaw", "version": __version__},
        }

    def _look_for_gateway(self) -> None:
        """Wait until the gateway answers: an agent that sees no tools would never ask for one."""
        from remoteclaw.connector.failures import is_passing

        ping = b'{"jsonrpc":"2.0","id":"remoteclaw","method":"ping"}'
        pause = LOOK_S
        while self._owes_list:
            time.sleep(pause)
            pause = min(pause * 2, LATER_LOOK_S)
            try:
                self._gateway.post(ping, Call(OTHER_S), lambda _: True)
            except (Unreachable, Broken, TooSlow):
                continue
            except Refused as refused:
                if is_passing(refused):
                    continue
            self._gateway_answered()

    def _gateway_answered(self, *, lists: bool = False) -> None:
        """Tell an agent that was shown no tools to ask again, unless it just did."""
        with self._lock:
            owes, self._owes_list = self._owes_list, False
        if owes and not lists:
            self._send(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')

    # -- what the agent hears ------------------------------------------------------------------

    def _answer(self, request_id: object, result: "dict[str, Any]") -> None:
        self._send(dump({"jsonrpc": "2.0", "id": request_id, "result": result}))

    def _error(self, request_id: object, code: int, text: str) -> None:
        error = {"code": code, "message": text}
        self._send(dump({"jsonrpc": "2.0", "id": request_id, "error": error}))

    def _send(self, line: bytes) -> None:
        """Write a message; end when nobody reads us any more."""
        with self._output:
            left = memoryview(line + b"\n")
            while left:
                try:
                    left = left[posix.write(1, left) :]
                except BlockingIOError:
                    _wait_until_ready(1, is_output=True)
                except OSError:
                    posix._exit(0)

    def _say(self, text: str) -> None:
        """Tell people something, once."""
        if text not in self._said:
            self._said.add(text)
            _complain(text)


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _in_one_line(data: bytes, message: object) -> bytes:
    """Return a message as it came, unless it came in several lines."""
    data = data.strip()
    return dump(message) if b"\n" in data or b"\r" in data else data


def _wait_until_ready(descriptor: int, *, is_output: bool) -> None:
    """Wait for a descriptor that somebody else has made non-blocking."""
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if is_output else select.POLLIN)
    poll.poll()


def _complain(text: str) -> None:
    """Say something on standard error, in one line."""
    try:
        posix.write(2, f"remoteclaw mcp: {' '.join(text.split())}\n".encode("utf-8", "replace"))
    except OSError:
        pass


# -- the start ---------------------------------------------------------------------------------


def main() -> None:
    """Relay until the agent closes its end."""
    status = 0
    try:
        connector = Connector(posix.environ)
        for line in _lines():
            if line.strip():
                connector.take(line)
    except Unusable as error:
        _complain(str(error))
        status = 1
    except Exception as error:  # noqa: BLE001 - the edge of the process
        _complain(f"An unexpected {type(error).__name__}: please report it.")
        status = 1
    posix._exit(status)  # what still runs is of no use to anybody


def _lines() -> "Iterator[bytes]":
    """Yield the lines of standard input; one that is too long becomes one that can't be read."""
    pending: list[bytes] = []
    size = 0
    while True:
        try:
            data = posix.read(0, 262144)
        except BlockingIOError:
            _wait_until_ready(0, is_output=False)
            continue
        except OSError:
            return
        if not data:
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            yield b"".join((*pending, line)) if size + len(line) <= MOST_BYTES else b"(too long)"
            pending, size = [], 0
        size += len(rest)
        if size > MOST_BYTES:
            pending = []
        else:
            pending.append(rest)
