"""Files of a chat: those that a person names are uploaded, those of the agent are saved."""

import asyncio
import http.client
import os
import re
import shlex
import socket
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.client.link import Address
from remoteclaw.errors import MessageRefused, RemoteClawError
from remoteclaw.host.files import about_file, save_file

#: How long a transfer may be silent, in seconds.
SILENT_S = 30.0
#: A word that a terminal inserts where a file is dropped, quoted or with escaped blanks.
_WORD = re.compile(r"""'[^'\n]+'|"[^"\n]+"|(?:\\.|[^\s\\])+""")
#: The pictures and documents that models look at; an agent opens any other file by its path.
_SHOWN = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")


@dataclass(frozen=True, slots=True)
class Saved:
    """What became of a file that the agent sent."""

    note: str
    """A sentence for the person."""
    is_saved: bool


class Files:
    """Transfers files to and from the gateway."""

    def __init__(self, address: Address, token: str, downloads: Path) -> None:
        """What the agent sends is saved in `downloads`."""
        self._address = address
        self._token = token
        self._downloads = downloads

    async def in_message(
        self, text: str, here: Mapping[str, Any]
    ) -> tuple[str, list[dict[str, Any]]]:
        """Upload the files that a message names; return its text without them, and the files.

        A picture or document is named by its path, as dropping it on a terminal writes it, and any
        file where the whole message is its path. Raises `RemoteClawError` for one that can't be
        uploaded.
        """
        paths = named_files(text)
        for word, _ in paths:
            text = text.replace(word, "", 1)
        session = str(here["sessionKey"])
        return text.strip(), [await self._upload_path(path, session) for _, path in paths]

    async def save(self, sid: str, told: Mapping[str, Any]) -> Saved:
        """Save a file that the agent sent."""
        from remoteclaw.messages import Attachment  # else `send` would load pydantic

        file = Attachment(
            name=told["name"], mime_type=told["mimeType"], size=told["size"], blob=told["blob"]
        )
        try:
            path = f"/files/{sid}/{file.blob}?size={file.size}"
            content = await asyncio.to_thread(self._exchange, "GET", path)
            self._downloads.mkdir(mode=0o700, parents=True, exist_ok=True)
            saved = await asyncio.to_thread(save_file, self._downloads, file.name, content)
        except RemoteClawError as error:
            return Saved(about_file(file, problem=str(error)), is_saved=False)
        except OSError as error:
            return Saved(about_file(file, problem=str(error.strerror)), is_saved=False)
        return Saved(about_file(file, saved=str(saved)), is_saved=True)

    async def _upload_path(self, path: Path, session: str) -> dict[str, Any]:
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise MessageRefused(f"The file {path} can't be read ({error.strerror}).") from None
        return await self.upload(path.name, content, session)

    async def upload(self, name: str, content: bytes, session: str) -> dict[str, Any]:
        """Store a file for a message that will name it; raises `RemoteClawError` if it is unfit."""
        where = urllib.parse.urlencode({"session": session, "name": name})
        answer = await asyncio.to_thread(self._exchange, "POST", f"/files?{where}", content)
        told: dict[str, Any] = orjson.loads(answer)
        return told

    def _exchange(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the body of an answer. Raises `RemoteClawError` with the gateway's reason."""
        connection = self._connection()
        prefix = urllib.parse.urlsplit(self._address.url).path.rstrip("/").removesuffix("/ws")
        path = f"{prefix}{path}"
        try:
            headers = {"Authorization": f"Bearer {self._token}"}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise RemoteClawError(f"The gateway did not transfer the file ({why}).") from None
        finally:
            connection.close()
        if response.status == 200:
            return content
        try:
            raise RemoteClawError(str(orjson.loads(content)["error"]["message"]))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise RemoteClawError(f"The gateway refused the file ({response.status}).") from None

    def _connection(self) -> http.client.HTTPConnection:
        if self._address.sockets is not None:
            return _Private(self._address)
        parts = urllib.parse.urlsplit(self._address.url)
        is_secure = parts.scheme in ("https", "wss")
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=SILENT_S)


class _Private(http.client.HTTPConnection):
    """A connection to a gateway's socket in the state directory."""

    def __init__(self, address: Address) -> None:
        super().__init__("localhost", timeout=SILENT_S)
        self._address = address

    def connect(self) -> None:
        """Connect to the newest socket that answers."""
        failure = OSError("no gateway answers")
        for path in self._address.newest():
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(SILENT_S)
            try:
                self.sock.connect(str(path))
            except OSError as error:
                self.sock.close()
                failure = error
            else:
                return
        raise failure


def named_files(text: str) -> list[tuple[str, Path]]:
    """Return the words of a message that name a file to send, each with its file."""
    found = []
    for match in _WORD.finditer(text):
        path = _path(match[0])
        is_all = match[0] == text.strip()
        if path and (is_all or path.suffix.lower() in _SHOWN) and os.path.isfile(path):
            found.append((match[0], path))
    return found


def _path(word: str) -> Path | None:
    """Return the path that a word is; None unless it leads from the root or from home."""
    try:
        (plain,) = shlex.split(word)
    except ValueError:
        return None
    if plain.startswith("file://"):
        plain = urllib.parse.unquote(urllib.parse.urlsplit(plain).path)
    if not plain.startswith(("/", "~/")) or "\0" in plain:
        return None
    return Path(plain).expanduser()
