"""A small RemoteClaw for one test: its own Redis, stock `rq worker`s, and a fleet for access."""

import asyncio
import contextlib
import functools
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import tomlkit

from remoteclaw.config.home import Home
from remoteclaw.errors import RedisUnavailable
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.keys import Lane
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.turns.inbound import Accepted, encode_entry, entry_args
from remoteclaw.fleet.turns.outcomes import Outcome
from remoteclaw.host.process import is_alive
from remoteclaw.messages import ChannelMessage, ChatPlace, Deliver, Origin, SessionKey
from remoteclaw.tty.renewal import end_program
from remoteclaw.up.embedded import ServerProgram, find_server
from remoteclaw.up.supervisor import worker_command
from tests.support.command import RQ, Process, start_program
from tests.support.failpoints import Proxy
from tests.support.processes import marked_processes
from tests.support.servers import Server
from tests.support.waiting import HANG_S, eventually

#: The stream of the undelivered replies of the test's channel.
REPLIES = keys.replies("test", "default")

#: The session of the replies that a test itself puts on a stream.
SID = "0" * 32
#: The lease, in seconds: longer than any wait of a test, so that no expired lease repairs a fault.
LEASE_S = 5 * HANG_S


class Stack:
    """The processes that a test starts and kills, with access to their Redis."""

    def __init__(
        self,
        home: Home,
        *,
        appendfsync: str = "always",
        program: ServerProgram | None = None,
        options: tuple[str, ...] = (),
    ) -> None:
        """Prepare a Redis of `program`, by default the one that `up` would start."""
        self.home = home
        (home.path / "db").mkdir()
        db = home.path / "db"
        self.redis = Server(program or _new_server(), db, options, appendfsync=appendfsync)
        self.workers: list[Process] = []
        self.lease_s = LEASE_S
        self.agent: dict[str, Any] = {"runtime": "demo"}
        self.lifeline = home.path / "lifeline"
        self._lifeline: int | None = None
        self._exits = contextlib.AsyncExitStack()

    async def put_reply(
        self, provider: str, account: str, text: str, *, index: int = 0, chat: str, **more: Any
    ) -> None:
        """Put a reply of the session `SID` on an account's reply stream."""
        await self.put_replies(provider, account, (text,), index=index, chat=chat, **more)

    async def put_replies(
        self,
        provider: str,
        account: str,
        texts: Sequence[str],
        *,
        index: int = 0,
        chat: str,
        **more: Any,
    ) -> None:
        """Put several replies on the stream at once, so that they are read together."""
        place = ChatPlace(provider, account, chat)
        async with self.fleet.scripts.client.pipeline() as pipeline:
            for number, text in enumerate(texts, index):
                payload = reply_payload(
                    place, text, sid=SID, turn="1-0", attempt=1, index=number, **more
                )
                stream = keys.replies(provider, account)
                pipeline.xadd(stream, {"reply": orjson.dumps(payload)})
            await pipeline.execute()

    async def start(self) -> None:
        """Start Redis and open a fleet on it."""
        await asyncio.to_thread(self.redis.start)
        self.configure()
        self.reopen()
        os.mkfifo(self.lifeline)
        self.open_lifeline()

    def open_lifeline(self) -> None:
        """Open the lifeline, as `up` does, so that warm agents end with this process."""
        self._lifeline = os.open(self.lifeline, os.O_RDWR | os.O_NONBLOCK)

    def reopen(self, url: str = "") -> None:
        """Open the fleet again with the configured lease, on the stack's Redis or at `url`."""
        self.fleet = Fleet.open(url or self.redis.url, lease_s=self.lease_s)

    async def proxied(self) -> Proxy:
        """Return a proxy in front of Redis, which ends with the test."""
        proxy = Proxy(self.redis.socket, self.home.path / "proxy")
        await proxy.start()
        self._exits.push_async_callback(proxy.stop)
        return proxy

    def open_at(self, url: str) -> Fleet:
        """Return another fleet, which is closed with the test."""
        fleet = Fleet.open(url, lease_s=self.lease_s)
        self._exits.push_async_callback(fleet.aclose)
        return fleet

    async def stop(self) -> None:
        """End everything, and check that no process is left."""
        await self.end_processes()
        await self._exits.aclose()
        await self.fleet.aclose()
        self.redis.kill()

    async def end_processes(self) -> None:
        """End workers and agents, but not Redis."""
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.workers.clear()
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        await eventually(lambda: not marked_processes(self.home))

    # -- setting up ----------------------------------------------------------------------------

    def configure(
        self,
        agent: dict[str, Any] | None = None,
        *,
        redis_url: str = "",
        queue: dict[str, Any] | None = None,
        channels: dict[str, Any] | None = None,
        record: dict[str, Any] | None = None,
        gateway: dict[str, Any] | None = None,
        sessions: dict[str, Any] | None = None,
        requests: dict[str, Any] | None = None,
        terminals: dict[str, Any] | None = None,
        agents: dict[str, Any] | None = None,
        people: dict[str, Any] | None = None,
        budgets: Sequence[dict[str, Any]] = (),
        prices: dict[str, Any] | None = None,
        **fleet: Any,
    ) -> None:
        """Write the configuration; workers that are started later read it.

        `agents` are the agents other than `main`. By default, each message gets a turn of its own
        at once (`queue`), and alice is the owner of the channel `test` (`channels`).
        """
        tree: dict[str, Any] = {
            "gateway": {"port": 0, **(gateway or {})},
            "fleet": {"lease_s": self.lease_s, "linger_s": 0, **fleet},
            "channels": {"test": {"owners": ["alice"]}} if channels is None else channels,
            "record": record or {},
            "sessions": sessions or {},
            "requests": requests or {},
            **({"budgets": budgets} if budgets else {}),
            "terminals": {"max_load": 0, "min_memory_mb": 0, **(terminals or {})},
            "queue": queue or {"mode": "followup", "debounce_ms": 0, "cap": 0},
            "agents": {"main": agent or self.agent, **(agents or {})},
            "people": people or {},
            "prices": prices or {},
        }
        self.lease_s = tree["fleet"]["lease_s"]
        url = json.dumps(redis_url or self.redis.url)
        self.home.config_file.write_text(f"[redis]\nurl = {url}\n\n{_toml(json.dumps(tree))}")

    async def start_worker(self, **env: str) -> Process:
        """Start a stock `rq worker`, and wait until it is ready."""
        log = self.home.logs / f"worker-{len(self.workers)}.log"
        worker = self._start(worker_command(), log, **env)

        async def is_ready() -> bool:
            assert worker.poll() is None, f"the worker ended: {log.read_text()}"
            with contextlib.suppress(RedisUnavailable):  # the call has a time limit
                return any(view.pid == worker.pid for view in await self.fleet.workers.list())
            return False

        await eventually(is_ready)
        return worker

    def start_waiting_worker(self) -> Process:
        """Start a stock `rq worker` of a drained host, which is not ready before that is undone."""
        return self._start(worker_command(), self.home.logs / f"worker-{len(self.workers)}.log")

    @contextlib.asynccontextmanager
    async def swept(self) -> AsyncIterator[None]:
        """Run a sweeper that releases the sessions of dead owners at once; end terminals later."""

        async def sweep() -> None:
            while True:
                with contextlib.suppress(RedisUnavailable):  # a busy machine is slow to answer
                    await self.fleet.sweeper.release_dead(self.home.host_id, is_alive)
                    await self.fleet.sweeper.sweep()
                await asyncio.sleep(0.05)

        sweeping = asyncio.create_task(sweep())
        yield
        sweeping.cancel()
        await asyncio.wait((sweeping,))
        for held in await self.fleet.terminals.held(self.home.host_id):
            await end_program(held, interrupt=False)

    async def start_stranger(self) -> Process:
        """Start a worker on our queue like an operator who knows only RQ."""
        log = self.home.logs / "stranger.log"
        worker = self._start([RQ, "worker", "--url", self.redis.url, "agents"], log)
        await eventually(lambda: "subscribing" in log.read_text())
        return worker

    def _start(self, argv: list[str], log: Path, **env: str) -> Process:
        worker = start_program(argv, env=self.env(**env), log=log)
        self.workers.append(worker)
        return worker

    def env(self, **more: str) -> dict[str, str]:
        """Return the environment for programs that the test starts."""
        kept = {
            name: os.environ[name]
            for name in ("PATH", "HOME", "LANG", "PYTHONPATH")
            if name in os.environ
        }
        ours = {
            "REMOTECLAW_HOME": str(self.home.path),
            "REMOTECLAW_LIFELINE": str(self.lifeline),
        }
        return {**kept, **ours, **more}

    def worker_logs(self) -> str:
        """Return everything that workers have printed."""
        return "".join(file.read_text() for file in sorted(self.home.logs.glob("worker-*.log")))

    # -- messages ------------------------------------------------------------------------------

    async def append(
        self, text: str, *, lane: Lane = "agents", is_shared: bool = False, **fields: Any
    ) -> Accepted:
        """Accept a message from Alice, as an adapter would."""
        return await self.fleet.inbound.append(
            message(text, **fields), agent="main", lane=lane, is_shared=is_shared
        )

    async def write(
        self,
        session: SessionKey,
        text: str,
        origin: Origin,
        *,
        deliver: Deliver = "caller",
        **fields: Any,
    ) -> str:
        """Put an entry directly on a session's stream, without acceptance; return its id."""
        entry = encode_entry(message(text, **fields), deliver, origin)
        effects = self.fleet.calls
        _, made = await effects.perform(
            None,
            text,
            None,
            "call_entry",
            lane="agents",
            **entry_args(session, entry),
        )
        return str(made["entry_id"])

    async def outcome(self, accepted: Accepted, *, within_s: float = HANG_S) -> Outcome:
        """Wait for a message's outcome."""
        outcome = await self.fleet.outcomes.wait(
            accepted.session.sid, accepted.entry_id, timeout_s=within_s
        )
        assert outcome is not None, f"no outcome within {within_s} s\n{self.worker_logs()}"
        return outcome

    async def outcome_so_far(self, accepted: Accepted) -> Outcome:
        """Return a message's current outcome, which may not be final."""
        outcome = await self.fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
        assert outcome is not None
        return outcome

    async def ask(self, text: str, **fields: Any) -> str:
        """Send a message and return the whole reply."""
        outcome = await self.outcome(await self.append(text, **fields))
        return said(outcome)

    async def until_idle(self, accepted: Accepted) -> None:
        """Wait until no worker holds the session; its agent is parked then."""

        async def is_idle() -> bool:
            view = await self.fleet.sessions.view(accepted.session.sid)
            return view is not None and view.status == "idle"

        await eventually(is_idle)

    async def reached(self, accepted: Accepted, step: str, *, within_s: float = HANG_S) -> str:
        """Wait until a message's trace shows a step; return the step's detail."""

        async def detail() -> str | None:
            outcome = await self.outcome_so_far(accepted)
            return next((s.detail or s.name for s in outcome.steps if s.name == step), None)

        return str(await eventually(detail, within_s=within_s))


