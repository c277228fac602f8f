"""The arrival of one message: who may write is let in, a command is answered, the rest appended."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remoteclaw import commands
from remoteclaw.channels.access import Access, Verdict
from remoteclaw.channels.rate import MOST, Rate
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import (
    MessageRefused,
    PlatformRefused,
    RedisRefused,
    RemoteClawError,
)
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.caller import call_name
from remoteclaw.fleet.keys import OPERATOR
from remoteclaw.fleet.pairings import Request
from remoteclaw.fleet.reply import reply_payload
from remoteclaw.host.files import size_in_words
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import EVERYONE, MAX_ATTACHMENTS, Attachment, ChannelMessage, SessionKey
from remoteclaw.protocols import FileSource, Incoming, IncomingFile

__all__ = ["Arrival", "Door"]

#: How long one file may take, in seconds, and how often it is asked for: what follows it waits.
FETCH_S, TRIES = 60.0, 3

STRANGER = (
    "I don't know you yet, and your message was not read. Your code is `{code}`, for an hour. "
    "Whoever runs me lets you in: with `/pair {code}` in a chat with me, or at the computer with "
    "`remoteclaw pairing approve {code}`."
)
NEW_GROUP = "This group was not let in: `/pair` here has everybody in it write to me."
TOO_MANY = (
    f"You have written more than {MOST} messages in a minute: this one was not read, nor is what "
    "else you write in this minute. Send it again after that."
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where an account's messages come in."""

    fleet: Fleet
    home: Home
    config: Callable[[], Config]
    provider: str
    account: str
    rate: Rate


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message on its way in. Each step does nothing a second time."""

    door: Door
    source: FileSource
    """What has its files."""
    incoming: Incoming

    async def take(self) -> None:
        """Take it in.

        Raises `RedisUnavailable`, `RedisRefused` and `CallRefused`, and `MessageRefused` if it has
        no ids to go by.
        """
        door, incoming = self.door, self.incoming
        self._message("-")  # else its ids are none, and nothing goes by them
        access = Access(door.config(), door.fleet, door.provider, door.account)
        if incoming.moved_to is not None:
            await access.move(incoming)
            return
        match await access.verdict(incoming):
            case Verdict.ADMITTED:
                await self._admit(access)
            case Verdict.STRANGER:
                await self._introduce()
            case Verdict.NEW_GROUP:
                await self._admit(access, only_pairing=True)

    async def _introduce(self) -> None:
        """Tell a stranger their code, once."""
        incoming = self.incoming
        request = Request(
            provider=self.door.provider,
            account=self.door.account,
            id=incoming.sender,
            name=one_line(incoming.sender_name or "", most=60),
            chat=incoming.chat,
            message=incoming.id,
        )
        if code := await self.door.fleet.pairings.ask(request):
            log.info("a stranger, %s, was given a pairing code", incoming.sender)
            await self._say(STRANGER.format(code=code))

    async def _admit(self, access: Access, *, only_pairing: bool = False) -> None:
        """Answer a command, and give all else to the agent."""
        incoming, config = self.incoming, access.config
        assert access.settings is not None, "it was admitted"
        if not incoming.text.strip() and not incoming.files:
            return
        if (minute := self.door.rate.exceeded(incoming)) is not None:
            await self._say(TOO_MANY, call=(incoming.sender, f"{incoming.thread} {minute}"))
            return
        agent, _ = config.agent(access.settings.agent)
        by_kind = "chat" if incoming.is_group else "person"
        is_shared = incoming.is_group and (access.settings.sessions or by_kind) == "chat"
        session = SessionKey(
            agent=agent,
            provider=self.door.provider,
            account=self.door.account,
            channel_id=incoming.chat,
            user=EVERYONE if is_shared else incoming.sender,
            thread=incoming.thread,
        )
        if only_pairing:
            command = commands.parse(incoming.text)
            if command is None or command.name != "pair":
                await self._say(NEW_GROUP)
                return
        taken = await commands.take(
            incoming.text,
            lambda rest: self._asked(access, session, rest),
            has_files=bool(incoming.files),
        )
        if taken.answer and taken.answer.text:
            await self._say(taken.answer.text)
        if taken.text or incoming.files:
            await self._append(session, taken.text, access, is_command=taken.is_command)

    def _asked(self, access: Access, session: SessionKey, rest: str) -> commands.Asked:
        return commands.Asked(
            id=self.incoming.id,
            rest=rest,
            session=session,
            sender=self.incoming.sender,
            is_owner=access.is_owner(self.incoming),
            is_group=self.incoming.is_group,
            fleet=self.door.fleet,
            config=access.config,
            home=self.door.home,
        )

    async def _append(
        self, session: SessionKey, text: str, access: Access, *, is_command: bool | None
    ) -> None:
        files, problems = await self._files(session, access.config)
        if text.strip() or files:
            try:
                await self.door.fleet.inbound.append(
                    self._message(text, files),
                    agent=session.agent,
                    is_command=is_command,
                    is_shared=session.is_shared,
                )
            except MessageRefused as refusal:
                problems.append(str(refusal))
        if problems:
            await self._say("\n".join(problems), call=(self.incoming.id, "problems"))

    def _message(self, text: str, files: Sequence[Attachment] = ()) -> ChannelMessage:
        incoming = self.incoming
        return ChannelMessage.checked(
            id=incoming.id,
            text=text,
            from_=incoming.sender,
            channel_id=incoming.chat,
            provider=self.door.provider,
            account=self.door.account,
            timestamp=incoming.at_ms,
            thread_id=incoming.thread,
            reply_to_id=incoming.reply_to,
            user_name=incoming.sender_name,
            quoted=incoming.quoted or None,
            replaces=incoming.replaces,
            attachments=tuple(files),
        )

    async def _files(
        self, session: SessionKey, config: Config
    ) -> tuple[list[Attachment], list[str]]:
        """Store the files that came with it; return them, and why others are left out."""
        files: list[Attachment] = []
        problems: list[str] = []
        most = config.channel(session.provider).attachment_mb * 1024 * 1024
        for number, file in enumerate(self.incoming.files):
            name = one_line(file.name, most=60)
            try:
                if number >= MAX_ATTACHMENTS:
                    raise MessageRefused(f"a message has {MAX_ATTACHMENTS} files at most.")
                if (file.size or 0) > most:
                    raise MessageRefused(f"files have {size_in_words(most)} at most here.")
                content = await self._fetch(file)
                if len(content) > most:
                    raise MessageRefused(f"files have {size_in_words(most)} at most here.")
                blobs = self.door.fleet.blobs
                files.append(await blobs.put(session.sid, file.name, content, chat=session))
            except (MessageRefused, PlatformRefused, RedisRefused) as refusal:
                problems.append(f"The file {name} was not taken: {refusal}")
        return files, problems

    async def _fetch(self, file: IncomingFile) -> bytes:
        """Return a file's content. Raises `PlatformRefused`, also if it is not to be had."""
        for _ in range(TRIES):
            try:
                async with asyncio.timeout(FETCH_S):
                    return await self.source.fetch(file)
            except PlatformRefused:
                raise
            except (RemoteClawError, TimeoutError) as error:
                log.warning("a file can't be fetched yet: %s", error)
            await asyncio.sleep(1)
        raise PlatformRefused("it could not be fetched; send it again.")

    async def _say(self, text: str, *, call: tuple[str, str] | None = None) -> None:
        """Have the chat told something, once: by its name, which is that of the message."""
        door, incoming = self.door, self.incoming
        name = "\0".join((door.provider, door.account, incoming.chat, *(call or (incoming.id, ""))))
        payload = reply_payload(
            sid=OPERATOR,
            turn="",
            attempt=0,
            index=0,
            channel_id=incoming.chat,
            thread_id=incoming.thread,
            text=text,
            reply_to_id=incoming.id if incoming.is_group or call else None,
            call=call_name(None, name),
        )
        await door.fleet.calls.messages(
            None, name, [(door.provider, door.account, payload)], note=None
        )
