"""A directory as a chat platform: each directory in it is a chat.

People write files with names like `NUMBER-NAME.in`; RemoteClaw writes `NUMBER.txt`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from remoteclaw.config.model import AccountConfig, ChannelConfig
from remoteclaw.config.rights import BY_PEOPLE
from remoteclaw.errors import PlatformRefused, Unsupported
from remoteclaw.messages import code_files
from remoteclaw.profiles import Channel
from remoteclaw.protocols import (
    ChannelProfile,
    Identity,
    Incoming,
    IncomingFile,
    Live,
    Operation,
    Part,
    Place,
    PollResult,
    Reply,
    Sent,
)

PROFILE = ChannelProfile(
    chunk_limit=2000,
    code_file_lines=60,
    formatting=("The user reads plain text.",),
    has_threads=False,
    lacks=frozenset(
        (
            "message_thread_reply",
            "message_react",
            "message_delete",
            "message_pin",
        )
    ),
)


class FolderConfig(AccountConfig, ChannelConfig):
    """The section `[channels.folder]`."""

    directory: Annotated[str, BY_PEOPLE]
    """The directory, with a directory for each chat."""


class Folder:
    """The adapter of an account."""

    key_window_s = None

    def __init__(self, settings: FolderConfig) -> None:
        self._directory = Path(settings.directory)

    async def connect(self) -> Identity:
        """Check that the directory exists."""
        if not self._directory.is_dir():
            raise PlatformRefused(f"There is no directory {self._directory}.")
        return Identity(self._directory.name)

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for files; the cursor is the name of the last one."""
        for _ in range(100):
            files = sorted(self._directory.glob("*/*.in"), key=lambda file: file.name)
            new = [file for file in files if file.name > cursors.get("", "")]
            if new:
                return PollResult(tuple(map(self._incoming, new)), {"": new[-1].name})
            await asyncio.sleep(0.1)
        return PollResult()

    def _incoming(self, file: Path) -> Incoming:
        sender = file.stem.partition("-")[2]
        return Incoming(
            id=file.name,
            chat=file.parent.name,
            is_group=file.parent.name != sender,
            sender=sender,
            at_ms=int(file.stat().st_mtime * 1000),
            text=file.read_text(errors="replace"),
        )

    async def fetch(self, file: IncomingFile) -> bytes:
        """Refuse, because people can't send files here."""
        raise PlatformRefused("files can't be sent here.")

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Do nothing, because there is no menu."""

    async def aclose(self) -> None:
        """Do nothing, because nothing is open."""

    def parts(self, reply: Reply) -> Sequence[Part]:
        """Return the text, long code and each file; nothing for the mere end of a turn."""
        text, made = code_files(reply.text, reply.code_file_lines)
        contents: list[dict[str, Any]] = [{"content": text}] if text else []
        contents += [{"content": file.content, "name": file.name} for file in made]
        contents += [{"attachment": file} for file in reply.attachments]
        return [Part(index, **content) for index, content in enumerate(contents)]

    async def send(
        self, reply: Reply, part: Part, content: bytes | None = None, *, is_again: bool = False
    ) -> Sent:
        """Write one part."""
        chat = self._directory / reply.channel_id
        if not chat.is_dir():
            raise PlatformRefused(f"There is no chat {reply.channel_id}.")
        name = self.new_name(chat)
        if part.file_name:
            (chat / f"{name}-{part.file_name}").write_bytes(content or b"")
        else:
            again = "(perhaps a second time) " if is_again else ""
            (chat / f"{name}.txt").write_text(again + part.content)
        return Sent(message_id=name)

    def new_name(self, chat: Path) -> str:
        """Return the name of a chat's next message, a number."""
        numbers = [int(file.name[:4]) for file in chat.iterdir() if file.name[:4].isdigit()]
        return f"{max(numbers, default=-1) + 1:04}"


CHANNEL = Channel(
    profile=PROFILE, settings=f"{__name__}:FolderConfig", adapter=f"{__name__}:Folder"
)


LIVE_PROFILE = replace(
    PROFILE,
    live_every_s=0.5,
    lacks=frozenset(("message_thread_reply", "message_pin")),
)


class LiveFolder(Folder):
    """The adapter of an account that shows turns while they run."""

    async def preview(self, place: Place, live: Live, *, message_id: str | None) -> str:
        """Write the text so far, with the plan above and the running tools below."""
        name = message_id or self.new_name(self._directory / place.chat)
        shown = "\n".join(filter(None, (live.plan, live.text, live.activity)))
        self._write(place.chat, name, shown, is_new=message_id is None)
        return name

    async def replace(self, reply: Reply, part: Part, *, message_id: str) -> Sent:
        """Write the answer in place of a preview."""
        self._write(reply.channel_id, message_id, part.content, is_new=False)
        return Sent(message_id=message_id)

    async def remove(self, place: Place, message_id: str) -> None:
        """Delete the file of a preview."""
        self._file(place.chat, message_id).unlink(missing_ok=True)

    async def typing(self, place: Place) -> None:
        """Do nothing, because a directory can't show it."""

    async def operate(self, operation: Operation) -> Mapping[str, Any]:
        """React to or delete a message."""
        chat, name = operation.channel_id, operation.args.get("messageId", "")
        match operation.name:
            case "delete":
                self._existing(chat, name).unlink()
            case "react":
                reaction = self._existing(chat, name).with_suffix(".reaction")
                reaction.write_text(operation.args["emoji"])
            case _:
                raise Unsupported(f"A folder can't {operation.name}.")
        return {}

    def _write(self, chat: str, name: str, text: str, *, is_new: bool) -> None:
        file = self._file(chat, name) if is_new else self._existing(chat, name)
        file.write_text(text)

    def _existing(self, chat: str, name: str) -> Path:
        file = self._file(chat, name)
        if not file.is_file():
            raise PlatformRefused(f"There is no message {name}.")
        return file

    def _file(self, chat: str, name: str) -> Path:
        if not (self._directory / chat).is_dir() or not name.isdigit():
            raise PlatformRefused(f"There is no message {name} in {chat}.")
        return self._directory / chat / f"{name}.txt"


LIVE_CHANNEL = Channel(
    profile=LIVE_PROFILE, settings=f"{__name__}:FolderConfig", adapter=f"{__name__}:LiveFolder"
)
