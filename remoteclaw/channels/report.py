"""A report of a platform about what a person did, and the steps that all kinds of reports share."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from remoteclaw import commands
from remoteclaw.channels.access import Access
from remoteclaw.channels.files import NOT_KEPT, QUOTED_WITHOUT, ReceivedFiles, receive_files
from remoteclaw.channels.rate import MAX_PER_MINUTE, MAX_THREADS_PER_HOUR, RateLimiter
from remoteclaw.channels.signs import StateSigns
from remoteclaw.config.chats import agent_of
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import CallRefused, RedisRefused, RemoteClawError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.keys import Lane
from remoteclaw.fleet.turns.edits import WithoutEntry, content_digest
from remoteclaw.fleet.turns.inbound import Accepted, Known
from remoteclaw.host.logs import frames_of
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import (
    EVERYONE,
    MAX_ATTACHMENTS,
    Attachment,
    ChannelMessage,
    ChatPlace,
    Reaction,
    SessionKey,
    file_name,
)
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import ContextAdapter, FileSource, Incoming, Place

#: The part of a transcript that is repeated to its speaker, in characters: enough to spot an error.
MAX_ECHO_CHARS = 500
ECHO = "You said: {words}"
#: For the agent: the quoted message can't be shown.
QUOTED_UNKNOWN = "(This message is not known here: it is too old, or did not pass through here.)"
TOO_MANY = (
    f"You have written more than {MAX_PER_MINUTE} messages in a minute. This one was not read, and "
    "no other will be until the minute is over. Then send it again."
)
TOO_MANY_THREADS = (
    f"You have begun {MAX_THREADS_PER_HOUR} conversations in threads within an hour. This message "
    "was not read: go on in one of those threads, or send it again when the hour is over."
)
#: The earlier messages of a thread that a new session is told: how many, how long they are together
#: in characters, and how long they may take to read, in seconds. The message waits for them.
MAX_CONTEXT_MESSAGES, MAX_CONTEXT_CHARS, CONTEXT_S = 30, 4000, 3.0
#: The length of each of them, in characters: as in a chat's history.
MAX_KEPT_CHARS = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundContext:
    """The account that a message arrives on, and what handling the message needs."""

    fleet: Fleet
    home: Home
    config: Callable[[], Config]
    provider: str
    account: str
    rate: RateLimiter
    signs: StateSigns | None = None
    """Shows the states of messages; None where the platform can't."""
    agent: str | None = None
    """The agent of the conversation; None for the account's."""


@dataclass(slots=True)
class Awaited:
    """A message whose sender waits for its outcome; what the chat is told at once is added."""

    lane: Lane
    deliver: Literal["channel", "caller"] = "channel"
    """`caller`: the sender gets everything here, and nothing is sent to the chat."""
    accepted: Accepted | None = None
    """What the message became, if it is on a stream."""
    answer: str | None = None
    """The answer to a command; empty if the chat shows its effect."""
    notices: list[str] = field(default_factory=list)
    """Why the message, or a file of it, is refused."""


