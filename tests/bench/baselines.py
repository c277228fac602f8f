"""Baselines: the smallest programs with the same result."""

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.fleet.connection import open_redis
from tests.support.agents import AgentCli

#: An agent that takes almost no time: one process, one line in, two lines out.
ECHO_AGENT = (
    "/bin/sh",
    "-c",
    r"""exec sed -u 's/.*/{"type":"text","text":"ok"}\n{"type":"done"}/'""",
    "agent",
)


class BareConsumer:
    """Reads a stream, prompts an agent over a pipe, and writes to another stream."""

    def __init__(self, url: str) -> None:
        self._client = open_redis(url)
        self._consumer_client = open_redis(url)
        self._name = uuid.uuid4().hex

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["BareConsumer"]:
        """Run the consumer and its agent."""
        agent = await asyncio.create_subprocess_exec(
            *ECHO_AGENT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        consuming = asyncio.create_task(self._consume(agent))
        try:
            yield self
        finally:
            consuming.cancel()
            agent.kill()
            await agent.wait()
            await self._client.aclose()
            await self._consumer_client.aclose()

    async def _consume(self, agent: asyncio.subprocess.Process) -> None:
        assert agent.stdin is not None
        assert agent.stdout is not None
        inbound, outbound = f"bench:in:{self._name}", f"bench:out:{self._name}"
        while True:
            streams: Any = await self._consumer_client.xread({inbound: "0"}, count=1, block=5000)
            for _stream, entries in streams:
                for entry_id, fields in entries:
                    agent.stdin.write(orjson.dumps({"text": fields[b"text"].decode()}) + b"\n")
                    while b"done" not in await agent.stdout.readline():
                        pass
                    await self._consumer_client.xadd(outbound, {"text": "ok"})
                    await self._consumer_client.xdel(inbound, entry_id)

    async def seconds(self, text: str) -> float:
        """Return the seconds from adding a message until its reply can be read."""
        outbound = f"bench:out:{self._name}"
        started = time.perf_counter()
        await self._client.xadd(f"bench:in:{self._name}", {"text": text})
        await self._client.xread({outbound: "0"}, count=1, block=10_000)
        seconds = time.perf_counter() - started
        await self._client.delete(outbound)
        return seconds


class BareClaude:
    """A warm claude process without RemoteClaw."""

    def __init__(self, claude: AgentCli, directory: Path) -> None:
        self._claude = claude
        self._directory = directory

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["BareClaude"]:
        """Run the process."""
        self._process = await asyncio.create_subprocess_exec(
            self._claude.program,
            *("-p", "--verbose", "--include-partial-messages"),
            *("--input-format", "stream-json", "--output-format", "stream-json"),
            cwd=self._directory,
            env=bare_environment(self._claude, self._directory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=64 * 2**20,
        )
        try:
            yield self
        finally:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._process.wait()

    async def seconds(self, text: str) -> float:
        """Return the seconds of one turn."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        content = [{"type": "text", "text": text}]
        message = {"type": "user", "message": {"role": "user", "content": content}}
        started = time.perf_counter()
        self._process.stdin.write(orjson.dumps(message) + b"\n")
        while b'"type":"result"' not in await self._process.stdout.readline():
            pass
        return time.perf_counter() - started


async def one_shot_claude(
    claude: AgentCli, directory: Path, text: str, more: Sequence[str] = ()
) -> float:
    """Return the seconds of a bare `claude -p`, from its start to its end."""
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(claude.program, "-p", "--verbose", "--output-format", "stream-json", *more),
        cwd=directory,
        env=bare_environment(claude, directory),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    await process.communicate(text.encode())
    return time.perf_counter() - started


def bare_environment(claude: AgentCli, directory: Path) -> dict[str, str]:
    """Return the environment of a claude, as in the measured configuration."""
    return {"PATH": os.environ["PATH"], "HOME": str(directory), **claude.env}
