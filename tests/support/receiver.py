"""A program that receives webhooks: a real HTTP server that records the messages."""

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from remoteclaw.channels.webhook.signing import is_signed


@dataclass
class Receiver:
    """The recorded messages, and the next answers."""

    token: str
    url: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    answers: deque[tuple[int, dict[str, str], bytes]] = field(default_factory=deque)
    """Status, headers and body of the next answers; status 0 stands for no answer."""
    is_away: bool = False
    forgets: bool = False
    """Whether it records messages, but closes the connection without an answer."""
    came: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, count: int, timeout_s: float = 60.0) -> list[dict[str, Any]]:
        """Wait until `count` messages have arrived, and return all messages."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.messages) >= count, timeout_s), self.messages
            return list(self.messages)

    @classmethod
    @contextlib.contextmanager
    def running(cls, token: str) -> Iterator["Receiver"]:
        """Listen on a free port."""
        receiver = cls(token)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, answer = 200, b""
                headers: dict[str, str] = {}
                with receiver.came:
                    if receiver.is_away:
                        status = 503
                    elif receiver.answers:
                        status, headers, answer = receiver.answers.popleft()
                    elif not is_signed(dict(self.headers), receiver.token, body, now_s=time.time()):
                        status = 401
                    else:
                        receiver.messages.append(json.loads(body))
                        answer = json.dumps({"messageId": f"m{len(receiver.messages)}"}).encode()
                        status = 0 if receiver.forgets else 200
                    receiver.keys.append(self.headers["Idempotency-Key"])
                    receiver.came.notify_all()
                if not status:
                    self.connection.close()
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        try:
            yield receiver
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
