"""Walks through one conversation in terminals and turns, while its processes are killed.

A story opens a terminal over HTTP, types, hands over to a chat message, or ends. At one of its
steps, a process is killed (the blow), and started again as `up` does. In the end, everything that
RemoteClaw has published must agree with the messages that the agent itself has stored.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
import orjson

from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.fleet.web import ChatEvent
from remoteclaw.holder.terminal_client import TerminalClient, TerminalOutput
from remoteclaw.host.process import end_strays
from remoteclaw.host.process import is_alive as owner_lives
from remoteclaw.messages import SessionKey
from remoteclaw.tty.renewal import LeaseRenewer, end_unknown_terminals
from remoteclaw.up.supervisor import worker_command
from tests.support.command import REMOTECLAW, RQ, Process, start_program
from tests.support.conversation_agent import agent_of, said_in
from tests.support.doors import own_token
from tests.support.failpoints import Failpoint, Proxy, Side
from tests.support.pages import OPERATOR
from tests.support.processes import children, is_killed, marked_processes
from tests.support.stack import Stack
from tests.support.waiting import HANG_S, eventually

Blow = Literal["drain", "worker", "gateway", "holder", "redis"]
HOLD_S = 600.0
#: The steps of a terminal's opening at which a process is killed while a batch is kept.
KEPT_OPENING = ("acquire", "terminal_place", "give_to_holder")
TALK = "tests.support.conversation_agent"


class Watchman:
    """Checks all the time how many processes have the conversation open."""

    def __init__(self, directory: Path) -> None:
        self._files = os.fsencode(directory)
        self._since = 0.0
        self.samples = 0
        self.doubled: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def programs(self) -> list[int]:
        """Return the ids of the living agents, in turns and in terminals."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_ctime < self._since:
                    continue
                line = Path(f"/proc/{name}/cmdline").read_bytes()
                is_agent = b"agent.py" in line or b".talk" in line
                if is_agent and self._files in line and not is_killed(int(name)):
                    found.append(int(name))
        return found

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            self.samples += 1
            found = self.programs()
            if len(found) > 1 and len(still := [pid for pid in found if not is_killed(pid)]) > 1:
                lines = [Path(f"/proc/{pid}/cmdline") for pid in still]
                with contextlib.suppress(OSError):
                    self.doubled.append(f"{[line.read_bytes()[-80:] for line in lines]}")

    @contextlib.contextmanager
    def watching(self) -> Iterator["Watchman"]:
        """Watch until exit."""
        self._since = time.time() - 1.0  # the kernel's clock is a tick late
        self._thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            self._thread.join()


@dataclass(frozen=True)
class Case:
    """The process to kill, and the step at which it is killed."""

    story: Literal["opening", "typing", "handover", "end", "kept"]
    step: str
    """A Redis script of the drain, or a step of typing. "restore" is the first `begin` after the
    terminal's turn."""
    side: Side | Literal["at"]
    blow: Blow

    def __str__(self) -> str:
        return f"{self.story}: {self.blow} {self.side} {self.step}"


