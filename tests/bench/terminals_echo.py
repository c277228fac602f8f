"""The time from a key to its echo: through the holder compared with tmux, and the gateway."""

import itertools
import shutil
import sys
from functools import partial
from pathlib import Path

import orjson
from websockets.asyncio.client import connect

from remoteclaw.holder.terminal_client import TerminalClient
from tests.bench.bare import Bare, in_holder, in_tmux
from tests.bench.gateway import RowParts, echoed, echoing, measure_alternately
from tests.bench.stage import Stage, played, shows
from tests.bench.viewers import viewing
from tests.support.doors import RpcClient
from tests.support.holders import Reader, attach, end, start
from tests.support.stack import Stack

#: The pause between two keys, in seconds, longer than the one between two frames.
KEY_S = 0.05
#: The number of viewers.
VIEWERS = 50
#: Letters that end no control sequence of tmux, and are not in a holder's OUT messages.
LETTERS = itertools.cycle(b"QVWNX")


async def bench_echo(stack: Stack, directory: Path, rounds: int) -> list[RowParts]:
    """Measure each way of a key and its baseline."""
    program = played()["command"]
    directory.mkdir()
    held = await start(directory, *program)
    await Reader(held).until(b"READY")
    rows: list[RowParts] = []
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
                    ours, baseline = partial(_key_of, plain), partial(_key_of, other)
                    pair = await measure_alternately(ours, baseline, rounds * 10)
                rows.append(("key, holder", name, *pair, "≤ 1 ×" if "tmux" in name else ""))
        typed = _Held(await attach(held))
        return [*rows, *await _over_gateway(stack, typed, rounds)]
    finally:
        await end(held)


async def _over_gateway(stack: Stack, held: "_Held", rounds: int) -> list[RowParts]:
    async with (
        Stage.set(stack, played()) as stage,
        stage.door.connected(stage.token) as client,
        stage.door.connected(stage.token) as client_of_many,
        echoing() as echo,
        connect(f"ws://{echo}/ws") as socket,
    ):
        alone = await _Watched.typing(client, await stage.open(client, "alone"))
        many = await _Watched.typing(client_of_many, await stage.open(client, "many"))

        async def baseline() -> None:
            await echoed(socket)
            await held.key()

        one = await measure_alternately(alone.key, baseline, rounds * 4, pause_s=KEY_S)
        async with viewing(stage.door, stage.token, many.sid, VIEWERS - 1):
            crowd = await measure_alternately(many.key, alone.key, rounds * 4, pause_s=KEY_S)
    return [
        ("key, WebSocket", "WebSocket echo + holder", *one, "≤ 2 ×"),
        (f"key, WebSocket, {VIEWERS} viewers", "the same, one viewer", *crowd, "≤ 2 ×"),
    ]


class _Held:
    """Sends keys to a holder."""

    def __init__(self, client: TerminalClient) -> None:
        self.client = client
        self._reader = Reader(client)

    async def key(self) -> None:
        """Send a key, and wait for its echo."""
        letter = bytes([next(LETTERS)])
        self._reader.seen = b""
        await self.client.write(letter)
        await self._reader.until(letter)


async def _key_of(bare: Bare) -> None:
    """Send a key, and wait for its echo."""
    bare.forget()
    letter = bytes([next(LETTERS)])
    bare.type(letter)
    bare.until(letter)


class _Watched:
    """Sends keys through the gateway, as the client that has the keyboard."""

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
        """Send a key, and wait for its echo and for the response to the call."""
        letter = next(LETTERS)
        self.client.events.clear()
        about = {"sid": self.sid, "keys": [f"b:{letter:02x}"]}
        request_id = await self.client.begin("terminals.type", about)
        is_seen = is_answered = False
        while not (is_seen and is_answered):
            frame = await self.client.frame()
            is_answered = is_answered or frame.get("id") == request_id
            if frame.get("event") == "terminal.screen":
                lines = orjson.dumps(frame["payload"]["lines"])
                is_seen = is_seen or bytes([letter]) in lines
