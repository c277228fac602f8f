"""A stand-in for opencode: the server on its port, and its database."""

import asyncio
import base64
import sqlite3
from pathlib import Path
from typing import Any

import orjson

#: The conversation of events and parts if no other one is named.
MAIN = "ses_main"


class Server:
    """A stand-in for the server on opencode's port."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"/session/status": {}, "/permission": [], "/question": []}
        """The answers by path; other paths have none."""
        self.posted: list[tuple[str, Any]] = []
        self.unanswered = 0
        """The number of next connections that get no answer."""
        self.refused = 0
        """The number of connections that were refused because of a wrong password."""
        self._streams: list[asyncio.StreamWriter] = []
        self.password = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:  # the client has only connected
            writer.close()
            return
        method, path, _ = head.split(maxsplit=2)
        secret = base64.b64encode(f"opencode:{self.password}".encode()).decode()
        if self.unanswered:
            self.unanswered -= 1
            self._streams.append(writer)
        elif f"Authorization: Basic {secret}" not in head:
            self.refused += 1
            await self._answer(writer, b"HTTP/1.1 401 Unauthorized\r\n\r\n")
        elif method == "POST":
            length = int(head.partition("Content-Length: ")[2].split()[0])
            self.posted.append((path, orjson.loads(await reader.readexactly(length))))
            await self._answer(writer, b"HTTP/1.1 204 No Content\r\n\r\n")
        elif path == "/event":
            self._streams.append(writer)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            self.say("server.connected")
        elif path in self.answers:
            answer = orjson.dumps(self.answers[path])
            await self._answer(writer, b"HTTP/1.1 200 OK\r\n\r\n" + answer)
        else:
            await self._answer(writer, b"HTTP/1.1 404 Not Found\r\n\r\n{}")

    async def _answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    def say(self, kind: str, session: str = MAIN, **more: Any) -> None:
        event = {"type": kind, "properties": {"sessionID": session, **more}}
        for stream in self._streams:
            stream.write(b"data: " + orjson.dumps(event) + b"\n\n")

    def status(self, kind: str, session: str = MAIN) -> None:
        self.say("session.status", session, status={"type": kind})

    def hang_up(self) -> None:
        while self._streams:
            self._streams.pop().close()


class Store:
    """The part of opencode's database that we read, as in version 1.18.33."""

    def __init__(self, home: Path) -> None:
        file = home / ".local" / "share" / "opencode" / "opencode.db"
        file.parent.mkdir(parents=True)
        self._database = sqlite3.connect(file)
        self._database.executescript(
            "PRAGMA journal_mode = WAL;"
            "CREATE TABLE session (id text PRIMARY KEY, parent_id text, time_created integer,"
            " time_archived integer);"
            "CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer,"
            " data text);"
            "CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text,"
            " time_created integer, data text);"
        )
        self.session(MAIN)

    def session(self, id_: str, created_ms: int = 1 << 50) -> None:
        self._write("INSERT INTO session VALUES (?, NULL, ?, NULL)", (id_, created_ms))

    def message(self, id_: str, role: str, session: str = MAIN, **data: Any) -> None:
        row = (id_, session, 1, orjson.dumps({"role": role, **data}).decode())
        self._write("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?)", row)

    def part(self, id_: str, message: str, kind: str, **data: Any) -> None:
        row = (id_, message, MAIN, 2, orjson.dumps({"type": kind, **data}).decode())
        self._write("INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?)", row)

    def _write(self, statement: str, row: tuple[Any, ...]) -> None:
        with self._database:
            self._database.execute(statement, row)

    def close(self) -> None:
        self._database.close()