@dataclass
class Walk:
    """A host with a worker, a gateway and a sweeper, and one conversation."""

    stack: Stack
    directory: Path
    proxy: Proxy | None = None
    """The proxy between the worker and Redis; None if the worker connects directly."""
    worker: Process | None = None
    gateway: Process | None = None
    url: str = ""
    sid: str = ""
    session: SessionKey | None = None
    accepted: list[Accepted] = field(default_factory=list)
    reached: bool = True
    _calls: int = 0

    # -- processes -----------------------------------------------------------------------------

    async def start_worker(self) -> None:
        """Start a worker that uses the proxy."""
        program, *arguments = worker_command()
        assert program == RQ
        log = self.stack.home.logs / f"worker-{len(self.stack.workers)}.log"
        env = {"REMOTECLAW__REDIS__URL": self.proxy.url} if self.proxy else {}
        self.worker = worker = self.stack._start([TALK, RQ, *arguments], log, **env)

        async def is_ready() -> bool:
            assert worker.poll() is None, f"the worker ended: {log.read_text()}"
            with contextlib.suppress(RedisUnavailable):
                return any(each.pid == worker.pid for each in await self._fleet.workers.list())
            return False

        await eventually(is_ready)

    async def start_gateway(self) -> None:
        """Start a gateway."""
        log = self.stack.home.logs / "gateway.log"
        before = log.stat().st_size if log.exists() else 0
        argv = [TALK, REMOTECLAW, "gateway"]
        self.gateway = gateway = start_program(argv, env=self.stack.env(), log=log)

        def said() -> str | None:
            text = log.read_text()[before:]
            assert gateway.poll() is None, f"the gateway ended: {text}"
            return text.partition("The gateway is at ")[2].partition(",")[0] or None

        self.url = str(await eventually(said))

    async def sweep(self) -> None:
        """Sweep the host as `up` does, but more often."""
        renewer = LeaseRenewer(self._fleet.terminals, self.stack.home.host_id)
        while True:
            with contextlib.suppress(RedisUnavailable, RedisRefused):
                await self._fleet.sweeper.release_dead(
                    self.stack.home.host_id, owner_lives, end_left=end_strays
                )
                await renewer.renew_all(hold_s=HOLD_S)
                await end_unknown_terminals(self._fleet.terminals, self.stack.home.runs)
                await self._fleet.sweeper.sweep()
            await asyncio.sleep(0.3)

    @property
    def _fleet(self) -> Any:
        return self.stack.fleet

    # -- the blow ------------------------------------------------------------------------------

    async def strike(self, blow: Blow, failpoint: Failpoint | None = None) -> None:
        """Kill a process, and start it again."""
        match blow:
            case "drain":
                assert failpoint is not None
                os.kill(failpoint.pid, signal.SIGKILL)
            case "worker":
                assert self.worker is not None
                horses = children(self.worker.pid)
                self.worker.kill()
                self.worker.wait()
                await eventually(lambda: all(is_killed(horse) for horse in horses))
            case "gateway":
                assert self.gateway is not None
                self.gateway.kill()
                self.gateway.wait()
            case "holder":
                for pid in marked_processes(self.stack.home):
                    with contextlib.suppress(OSError):
                        if b"program.main()" in Path(f"/proc/{pid}/cmdline").read_bytes():
                            os.kill(pid, signal.SIGKILL)
            case "redis":
                self.stack.redis.kill()
        if failpoint:
            # A killed Redis can't answer, and a dead caller can't receive an answer.
            (failpoint.release if blow in ("gateway", "holder") else failpoint.cut)()
        match blow:
            case "worker":
                await self.start_worker()
            case "gateway":
                await self.start_gateway()
            case "redis":
                await asyncio.to_thread(self.stack.redis.start)
                if self.worker and self.worker.poll() is not None:
                    await self.start_worker()

    async def strike_at(self, failpoint: Failpoint, blow: Blow) -> None:
        """Strike when a drain has reached the failpoint."""
        await failpoint.wait()
        await self.strike(blow, failpoint)

    # -- actions of users ----------------------------------------------------------------------

    async def ask(self, verb: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Call the gateway. If it is restarting, repeat the call with the same id."""
        self._calls += 1
        headers = {
            "Authorization": f"Bearer {own_token(self.stack)}",
            "Idempotency-Key": f"call-{self._calls}",
        }
        until = time.monotonic() + HANG_S
        while True:
            try:
                url = f"{self.url}/api/sessions{path}"
                async with aiohttp.request(verb, url, json=body, headers=headers) as answer:
                    told = await answer.json()
                    if answer.status < 500:
                        return answer.status, told
            except (aiohttp.ClientError, ConnectionError) as error:
                told = error
            assert time.monotonic() < until, f"{verb} {path}: {told}"
            await asyncio.sleep(0.05)

    async def open(self, prompt: str = "", **options: Any) -> int:
        """Open the terminal, and store its session; return the status of the answer."""
        about = {"agent": "main", "name": "main", "prompt": prompt, **options}
        status, told = await self.ask("POST", "", about)
        assert status in (200, 201, 202), told
        self.sid = told["result"]["sid"]
        self.session = SessionKey.parse(told["result"]["sessionKey"])
        record = await eventually(self.record)
        self.accepted.append(Accepted(self.session, record.entry, False))
        return status

    async def record(self) -> Any:
        """Return the terminal's record; None while Redis is down."""
        with contextlib.suppress(RedisUnavailable):
            return await self._fleet.terminals.record(self.sid)
        return None

    async def shows(self, text: str) -> None:
        """Wait until a text is on the screen."""
        shown: Any = None

        async def is_shown() -> bool:
            nonlocal shown
            _, shown = await self.ask("GET", f"/{self.sid}/screen")
            return bool(shown["ok"]) and text in shown["result"]["text"]

        try:
            await eventually(is_shown)
        except AssertionError:
            raise AssertionError(f"{text!r} is not shown, but {shown}") from None

    async def is_at(self, *wanted: str) -> None:
        """Wait until the terminal is in one of the states."""
        found: Any = None

        async def is_there() -> bool:
            nonlocal found
            _, told = await self.ask("GET", f"/{self.sid}")
            found = told["result"]
            return found["state"] in wanted or found["activity"] in wanted

        try:
            await eventually(is_there)
        except AssertionError:
            raise AssertionError(f"it is not {wanted}, but {found}") from None

    async def type(self, text: str) -> None:
        """Press keys, as soon as the terminal accepts them."""

        async def is_typed() -> bool:
            status, told = await self.ask("POST", f"/{self.sid}/key", {"bytes": [*text.encode()]})
            assert status in (202, 409), told
            return status == 202

        await eventually(is_typed)

    async def write(self, text: str) -> Accepted:
        """Send a message to the chat."""
        assert self.session is not None
        message = self.session.message(
            id=text, text=text, timestamp=1, chat_kind="direct", is_addressed=True
        )
        accepted: Accepted = await self._fleet.inbound.append(
            message, agent="main", deliver="channel"
        )
        self.accepted.append(accepted)
        return accepted

    async def outcome(self, accepted: Accepted) -> str:
        """Wait for a message's outcome, and return its status."""

        async def status() -> str | None:
            with contextlib.suppress(RedisUnavailable):
                found = await self._fleet.outcomes.read(accepted.session.sid, accepted.entry_id)
                return found.status if found and found.is_final else None
            return None

        return str(await eventually(status))

    # -- checks --------------------------------------------------------------------------------

    async def check(self, *said: str) -> None:
        """Check that everything published agrees with the agent's own messages, each once."""
        for accepted in self.accepted:
            await self.outcome(accepted)
        noted = said_in(self.directory)
        talk = [(each["kind"], each["text"]) for each in noted]
        assert [text for kind, text in talk if kind == "user"] == [*said], talk

        async def is_idle() -> bool:
            view = await self._fleet.sessions.view(self.sid)
            return view is not None and view.status == "idle"

        await eventually(is_idle)
        events = await self._fleet.terminals.events(self.sid)
        told = [(e.data["role"], e.data["text"]) for e in events if e.data["type"] == "message"]
        in_terminals = [(e["kind"], e["text"]) for e in noted if e["id"].startswith("i")]
        assert told == in_terminals, f"told {told}, said {in_terminals}"
        lines = map(orjson.loads, (await self._fleet.records.of(self.sid)).splitlines())
        recorded = [(line["role"], line["text"]) for line in lines if line["role"] != "tool"]
        assert recorded == talk, f"recorded {recorded}, said {talk}"

    async def answers(self, accepted: Accepted) -> list[str]:
        """Return the replies to a message in its chat."""
        replies = await self._replies()
        return [r["text"] for r in replies if accepted.entry_id in (r.get("entries") or ())]

    async def _replies(self) -> list[dict[str, Any]]:
        return [dict(event.about) for event in await delivered(self._fleet, OPERATOR)]

    # -- the stories ---------------------------------------------------------------------------

    async def opening(self, case: Case) -> None:
        """The terminal is opened with a first message."""
        striking = self._struck(case)
        await self.open("one")
        async with asyncio.timeout(HANG_S):
            await striking
        if case.blow == "holder":
            await self.is_at("crashed")
            await self.outcome(self.accepted[-1])
            await self.open()
        await self.is_at("idle")
        if case.blow != "holder":  # a new program doesn't show earlier messages
            await self._answered("You said one.")
        await self.ask("DELETE", f"/{self.sid}")
        await self.check(*(["one"] if self._was_asked() else []))

    def _was_asked(self) -> bool:
        """Whether the program received the first message, although it was killed at its start."""
        return bool(said_in(self.directory))

    async def _answered(self, text: str) -> None:
        def is_noted() -> bool:
            return text in [each["text"] for each in said_in(self.directory)]

        await eventually(is_noted)

    async def typing(self, case: Case) -> None:
        """A process is killed while the user types."""
        await self.open()
        await self.is_at("idle")
        said = {"draft": "two", "sent": "two", "working": "work", "flood": "flood"}[case.step]
        await self.type(said[:2] if case.step == "draft" else f"{said}\r")
        if case.step == "working":
            await self.shows("working")
        if case.step == "draft":
            await self.shows("> tw")
        await self.strike(case.blow)
        if case.blow == "holder":
            await self.is_at("crashed")
            await self.outcome(self.accepted[-1])
            await self.open()
            await self.is_at("idle")
            was_said = [each["text"] for each in said_in(self.directory) if each["kind"] == "user"]
            assert was_said in ([], [said])
            await self.type("three\r")
            await self.shows("You said three.")
            await self.ask("DELETE", f"/{self.sid}")
            return await self.check(*was_said, "three")
        match case.step:
            case "draft":
                await self.type("o\r")
                await self.shows("You said two.")
            case "sent" | "flood":
                await self.shows(f"You said {said}.")
            case "working":
                await self.is_at("busy")
                await self.type("x")
                await self.shows("worked")
        await self.is_at("idle")
        await self.ask("DELETE", f"/{self.sid}")
        return await self.check(said)

    async def handover(self, case: Case) -> None:
        """A message takes over from an idle terminal, which is opened again after the turn."""
        await self.open()
        await self.is_at("idle")
        await self.type("two\r")
        await self.shows("You said two.")
        striking = self._struck(case)
        accepted = await self.write("three")
        assert await self.outcome(accepted) == "done"
        await self._over(striking)
        assert (await self.record()).state in (
            ("parked", "crashed") if case.blow == "holder" else ("parked",)
        )
        await self.open()
        await self.is_at("idle")
        await self.type("four\r")
        await self.shows("You said four.")
        await self.ask("DELETE", f"/{self.sid}")
        await self.check("two", "three", "four")
        (answer,) = await self.answers(accepted)
        assert answer.endswith("You wrote three, and before: two.")

    async def end(self, case: Case) -> None:
        """The program ends by itself after its last message."""
        await self.open()
        await self.is_at("idle")
        await self.type("two\r")
        await self.shows("You said two.")
        if case.step == "terminal_note":  # a running gateway has published everything before
            await self._end_without_gateway(case)
        else:
            striking = self._struck(case)
            await self.type("exit\r")
            await self.is_at("exited", "crashed")
            await self.outcome(self.accepted[-1])
            await self._over(striking)
        await self.check("two", "exit")
        record = await self.record()
        assert (record.state, record.resumable) == ("exited", True)

    async def kept(self, case: Case) -> None:
        """A terminal opens while a message waits for the model, and hands over to it in time."""
        await self.open()
        await self.is_at("idle")
        await self.ask("DELETE", f"/{self.sid}")
        await self.outcome(self.accepted[-1])
        postponed = await self.write("busy")
        await eventually(self._is_postponed)
        striking = self._struck(case) if case.step in KEPT_OPENING else None
        assert await self.open(force=True) != 202, "it waits"  # nothing runs that could be stopped
        await self.is_at("idle")
        await self.type("two\r")
        await self.shows("You said two.")
        assert await self._is_postponed(), "the terminal has opened before its time"
        if striking is None:
            striking = self._struck(case)
        (self.directory / "workspace" / "free").touch()
        client = self._fleet.scripts.client
        await client.hdel(keys.state(self.sid), "kept_postponed_until_ms")  # the pause is over
        later = await self.write("four")
        assert await self.outcome(postponed) == "done"
        assert await self.outcome(later) == "done"
        await self._over(striking)
        await self.check("two", "busy", "four")
        (answer,) = await self.answers(postponed)
        assert answer.endswith("You wrote busy, and before: two.")
        notices = [r["text"] for r in await self._replies() if r["text"].startswith("The model is")]
        assert len(notices) == 1, notices

    async def _is_postponed(self) -> bool:
        with contextlib.suppress(RedisUnavailable):
            view = await self._fleet.sessions.view(self.sid)
            return bool(view and view.postponed_until_ms)
        return False

    async def _end_without_gateway(self, case: Case) -> None:
        (held,) = await self._fleet.terminals.held(self.stack.home.host_id)
        assert self.gateway is not None
        self.gateway.kill()
        self.gateway.wait()
        client = await TerminalClient.attach(Path(held.place.path), key=held.place.key)
        assert client is not None
        striking = self._struck(case)
        await client.write(b"exit\r")
        while isinstance(await client.read(), TerminalOutput):
            pass
        await self.outcome(self.accepted[-1])
        await self._over(striking)
        await self.start_gateway()

    def _struck(self, case: Case) -> asyncio.Task[None]:
        assert self.proxy is not None
        assert case.side != "at"
        if case.step == "restore":
            return asyncio.create_task(self._strike_at_restore(case.side, case.blow))
        failpoint = self.proxy.arm(case.step, case.side)
        return asyncio.create_task(self.strike_at(failpoint, case.blow))

    async def _strike_at_restore(self, side: Side, blow: Blow) -> None:
        assert self.proxy is not None
        finished = self.proxy.arm("finish", "after")
        await finished.wait()
        failpoint = self.proxy.arm("begin", side)
        finished.release()
        await self.strike_at(failpoint, blow)

    async def _over(self, striking: asyncio.Task[None]) -> None:
        """Wait until the blow is over, if it has happened."""
        assert self.proxy is not None
        self.reached = not self.proxy._armed
        self.proxy.disarm()
        if self.reached:
            await striking
        striking.cancel()


async def delivered(fleet: Fleet, person: str) -> list[ChatEvent]:
    """Return the events of a person's first conversation, once all replies are delivered."""

    async def is_all() -> bool:
        return not await fleet.scripts.client.xlen(keys.replies("web", "default"))

    await eventually(is_all)
    return await fleet.web.before(person)


@contextlib.asynccontextmanager
async def walked(stack: Stack, directory: Path) -> AsyncIterator[Walk]:
    """Run a host for one conversation, and check what is left at exit."""
    walk = Walk(stack, directory, await stack.proxied())
    stack.configure(
        agent_of(directory), terminals={"handover_s": 1, "opens_per_minute": 600}, lease_s=12.0
    )
    stack.reopen()
    await asyncio.gather(walk.start_worker(), walk.start_gateway())
    sweeping = asyncio.create_task(walk.sweep())
    try:
        with Watchman(directory).watching() as watchman:
            yield walk
        assert not watchman.doubled, watchman.doubled[:3]
        assert watchman.samples > 10
    finally:
        sweeping.cancel()
        await asyncio.wait((sweeping,))
        assert walk.gateway is not None
        walk.gateway.kill()
        walk.gateway.wait()


def _cases() -> Iterator[Case]:
    sides: tuple[Side, Side] = ("before", "after")
    blows: tuple[Blow, ...] = ("drain", "worker", "gateway", "holder", "redis")
    for step in ("acquire", "begin", "terminal_place", "terminal_change", "give_to_holder"):
        for side in sides:
            for blow in blows:
                if blow != "holder" or step == "give_to_holder":  # no holder runs before
                    yield Case("opening", step, side, blow)
    for moment in ("draft", "sent", "working", "flood"):
        for blow in blows:
            if blow != "drain":  # no drain runs while a terminal is open
                yield Case("typing", moment, "at", blow)
    for step in ("acquire", "begin", "remember", "terminal_change", "finish"):
        for side in sides:
            for blow in blows:
                if blow != "holder":  # the holder has ended
                    yield Case("handover", step, side, blow)
    for step in (*KEPT_OPENING, "begin", "finish", "restore"):
        for side in sides:
            for blow in blows:
                if blow != "holder":
                    yield Case("kept", step, side, blow)
    for step in ("acquire", "begin", "remember", "terminal_note", "terminal_change", "finish"):
        for side in sides:
            for blow in blows:
                if blow not in ("holder", "gateway"):
                    yield Case("end", step, side, blow)


CASES = tuple(_cases())
