"""Transfers files of a chat: uploads those that the person names, saves those of the agent."""

import asyncio
import http.client
import os
import re
import shlex
import socket
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from remoteclaw.client.link import Address, GatewayRefused
from remoteclaw.errors import MessageRefused, RemoteClawError
from remoteclaw.host.files import describe_file, save_file

#: Time limit for each read and write of a transfer, in seconds.
SOCKET_S = 30.0
#: A word as terminals insert the path of a dropped file: quoted, or with escaped spaces.
_WORD = re.compile(r"""'[^'\n]+'|"[^"\n]+"|(?:\\.|[^\s\\])+""")
#: Extensions of files that models can view; an agent opens any other file by its path.
_VIEWABLE = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf")


class Files:
    """Transfers files to and from the gateway."""

    def __init__(self, address: Address, token: str, downloads: Path) -> None:
        """Save the agent's files in the directory `downloads`."""
        self._address = address
        self._token = token
        self._downloads = downloads

    async def upload_named(
        self, text: str, chat: Mapping[str, Any]
    ) -> tuple[str, list[dict[str, Any]]]:
        """Upload the files that a message names; return the text without them, and the files.

        `chat` is the result of `chat.open`. See `named_files()` for the files that count. Raises
        `RemoteClawError` if a file can't be uploaded.
        """
        files = named_files(text)
        for word, _ in files:
            text = text.replace(word, "", 1)
        session = str(chat["sessionKey"])
        return text.strip(), [await self._upload_path(path, session) for _, path in files]

    async def save(self, sid: str, attachment: Mapping[str, Any]) -> str:
        """Save a file that the agent sent.

        Return a sentence that says where the file is, or why it was not saved.
        """
        from remoteclaw.messages import Attachment  # imported here so that `send` avoids pydantic

        file = Attachment(
            name=attachment["name"],
            mime_type=attachment["mime_type"],
            size=attachment["size"],
            blob=attachment["blob"],
        )
        try:
            path = f"/files/{sid}/{file.blob}?size={file.size}"
            content = await asyncio.to_thread(self._exchange, "GET", path)
            self._downloads.mkdir(mode=0o700, parents=True, exist_ok=True)
            saved = await asyncio.to_thread(save_file, self._downloads, file.name, content)
        except RemoteClawError as error:
            return describe_file(file, problem=str(error))
        except OSError as error:
            return describe_file(file, problem=str(error.strerror))
        return describe_file(file, saved=str(saved))

    async def _upload_path(self, path: Path, session: str) -> dict[str, Any]:
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise MessageRefused(f"The file {path} can't be read ({error.strerror}).") from None
        return await self.upload(path.name, content, session)

    async def upload(self, name: str, content: bytes, session: str) -> dict[str, Any]:
        """Upload a file for a later message, and return its description for `chat.send`.

        Raises `RemoteClawError` if the gateway refuses the file.
        """
        query = urllib.parse.urlencode({"session": session, "name": name})
        answer = await asyncio.to_thread(self._exchange, "POST", f"/files?{query}", content)
        attachment: dict[str, Any] = orjson.loads(answer)
        return attachment

    def _exchange(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Send a request and return the response's body.

        Raises `GatewayRefused` with the gateway's reason.
        """
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
            raise GatewayRefused(
                "UNAVAILABLE", f"The gateway did not transfer the file ({why})."
            ) from None
        finally:
            connection.close()
        if response.status == 200:
            return content
        try:
            reason = orjson.loads(content)["error"]
            refusal = GatewayRefused(str(reason["code"]), str(reason["message"]))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            refusal = GatewayRefused("", f"The gateway refused the file ({response.status}).")
        raise refusal

    def _connection(self) -> http.client.HTTPConnection:
        if self._address.sockets is not None:
            return _SocketConnection(self._address)
        parts = urllib.parse.urlsplit(self._address.url)
        is_secure = parts.scheme in ("https", "wss")
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        return kind(parts.hostname or "", parts.port, timeout=SOCKET_S)


class _SocketConnection(http.client.HTTPConnection):
    """An HTTP connection to a gateway's socket in the state directory."""

    def __init__(self, address: Address) -> None:
        super().__init__("localhost", timeout=SOCKET_S)
        self._address = address

    def connect(self) -> None:
        """Connect to the newest socket that accepts connections."""
        failure = OSError("no gateway answers")
        for path in self._address.newest():
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(SOCKET_S)
            try:
                self.sock.connect(str(path))
            except OSError as error:
                self.sock.close()
                failure = error
            else:
                return
        raise failure


def named_files(text: str) -> list[tuple[str, Path]]:
    """Return the words of a message that name a file to upload, each with its path.

    A word names a file if it is an absolute path, or one from `~`, of an existing file that models
    can view. If the word is the whole message, the file may be of any kind.
    """
    files = []
    for match in _WORD.finditer(text):
        path = _path(match[0])
        is_all = match[0] == text.strip()
        if path and (is_all or path.suffix.lower() in _VIEWABLE) and os.path.isfile(path):
            files.append((match[0], path))
    return files


def _path(word: str) -> Path | None:
    """Return the absolute path that a word stands for; None if it stands for none."""
    try:
        (plain,) = shlex.split(word)
    except ValueError:
        return None
    if plain.startswith("file://"):
        plain = urllib.parse.unquote(urllib.parse.urlsplit(plain).path)
    if not plain.startswith(("/", "~/")) or "\0" in plain:
        return None
    return Path(plain).expanduser()
