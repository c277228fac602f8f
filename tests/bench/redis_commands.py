"""The commands that Redis gets from an idle `up`, and for a message. A script is one."""

import contextlib
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import redis
from redis.exceptions import TimeoutError as NothingArrived

from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from tests.bench.load import Figure
from tests.support.command import REMOTECLAW
from tests.support.terminal import env
from tests.support.up import running

#: How long commands are counted while nothing happens, and after a message, in seconds.
IDLE_S, SETTLED_S = 20.0, 6.0
#: A message is the difference between one and this many.
SEVERAL = 5


def bench_redis_commands() -> tuple[list[Figure], str]:
    """Return the figures, and a table of what an idle `up` and a message send."""
    with tempfile.TemporaryDirectory(prefix="rc-") as name:
        home = Home(Path(name) / "home").create()
        with running(home, REMOTECLAW__FLEET__WORKERS="4"):
            client = redis.Redis.from_url(home.redis_url(load_config(home.config_file, {})))
            _send(home, 1)
            _count(client, SETTLED_S)
            idle = _count(client, IDLE_S)
            one = _count(client, SETTLED_S, home, 1)
            several = _count(client, SETTLED_S, home, SEVERAL)
    each = {name: (several[name] - one[name]) / (SEVERAL - 1) for name in several}
    rates = {name: count / IDLE_S for name, count in idle.items()}
    # It takes an idle worker, which releases the session when nothing follows.
    first = {name: count - rates.get(name, 0.0) * SETTLED_S for name, count in one.items()}
    figures = [
        Figure("Redis commands of an idle up, 4 workers", sum(rates.values()), "/s", "≤ 5"),
        Figure("Redis commands of a message by send", sum(each.values()), "", "≤ 60"),
        Figure("Redis commands of the first message by send", sum(first.values()), "", ""),
    ]
    lines = [f"{'command':34} {'idle, /s':>9} {'message':>9} {'first':>9}"]
    lines += [
        f"{name:34} " + " ".join(f"{part.get(name, 0.0):9.2f}" for part in (rates, each, first))
        for name in sorted({*rates, *each}, key=lambda name: -first.get(name, 0.0))
    ]
    return figures, "\n".join(lines)


def _send(home: Home, count: int) -> None:
    for _ in range(count):
        subprocess.run(
            (REMOTECLAW, "send", "hello"),
            env=env(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )


def _count(
    client: redis.Redis, seconds: float, home: Home | None = None, messages: int = 0
) -> Counter[str]:
    """Count the commands of clients, while `messages` are sent and for `seconds` after that."""
    counted: Counter[str] = Counter()
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]
        monitor.connection.timeout = 0.2
        if home:
            _send(home, messages)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(NothingArrived, OSError):
                command = monitor.next_command()
                if command["client_type"] != "lua":
                    counted[str(command["command"]).split(" ", 1)[0].upper()] += 1
    return counted