@dataclass(frozen=True, slots=True)
class Report:
    """A report of a platform. Each step is idempotent, so handling it again is harmless."""

    context: InboundContext
    source: FileSource
    """Fetches the message's files."""
    incoming: Incoming
    awaited: Awaited | None = None

    @property
    def name(self) -> str:
        """A name of the message that is unique in the chat."""
        return self.name_of(self.incoming.id)

    def name_of(self, id_: str) -> str:
        """Return the name of a message of the chat.

        Message ids restart when a chat gets a new id, so the name includes the new chat id.
        """
        return " ".join(filter(None, (self.incoming.current_chat, id_)))

    def known(self, incoming: Incoming) -> list[Known]:
        """Return the identity of a message of the chat, or of each of its parts."""
        parts = incoming.parts or (incoming,)
        return [Known(self.name_of(part.id), digest_of(part)) for part in parts]

    async def note_handled(self, session: SessionKey, became: WithoutEntry) -> None:
        """Note that the message was handled and is on no stream, unless it is."""
        await self.context.fleet.edits.note_handled(session, self.known(self.incoming), became)

    def session_of(self, access: Access, incoming: Incoming) -> SessionKey:
        """Return the session of a message of the account."""
        assert access.settings is not None, "the access check requires the account's settings"
        context, chat = self.context, self.incoming.chat
        place = ChatPlace(context.provider, context.account, chat, incoming.thread)
        agent = context.agent or agent_of(
            access.config, place, access.facts, is_group=incoming.is_group
        )
        by_kind = "chat" if incoming.is_group else "person"
        is_shared = incoming.is_group and (access.settings.sessions or by_kind) == "chat"
        return SessionKey(
            agent=agent,
            provider=context.provider,
            account=context.account,
            channel_id=chat,
            user=EVERYONE if is_shared else incoming.sender,
            thread=None if access.threads(incoming) == "off" else incoming.thread,
        )

    async def is_too_fast(self) -> bool:
        """Count the message; if its sender writes too much, tell the sender and return True."""
        incoming = self.incoming
        if (minute := self.context.rate.count(incoming)) is None:
            return False
        told = self._outside
        once = (incoming.sender, f"{told.incoming.thread} {minute}")
        await told.reply(TOO_MANY, once=once)
        return True

    async def begins_thread(self, session: SessionKey) -> bool:
        """Whether the message begins the session of a thread."""
        return session.thread is not None and not await self.context.fleet.sessions.exists(session)

    async def begins_too_many_threads(self) -> bool:
        """Count the thread that the message begins; if its sender has begun too many, tell them.

        Return whether the sender has.
        """
        incoming = self.incoming
        if not incoming.is_group or (hour := self.context.rate.count_thread(incoming)) is None:
            return False
        if incoming.is_for_us:
            once = (incoming.sender, f"threads {hour}")
            await self._outside.reply(TOO_MANY_THREADS, once=once)
        return True

    async def thread_context(self) -> str:
        """Return the earlier messages of the thread for the agent, one in a line, oldest first.

        Empty if the message has opened the thread, or if the platform does not return them.
        """
        source, incoming = self.source, self.incoming
        if not isinstance(source, ContextAdapter) or self._opens_thread:
            return ""
        place, before = Place(incoming.chat, incoming.thread), incoming.replaces or incoming.id
        try:
            async with asyncio.timeout(CONTEXT_S):
                earlier = await source.context(place, before, MAX_CONTEXT_MESSAGES)
        except Exception as error:  # noqa: BLE001 - also an adapter's bug must not cost the message
            why = error if isinstance(error, RemoteClawError) else frames_of(error)
            log.warning("the earlier messages of a thread can't be read: %s", why)
            return ""
        lines: list[str] = []
        room = MAX_CONTEXT_CHARS
        for message in reversed(earlier[-MAX_CONTEXT_MESSAGES:]):
            name = one_line(message.sender_name or "", max_chars=60)
            who = f"{name} ({message.sender})" if name else message.sender
            line = f"{who}: {one_line(message.text, max_chars=MAX_KEPT_CHARS)}"
            if (room := room - len(line) - 1) < 0:
                break
            lines.insert(0, line)
        return "\n".join(lines)

    @property
    def _opens_thread(self) -> bool:
        return self.incoming.thread in (self.incoming.replaces, self.incoming.id)

    @property
    def _outside(self) -> Self:
        """The report outside of the thread that it would open: a refusal must not open it."""
        thread = None if self._opens_thread else self.incoming.thread
        return replace(self, incoming=replace(self.incoming, thread=thread))

    async def record(self, session: SessionKey | None, config: Config) -> Sequence[Reaction]:
        """Add the message to the chat's history; return reactions not yet reported to the agent.

        `session` is None if no agent gets the message.
        """
        is_for_agent = self.incoming.is_message and commands.parse(self.incoming.text) is None
        files = [file_name(file.name) for file in self.incoming.files[:MAX_ATTACHMENTS]]
        return await self.context.fleet.history.add_message(
            self.message("-"),
            self.incoming.text,
            files,
            more_ids=[part.id for part in self.incoming.parts[1:]],
            once=self.name,
            sid=session.sid if session and is_for_agent else None,
            keep_ms=config.record.history_ms,
        )

    async def receive(self, session: SessionKey, access: Access) -> ReceivedFiles:
        """Receive the message's files, and repeat to the speaker what was heard in recordings."""
        received = await receive_files(
            self.incoming,
            self.source,
            self.context.fleet.blobs,
            session,
            access.config.channel_of(session),
            is_owner=access.is_owner(self.incoming),
        )
        if received.transcripts:
            words = one_line(" ".join(received.transcripts), max_chars=MAX_ECHO_CHARS)
            echo = ECHO.format(words=words)
            await self.reply(echo, once=(self.name, "said"), is_silent=True)
        return received

    async def quoted(self, notes: Sequence[str]) -> str:
        """Return the text of the quoted message for the agent, after `notes` about its files.

        If the platform gives neither text nor files of it, they come from the chat's history.
        """
        context, incoming, text = self.context, self.incoming, self.incoming.quoted
        if incoming.reply_to and not text and not incoming.quoted_files:
            place = context.provider, context.account, incoming.chat
            known = await context.fleet.history.find(*place, incoming.reply_to)
            if known is None:
                return QUOTED_UNKNOWN
            text = known["text"]
            notes = [QUOTED_WITHOUT.format(name=name, why=NOT_KEPT) for name in known["files"]]
        return "\n".join(filter(None, (*notes, text)))

    def message(
        self,
        text: str,
        files: Sequence[Attachment] = (),
        reactions: Sequence[Reaction] = (),
        *,
        quoted: str = "",
        context: str = "",
    ) -> ChannelMessage:
        """Return the message for the agent. Raises `MessageRefused` if a field is invalid."""
        incoming = self.incoming
        return ChannelMessage.checked(
            id=incoming.id,
            text=text,
            from_=incoming.sender,
            channel_id=incoming.chat,
            provider=self.context.provider,
            account=self.context.account,
            timestamp=incoming.at_ms,
            thread_id=incoming.thread,
            reply_to_id=incoming.reply_to,
            user_name=incoming.sender_name,
            quoted=quoted or None,
            thread_context=context or None,
            replaces=incoming.replaces,
            attachments=tuple(files),
            reactions=tuple(reactions),
            chat_kind=incoming.chat_kind,
            is_addressed=incoming.is_for_us,
            is_forwarded=incoming.is_forwarded or None,
        )

    async def reply(
        self,
        text: str,
        *,
        once: tuple[str, str] | None = None,
        is_silent: bool = False,
        is_private: bool = False,
    ) -> None:
        """Send `text` to the chat, once per message, or once for each `once`.

        With `once`, the text quotes the message also in a direct chat. In a group, a text that
        `is_private` is shown to the sender alone, where the platform can do that.
        """
        context, incoming = self.context, self.incoming
        if self.awaited and not is_silent:
            self.awaited.notices.append(text)
        if self.awaited and self.awaited.deliver == "caller":
            return
        account = context.provider, context.account
        name = "\0".join((*account, incoming.chat, *(once or (self.name, ""))))
        place = ChatPlace(*account, incoming.chat, incoming.thread)
        answered = (incoming.replaces or incoming.id) if incoming.is_group or once else None
        if incoming.choice or incoming.reaction is not None:
            answered = incoming.reply_to  # the report itself is no message
        answered = answered if incoming.deletes is None else None
        is_private &= incoming.is_group and profile_of(context.provider).private_replies
        try:
            await context.fleet.calls.send_notice(
                place,
                text,
                name=name,
                reply_to_id=answered,
                is_silent=is_silent,
                asked_by=incoming.sender,
                to_person=incoming.sender if is_private else None,
            )
        except CallRefused as refusal:  # no turn is involved, so only Redis can have refused it
            raise RedisRefused(str(refusal)) from None


def digest_of(incoming: Incoming) -> str:
    """Return the digest of a message's content, which only an edit by its sender changes."""
    # The text of a message has no mention of the account, which an edit may add.
    marks = [file.lasting_id or file.id for file in incoming.files]
    return content_digest(incoming.text, [*marks, "for us" if incoming.is_for_us else "overheard"])