@contextlib.asynccontextmanager
async def running_stack(
    home: Home, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> AsyncIterator[Stack]:
    """Run a `Stack` with these options; code in this process uses its state directory, too."""
    stack = Stack(home, **options)
    monkeypatch.setenv("REMOTECLAW_LIFELINE", str(stack.lifeline))
    await stack.start()
    try:
        yield stack
    finally:
        await stack.stop()


@functools.cache
def _toml(tree: str) -> str:
    """Return settings as TOML. Cached, because tomlkit is slow and most tests have the same."""
    return tomlkit.dumps(json.loads(tree))


@functools.cache
def _new_server() -> ServerProgram:
    """Return the server for new state directories. Cached, because a search starts each server."""
    return find_server(Path(os.devnull))


def message(text: str, **fields: Any) -> ChannelMessage:
    """Return a message from Alice."""
    defaults = {
        "id": uuid.uuid4().hex,
        "from_": "alice",
        "channel_id": "chat-1",
        "provider": "test",
        "timestamp": 1_795_000_000_000,
    }
    return ChannelMessage.checked(**{**defaults, **fields, "text": text})


def said(outcome: Outcome) -> str:
    """Return the whole text of an outcome's reply."""
    return "\n\n".join(str(part["text"]) for part in outcome.reply)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to a process that the test started."""
    os.kill(pid, number)
