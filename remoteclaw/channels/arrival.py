"""The arrival of one message: who may write is let in, a command is answered, the rest appended."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remoteclaw import commands
from remoteclaw.channels.access import Access, Verdict
from remoteclaw.channels.files import files_of
from remoteclaw.channels.rate import MOST, Rate
from remoteclaw.channels.transcribe import is_recording
from remoteclaw.commands.answers import GONE, NOT_YOURS, AnswerOutcome, answer_request, chosen
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import (
    CallRefused,
    MessageRefused,
    RedisRefused,
    RedisUnavailable,
    RemoteClawError,
)
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.pairings import PairingRequest
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
    person,
)
from remoteclaw.protocols import Choice, FileSource, Incoming, PressedAdapter

#: How long a person may take to be told what came of a button, in seconds.
PRESSED_S = 5.0
#: The part of a transcript that the person is shown, in characters: enough to see what went wrong.
MAX_SAID = 500

STRANGER = (
    "I don't know you yet, and your message was not read. Your code is `{code}`, for an hour. "
    "Whoever runs me lets you in: with `/pair {code}` in a chat with me, or at the computer with "
    "`remoteclaw pairing approve {code}`."
)
ELSEWHERE = "That request is another chat's: answer it there."
NEW_GROUP = "This group was not let in: `/pair` here has everybody in it write to me."
TOO_MANY = (
    f"You have written more than {MOST} messages in a minute: this one was not read, nor is what "
    "else you write in this minute. Send it again after that."
)
NOT_HEARD = (
    "I can't listen to recordings here, so this one was left out: write, or say under the file "
    "what to do with it."
)
HOW_TO_HEAR = "`[channels.{channel}] transcribe` names a command that writes them down."
SAID = "You said: {words}"

FAILED = (
    "Your message was not taken: something failed here, and the log says where. It is not tried "
    "again."
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

        Raises `RedisUnavailable` and `RedisRefused`; and `MessageRefused` if it has no ids to go
        by. Of anything else that is raised, its sender is told that it was not taken.
        """
        door, incoming = self.door, self.incoming
        self._message("-")  # else its ids are none, and nothing goes by them
        access = Access(door.config(), door.fleet, door.provider, door.account)
        first = await access.first_id(incoming)
        if first != incoming.chat:
            renamed = replace(incoming, chat=first, now_called=incoming.chat)
            await replace(self, incoming=renamed)._take_in(access)
        else:
            await self._take_in(access)

    async def _take_in(self, access: Access) -> None:
        incoming = self.incoming
        if incoming.moved_to is not None:
            await access.move(incoming)
            return
        match await access.verdict(incoming):
            case verdict if incoming.choice is not None:
                is_known = verdict is Verdict.ADMITTED
                await self._tell_chosen(await self._chosen(access, incoming.choice, is_known))
            case verdict if incoming.reaction is not None:
                if verdict is Verdict.ADMITTED:
                    await self._react(access.config)
            case Verdict.ADMITTED:
                try:
                    await self._admit(access)
                except (RedisUnavailable, RedisRefused):
                    raise
                except Exception:
                    await self._say(FAILED, call=(incoming.id, "failed"))
                    raise
            case Verdict.STRANGER:
                await self._introduce()
            case Verdict.NEW_GROUP:
                await self._admit(access, only_pairing=True)

    @property
    def _name(self) -> str:
        """The message's name in its chat, whose messages get new numbers with its id."""
        return " ".join(filter(None, (self.incoming.now_called, self.incoming.id)))

    async def _react(self, config: Config) -> None:
        """Note a reaction to a message of ours: it is told with the next message to its session."""
        fleet, about, emoji = self.door.fleet, self._message("-"), self.incoming.reaction
        if emoji is None or about.reply_to_id is None:
            return
        place = about.provider, about.account, about.channel_id
        if of := await fleet.replies.said(*place, about.reply_to_id):
            keep_ms = config.record.history_ms
            await fleet.history.add_reaction(
                about, emoji, once=self._name, sid=of.sid, keep_ms=keep_ms
            )

    async def _chosen(self, access: Access, choice: Choice, is_known: bool) -> AnswerOutcome:
        """Answer a request by what was chosen on its card, and return what is told of that.

        Who is not let in may do so only where the configuration has others asked.
        """
        door, incoming = self.door, self.incoming
        request = await door.fleet.asks.find(choice.request)
        if request is None:
            return AnswerOutcome(GONE)
        meant = chosen(request, choice.verdict, words=choice.words)
        if meant is None:
            return AnswerOutcome(GONE)
        verdict, words = meant
        at = request.place
        is_there = (at.provider, at.account, at.chat) == (
            *(door.provider, door.account, incoming.chat),
        )
        if not is_known and not (is_there and request.chat):
            return AnswerOutcome(NOT_YOURS)
        if not is_there:
            return AnswerOutcome(ELSEWHERE)
        return await answer_request(
            door.fleet,
            door.home,
            access.config,
            request,
            verdict,
            by=person(door.provider, incoming.sender),
            name=one_line(incoming.sender_name or incoming.sender, most=60),
            is_owner=access.is_owner(incoming),
            words=words,
        )

    async def _tell_chosen(self, told: AnswerOutcome) -> None:
        """Answer the press of a button; when it is too late, the request's message says it."""
        if not isinstance(self.source, PressedAdapter):
            if not told.is_shown:
                await self._say(told.text)
            return
        try:
            async with asyncio.timeout(PRESSED_S):
                await self.source.tell_pressed(self.incoming, told.text, is_refused=not told.counts)
        except (RemoteClawError, TimeoutError) as error:
            log.info("who has pressed a button is not told what came of it: %s", error)

    async def _introduce(self) -> None:
        incoming = self.incoming
        request = PairingRequest(
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
        reactions = await self._noted(session, config)
        taken = await self._taken(access, session)
        if taken.answer and taken.answer.text:
            await self._say(taken.answer.text)
        if taken.text or incoming.files:
            await self._append(session, taken.text, access, reactions, is_command=taken.is_command)

    async def _taken(self, access: Access, session: SessionKey) -> commands.Taken:
        """Do what it says if it is a command: what people say to each other is none."""
        incoming = self.incoming
        if not incoming.is_for_us:
            return commands.Taken(None, incoming.text, False)
        return await commands.take(
            incoming.text,
            lambda rest: self._asked(access, session, rest),
            has_files=bool(incoming.files),
        )

    async def _noted(self, session: SessionKey, config: Config) -> Sequence[Reaction]:
        """Note that it has passed; return the reactions that its agent was not told of."""
        is_for_agent = commands.parse(self.incoming.text) is None
        files = [file_name(file.name) for file in self.incoming.files[:MAX_ATTACHMENTS]]
        return await self.door.fleet.history.add_message(
            self._message("-"),
            self.incoming.text,
            files,
            once=self._name,
            sid=session.sid if is_for_agent else None,
            keep_ms=config.record.history_ms,
        )

    def _asked(self, access: Access, session: SessionKey, rest: str) -> commands.Asked:
        return commands.Asked(
            id=self.incoming.id,
            rest=rest,
            session=session,
            sender=self.incoming.sender,
            sender_name=one_line(self.incoming.sender_name or "", most=60),
            is_owner=access.is_owner(self.incoming),
            reply_to=self.incoming.reply_to or "",
            is_group=self.incoming.is_group,
            fleet=self.door.fleet,
            config=access.config,
            home=self.door.home,
        )

    async def _append(
        self,
        session: SessionKey,
        text: str,
        access: Access,
        reactions: Sequence[Reaction],
        *,
        is_command: bool | None,
    ) -> None:
        is_owner, sent = access.is_owner(self.incoming), self.incoming.files
        command = access.config.channel(session.provider).transcribe
        if not command and not text.strip() and sent and all(map(is_recording, sent)):
            how = HOW_TO_HEAR.format(channel=session.provider) if is_owner else ""
            if self.incoming.is_for_us:
                await self._say(f"{NOT_HEARD} {how}".strip())
            return
        came = await files_of(
            self.incoming,
            self.source,
            self.door.fleet.blobs,
            session,
            access.config.channel(session.provider),
            is_owner=is_owner,
        )
        if came.said:
            words = one_line(" ".join(came.said), most=MAX_SAID)
            told = SAID.format(words=words)
            await self._say(told, call=(self._name, "said"), is_silent=True)
        if came.heard and not text.strip():
            is_command = False  # what is spoken is none
        text = "\n\n".join(filter(None, (text, *came.heard)))
        if text.strip() or came.files:
            try:
                await self.door.fleet.inbound.append(
                    self._message(text, came.files, reactions),
                    agent=session.agent,
                    is_command=is_command,
                    is_shared=session.is_shared,
                    once=self._name,
                )
            except MessageRefused as refusal:
                came.problems.append(str(refusal))
        if came.problems:
            await self._say("\n".join(came.problems), call=(self._name, "problems"))

    def _message(
        self,
        text: str,
        files: Sequence[Attachment] = (),
        reactions: Sequence[Reaction] = (),
    ) -> ChannelMessage:
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
            reactions=tuple(reactions),
            chat_kind=incoming.chat_kind,
            is_addressed=incoming.is_for_us,
        )

    async def _say(
        self, text: str, *, call: tuple[str, str] | None = None, is_silent: bool = False
    ) -> None:
        """Say something in the chat, once for the message that it answers."""
        door, incoming = self.door, self.incoming
        name = "\0".join((door.provider, door.account, incoming.chat, *(call or (self._name, ""))))
        place = ChatPlace(door.provider, door.account, incoming.chat, incoming.thread)
        answered = incoming.id if incoming.is_group or call else None
        try:
            await door.fleet.calls.say(
                place, text, name=name, reply_to_id=answered, is_silent=is_silent
            )
        except CallRefused as refusal:  # by Redis: there is no turn that could be over
            raise RedisRefused(str(refusal)) from None
