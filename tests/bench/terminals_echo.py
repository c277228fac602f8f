"""How soon a key is seen: through the holder beside tmux, and through the gateway."""

import itertools
import shutil
import sys
from functools import partial
from pathlib import Path

import orjson
from websockets.asyncio.client import connect

from remoteclaw.holder.terminal_client import TerminalClient
from tests.bench.bare import Bare, in_holder, in_tmux
from tests.bench.gateway import Pairs, by_turns, echoed, echoing
from tests.bench.stage import Stage, played, shows
from tests.bench.viewers import viewing
from tests.support.doors import RpcClient
from tests.support.holders import Reader, attach, end, start
from tests.support.stack import Stack

#: The pause between two keys of a person, in seconds: longer than that between two frames.
KEY_S = 0.05
#: How many watch.
VIEWERS = 50
#: Letters that no control sequence of tmux ends with, and that no OUT of a holder has.
LETTERS = itertools.cycle(b"QVWNX")


async def bench_echo(stack: Stack, directory: Path, rounds: int) -> list[Pairs]:
    """Measure each way of a key beside its floor."""
    program = played()["command"]
    directory.mkdir()
    held = await start(directory, *program)
    await Reader(held).until(b"READY")
    rows: list[Pairs] = []
    others = {"bare pseudo-terminal": Bare.running(program)}
    if shutil.which("tmux"):
        others["tmux attach"] = in_tmux(program, directory)
    else:
        sys.stderr.write("tmux is not installed: its row is left out\n")
    try:
        with in_holder(held) as plain:
            plain.until(b"READY")
            for name, running in others.items():
                with running as other:
                    other.until(b"READY")
                    ours, floor = partial(_key_of, plain), partial(_key_of, other)
                    pair = await by_turns(ours, floor, rounds * 10)
                rows.append(("key, holder", name, *pair, "≤ 1 ×" if "tmux" in name else ""))
        typed = _Held(await attach(held))
        return [*rows, *await _over_gateway(stack, typed, rounds)]
    finally:
        await end(held)


async def _over_gateway(stack: Stack, held: "_Held", rounds: int) -> list[Pairs]:
    async with (
        Stage.set(stack, played()) as stage,
        stage.door.connected(stage.token) as client,
        stage.door.connected(stage.token) as client_of_many,
        echoing() as echo,
        connect(f"ws://{echo}/ws") as socket,
    ):
        alone = await _Watched.typing(client, await stage.open(client, "alone"))
        many = await _Watched.typing(client_of_many, await stage.open(client, "many"))

        async def floor() -> None:
            await echoed(socket)
            await held.key()

        one = await by_turns(alone.key, floor, rounds * 4, pause_s=KEY_S)
        async with viewing(stage.door, stage.token, many.sid, VIEWERS - 1):
            crowd = await by_turns(many.key, alone.key, rounds * 4, pause_s=KEY_S)
    return [
        ("key, WebSocket", "WebSocket echo + holder", *one, "≤ 2 ×"),
        (f"key, WebSocket, {VIEWERS} watch", "the same, one watches", *crowd, "≤ 2 ×"),
    ]


class _Held:
    """Keys to a holder."""

    def __init__(self, client: TerminalClient) -> None:
        self.client = client
        self._reader = Reader(client)

    async def key(self) -> None:
        """Press a key, and see it."""
        letter = bytes([next(LETTERS)])
        self._reader.seen = b""
        await self.client.write(letter)
        await self._reader.until(letter)


async def _key_of(bare: Bare) -> None:
    """Press a key, and see it."""
    bare.forget()
    letter = bytes([next(LETTERS)])
    bare.type(letter)
    bare.until(letter)


class _Watched:
    """Keys over the gateway, by whoever has the keyboard."""

    def __init__(self, client: RpcClient, sid: str) -> None:
        self.client, self.sid = client, sid

    @classmethod
    async def typing(cls, client: RpcClient, sid: str) -> "_Watched":
        """Watch a terminal, and take its keyboard."""
        await shows(client, sid, "READY")
        await client.call("terminals.watch", {"sid": sid})
        await client.call("terminals.take", {"sid": sid})
        return cls(client, sid)

    async def key(self) -> None:
        """Press a key, and see it; what else is told of it is read as well."""
        letter = next(LETTERS)
        self.client.events.clear()
        about = {"sid": self.sid, "bytes": letter}
        asked = await self.client.begin("terminals.key", about)
        is_seen = is_answered = False
        while not (is_seen and is_answered):
            frame = await self.client.frame()
            is_answered = is_answered or frame.get("id") == asked
            if frame.get("event") == "terminal.screen":
                lines = orjson.dumps(frame["payload"]["lines"])
                is_seen = is_seen or bytes([letter]) in lines
