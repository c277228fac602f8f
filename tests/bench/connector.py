"""The connector's start compared with bare Python: `python -m tests.bench.connector [ROUNDS]`."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from remoteclaw.connector import connector_launch
from tests.support.connector import request
from tests.support.mcp_gateway import TOKEN, TOOLS

_CLIENT = {"name": "bench", "version": "1"}
_BEGIN = request("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo=_CLIENT)
#: The smallest Python program that answers on two pipes.
_BARE = "import posix\nwhile posix.read(0, 65536): posix.write(1, b'{}\\n')"


@contextlib.contextmanager
def warm_gateway() -> Iterator[str]:
    """Run a real MCP server in another process; it has already answered requests."""
    command = [sys.executable, "-m", "tests.support.mcp_gateway"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        for _ in range(3):
            connector_listed(url)
        yield url
        process.stdin.close()


def connector_listed(url: str) -> float:
    """Return the seconds from starting a connector until its tools are listed."""
    env = {"REMOTECLAW_GATEWAY_URL": url, "REMOTECLAW_GATEWAY_TOKEN": TOKEN}
    seconds, listed = _two_answers(connector_launch(), env)
    assert len(json.loads(listed)["result"]["tools"]) == len(TOOLS)
    return seconds


def bare_python() -> float:
    """Return the seconds of a Python program that answers everything at once."""
    return _two_answers([sys.executable, "-I", "-S", "-c", _BARE], {})[0]


def _two_answers(command: Sequence[str], env: Mapping[str, str]) -> tuple[float, bytes]:
    """Initialize and list the tools; return the seconds that it took, and the second answer."""
    pipe = subprocess.PIPE
    started = time.perf_counter()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env) as process:
        assert process.stdin
        assert process.stdout
        for messages in (
            [_BEGIN],
            [{"jsonrpc": "2.0", "method": "notifications/initialized"}, request("tools/list")],
        ):
            lines = [json.dumps(message).encode() + b"\n" for message in messages]
            os.write(process.stdin.fileno(), b"".join(lines))
            answer = process.stdout.readline()
        seconds = time.perf_counter() - started
        process.stdin.close()
    return seconds, answer


def main() -> None:
    """Print both times in milliseconds, measured alternately."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with warm_gateway() as url:
        pairs = [(connector_listed(url), bare_python()) for _ in range(rounds)]
    for name, values in zip(("connector", "bare Python"), zip(*pairs, strict=True), strict=True):
        median, least = statistics.median(values) * 1000, min(values) * 1000
        sys.stdout.write(f"{name:12} {median:6.2f} ms, at least {least:6.2f} ms\n")


if __name__ == "__main__":
    main()
