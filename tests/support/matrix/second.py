"""People whose clients encrypt: matrix-js-sdk with its crypto in Rust, as Element has it."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from tests.support.installed import missing
from tests.support.matrix.server import Login
from tests.support.waiting import HANG_S

#: The directory with `node_modules` in which matrix-js-sdk is installed.
VARIABLE = "REMOTECLAW_TEST_MATRIX_JS"
#: It, before a test clears the environment.
INSTALLED = os.environ.get(VARIABLE, "")
PROGRAM = Path(__file__).with_name("second.mjs")


class Second:
    """A process with the clients of some people."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def do(self, verb: str, **about: Any) -> Any:
        """Have a client do something; return what it says. A failure fails the test."""
        lines, answers = self._process.stdin, self._process.stdout
        assert lines is not None, "a pipe"
        assert answers is not None, "a pipe"
        lines.write(orjson.dumps({"do": verb, **about}) + b"\n")
        async with asyncio.timeout(HANG_S):
            answer = orjson.loads(await answers.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]

    async def open(self, url: str, login: Login, *, signed_only: bool = False) -> None:
        """Open the client of an account. It may give its keys to signed devices only."""
        await self.do(
            "open",
            url=url,
            user=login.user,
            token=login.token,
            device=login.device,
            password=login.password,
            signedOnly=signed_only,
        )

    async def create(self, by: str, *invited: str) -> str:
        """Create an encrypted room; return its id."""
        return str(await self.do("create", user=by, invite=invited))

    async def say(self, by: str, room: str, text: str) -> str:
        """Say a text, encrypted; return the message's id."""
        return str(await self.do("say", user=by, room=room, text=text))

    async def texts(self, by: str, room: str) -> list[tuple[str, str]]:
        """Return the texts that a person reads in a room, with their senders."""
        return [
            (each["sender"], each["text"]) for each in await self.do("texts", user=by, room=room)
        ]


@contextlib.asynccontextmanager
async def second_client() -> AsyncIterator[Second]:
    """Run a process for clients that encrypt, until exit."""
    directory = Path(INSTALLED)
    node = shutil.which("node")
    if node is None or not INSTALLED:
        missing(f"Node is not on PATH, or ${VARIABLE} names no directory with matrix-js-sdk")
    # A module looks for others next to itself.
    program = directory / f"second-{os.getpid()}.mjs"
    program.write_bytes(PROGRAM.read_bytes())
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        node, str(program), stdin=pipe, stdout=pipe, limit=2**24
    )
    try:
        yield Second(process)
    finally:
        assert process.stdin is not None, "a pipe"
        process.stdin.close()
        await process.wait()
        program.unlink(missing_ok=True)
