"""The arrival of a message: checks access, runs commands, and queues the rest for the agent."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remoteclaw import commands
from remoteclaw.channels.access import Access, Verdict
from remoteclaw.channels.files import receive_files
from remoteclaw.channels.rate import MAX_PER_MINUTE, RateLimiter
from remoteclaw.channels.transcribe import is_recording
from remoteclaw.commands.answers import (
    GONE,
    NOT_YOURS,
    AnswerOutcome,
    answer_request,
    verdict_of_keys,
)
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

#: Time limit for confirming a button press to the person, in seconds.
PRESS_REPORT_S = 5.0
#: The part of a transcript that is repeated to its speaker, in characters: enough to spot an error.
MAX_ECHO_CHARS = 500

STRANGER = (
    "I don't know you yet, so your message was not read. Your code is `{code}`; it is valid for an "
    "hour. Whoever runs me can give you access: with `/pair {code}` in a chat with me, or at the "
    "computer with `remoteclaw pairing approve {code}`."
)
ELSEWHERE = "That request belongs to another chat: answer it there."
NEW_GROUP = "This group has no access yet: `/pair` here lets everybody in it write to me."
TOO_MANY = (
    f"You have written more than {MAX_PER_MINUTE} messages in a minute. This one was not read, and "
    "no other will be until the minute is over. Then send it again."
)
NO_TRANSCRIPTION = (
    "I can't listen to recordings here, so this one was ignored: send text, or add a caption that "
    "says what to do with the file."
)
HOW_TO_TRANSCRIBE = "`[channels.{channel}] transcribe` names a command that transcribes them."
ECHO = "You said: {words}"

FAILED = (
    "Your message was not taken: something failed here, and the log says where. It will not be "
    "tried again."
)

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


@dataclass(frozen=True, slots=True)
class Arrival:
    """One incoming message. Each step is idempotent, so handling it again is harmless."""

    context: InboundContext
    source: FileSource
    """Fetches the message's files."""
    incoming: Incoming

    async def handle(self) -> None:
        """Handle the message.

        Raises `RedisUnavailable` and `RedisRefused`, and `MessageRefused` if one of the message's
        ids is invalid. After any other error, the sender is notified before it is raised.
        """
        context, incoming = self.context, self.incoming
        self._message("-")  # raises for invalid ids, before anything is stored under them
        access = Access(context.config(), context.fleet, context.provider, context.account)
        first_id = await access.first_id(incoming)
        if first_id != incoming.chat:
            renamed = replace(incoming, chat=first_id, current_chat=incoming.chat)
            await replace(self, incoming=renamed)._handle(access)
        else:
            await self._handle(access)

    async def _handle(self, access: Access) -> None:
        incoming = self.incoming
        if incoming.moved_to is not None:
            await access.move(incoming)
            return
        match await access.verdict(incoming):
            case verdict if incoming.choice is not None:
                is_admitted = verdict is Verdict.ADMITTED
                outcome = await self._answer_request(access, incoming.choice, is_admitted)
                await self._report_press(outcome)
            case verdict if incoming.reaction is not None:
                if verdict is Verdict.ADMITTED:
                    await self._record_reaction(access.config)
            case Verdict.ADMITTED:
                try:
                    await self._admit(access)
                except (RedisUnavailable, RedisRefused):
                    raise
                except Exception:
                    await self._reply(FAILED, call=(incoming.id, "failed"))
                    raise
            case Verdict.STRANGER:
                await self._offer_pairing()
            case Verdict.NEW_GROUP:
                await self._admit(access, only_pairing=True)

    @property
    def _name(self) -> str:
        """A name of the message that is unique in the chat.

        Message ids restart when a chat gets a new id, so the name includes the new chat id.
        """
        return " ".join(filter(None, (self.incoming.current_chat, self.incoming.id)))

    async def _record_reaction(self, config: Config) -> None:
        """Record a reaction to an agent's message; the session's next message reports it."""
        fleet, message, emoji = self.context.fleet, self._message("-"), self.incoming.reaction
        if emoji is None or message.reply_to_id is None:
            return
        place = message.provider, message.account, message.channel_id
        if origin := await fleet.replies.message_origin(*place, message.reply_to_id):
            keep_ms = config.record.history_ms
            await fleet.history.add_reaction(
                message, emoji, once=self._name, sid=origin.sid, keep_ms=keep_ms
            )

    async def _answer_request(
        self, access: Access, choice: Choice, is_admitted: bool
    ) -> AnswerOutcome:
        """Answer a request with the choice that was made on its card.

        A sender without access may answer only requests that `[approvals] chat` sent to this chat.
        """
        context, incoming = self.context, self.incoming
        request = await context.fleet.asks.find(choice.request)
        if request is None:
            return AnswerOutcome(GONE)
        answer = verdict_of_keys(request, choice.verdict, words=choice.words)
        if answer is None:
            return AnswerOutcome(GONE)
        verdict, words = answer
        place = request.place
        here = context.provider, context.account, incoming.chat
        is_here = (place.provider, place.account, place.chat) == here
        if not is_admitted and not (is_here and request.chat):
            return AnswerOutcome(NOT_YOURS)
        if not is_here:
            return AnswerOutcome(ELSEWHERE)
        return await answer_request(
            context.fleet,
            context.home,
            access.config,
            request,
            verdict,
            by=person(context.provider, incoming.sender),
            name=one_line(incoming.sender_name or incoming.sender, max_chars=60),
            is_owner=access.is_owner(incoming),
            words=words,
        )

    async def _report_press(self, outcome: AnswerOutcome) -> None:
        """Report the outcome to the person who chose; the request's own message also shows it."""
        if not isinstance(self.source, PressedAdapter):
            if not outcome.is_shown:
                await self._reply(outcome.text)
            return
        try:
            async with asyncio.timeout(PRESS_REPORT_S):
                await self.source.tell_pressed(
                    self.incoming, outcome.text, is_refused=not outcome.counts
                )
        except (RemoteClawError, TimeoutError) as error:
            log.info("the outcome of a button press was not reported: %s", error)

    async def _offer_pairing(self) -> None:
        incoming = self.incoming
        request = PairingRequest(
            provider=self.context.provider,
            account=self.context.account,
            id=incoming.sender,
            name=one_line(incoming.sender_name or "", max_chars=60),
            chat=incoming.chat,
            message=incoming.id,
        )
        if code := await self.context.fleet.pairings.ask(request):
            log.info("an unknown sender, %s, was given a pairing code", incoming.sender)
            await self._reply(STRANGER.format(code=code))

    async def _admit(self, access: Access, *, only_pairing: bool = False) -> None:
        """Run the message if it is a command, else queue it for the agent.

        With `only_pairing`, any message other than `/pair` is refused.
        """
        incoming, config = self.incoming, access.config
        assert access.settings is not None, "the access check requires the account's settings"
        if not incoming.text.strip() and not incoming.files:
            return
        if (minute := self.context.rate.count(incoming)) is not None:
            await self._reply(TOO_MANY, call=(incoming.sender, f"{incoming.thread} {minute}"))
            return
        agent, _ = config.agent(access.settings.agent)
        by_kind = "chat" if incoming.is_group else "person"
        is_shared = incoming.is_group and (access.settings.sessions or by_kind) == "chat"
        session = SessionKey(
            agent=agent,
            provider=self.context.provider,
            account=self.context.account,
            channel_id=incoming.chat,
            user=EVERYONE if is_shared else incoming.sender,
            thread=incoming.thread,
        )
        if only_pairing:
            command = commands.parse(incoming.text)
            if command is None or command.name != "pair":
                await self._reply(NEW_GROUP)
                return
        reactions = await self._record_message(session, config)
        outcome = await self._run_command(access, session)
        if outcome.reply and outcome.reply.text:
            await self._reply(outcome.reply.text)
        if outcome.text or incoming.files:
            await self._append(
                session, outcome.text, access, reactions, is_command=outcome.is_command
            )

    async def _run_command(self, access: Access, session: SessionKey) -> commands.MessageOutcome:
        """Run the message if it is a command. Group members' messages to each other never are."""
        incoming = self.incoming
        if not incoming.is_for_us:
            return commands.MessageOutcome(None, incoming.text, False)
        return await commands.handle_message(
            incoming.text,
            lambda arguments: self._command_call(access, session, arguments),
            has_files=bool(incoming.files),
        )

    async def _record_message(self, session: SessionKey, config: Config) -> Sequence[Reaction]:
        """Add the message to the chat's history; return reactions not yet reported to the agent."""
        is_for_agent = commands.parse(self.incoming.text) is None
        files = [file_name(file.name) for file in self.incoming.files[:MAX_ATTACHMENTS]]
        return await self.context.fleet.history.add_message(
            self._message("-"),
            self.incoming.text,
            files,
            once=self._name,
            sid=session.sid if is_for_agent else None,
            keep_ms=config.record.history_ms,
        )

    def _command_call(
        self, access: Access, session: SessionKey, arguments: str
    ) -> commands.CommandCall:
        return commands.CommandCall(
            id=self.incoming.id,
            arguments=arguments,
            session=session,
            sender=self.incoming.sender,
            sender_name=one_line(self.incoming.sender_name or "", max_chars=60),
            is_owner=access.is_owner(self.incoming),
            reply_to=self.incoming.reply_to or "",
            is_group=self.incoming.is_group,
            fleet=self.context.fleet,
            config=access.config,
            home=self.context.home,
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
        is_owner, files = access.is_owner(self.incoming), self.incoming.files
        command = access.config.channel(session.provider).transcribe
        if not command and not text.strip() and files and all(map(is_recording, files)):
            how = HOW_TO_TRANSCRIBE.format(channel=session.provider) if is_owner else ""
            if self.incoming.is_for_us:
                await self._reply(f"{NO_TRANSCRIPTION} {how}".strip())
            return
        received = await receive_files(
            self.incoming,
            self.source,
            self.context.fleet.blobs,
            session,
            access.config.channel(session.provider),
            is_owner=is_owner,
        )
        if received.transcripts:
            words = one_line(" ".join(received.transcripts), max_chars=MAX_ECHO_CHARS)
            echo = ECHO.format(words=words)
            await self._reply(echo, call=(self._name, "said"), is_silent=True)
        if received.prompt_texts and not text.strip():
            is_command = False  # a transcript never runs a command
        text = "\n\n".join(filter(None, (text, *received.prompt_texts)))
        if text.strip() or received.attachments:
            try:
                await self.context.fleet.inbound.append(
                    self._message(text, received.attachments, reactions),
                    agent=session.agent,
                    is_command=is_command,
                    is_shared=session.is_shared,
                    once=self._name,
                )
            except MessageRefused as refusal:
                received.problems.append(str(refusal))
        if received.problems:
            await self._reply("\n".join(received.problems), call=(self._name, "problems"))

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
            provider=self.context.provider,
            account=self.context.account,
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

    async def _reply(
        self, text: str, *, call: tuple[str, str] | None = None, is_silent: bool = False
    ) -> None:
        """Send `text` to the chat, once per message, or once per `call` if that is given.

        With `call`, the text quotes the message also in a direct chat.
        """
        context, incoming = self.context, self.incoming
        account = context.provider, context.account
        name = "\0".join((*account, incoming.chat, *(call or (self._name, ""))))
        place = ChatPlace(*account, incoming.chat, incoming.thread)
        answered = incoming.id if incoming.is_group or call else None
        try:
            await context.fleet.calls.send_notice(
                place, text, name=name, reply_to_id=answered, is_silent=is_silent
            )
        except CallRefused as refusal:  # no turn is involved, so only Redis can have refused it
            raise RedisRefused(str(refusal)) from None
