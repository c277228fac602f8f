"""The arrival of a message: checks access, runs commands, and queues the rest for the agent."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remoteclaw import commands
from remoteclaw.channels.access import Access, Verdict
from remoteclaw.channels.changes import Change
from remoteclaw.channels.membership import Membership
from remoteclaw.channels.report import Report
from remoteclaw.channels.responses import Response
from remoteclaw.channels.transcribe import is_recording
from remoteclaw.commands.answers import NUMBERS
from remoteclaw.errors import MessageRefused, RedisRefused, RedisUnavailable
from remoteclaw.fleet.pairings import PairingRequest
from remoteclaw.fleet.replies.signs import Sign
from remoteclaw.fleet.turns.inbound import Accepted
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import ChatPlace, Reaction, SessionKey
from remoteclaw.protocols import Incoming, Place

#: Time limit for running a message's command, or receiving its files and queueing it, in seconds.
#: The conversation's later messages wait for it. Each step has a shorter limit of its own.
ADMIT_S = 900.0

STRANGER = (
    "I don't know you yet, so your message was not read. Your code is `{code}`; it is valid for an "
    "hour. Whoever runs me can give you access: with `/pair {code}` in a chat with me, or at the "
    "computer with `remoteclaw pairing approve {code}`."
)
NEW_GROUP = "This group has no access yet: `/pair` here lets everybody in it write to me."
NO_TRANSCRIPTION = (
    "I can't listen to recordings here, so this one was ignored: send text, or add a caption that "
    "says what to do with the file."
)
HOW_TO_TRANSCRIBE = "`[channels.{channel}] transcribe` names a command that transcribes them."
UNREAD = "Your message was not read: {problem}. Send text, or a file."
ANONYMOUS = (
    "This group has no access yet. I can't see who you are, because you write anonymously: if you "
    "own me, `/pair` under your own name lets everybody in this group write to me."
)
AGENT_GONE = (
    "This group belongs to the agent `{agent}`, which is not configured any more, so your message "
    "was not read: with `/pair as NAME`, an owner gives the group to another one."
)
FAILED = (
    "Your message was not taken: something failed here, and the log says where. It will not be "
    "tried again."
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Overtaken:
    """An earlier message that is still being handled, for example because of a slow file."""

    incoming: Incoming
    cancel: Callable[[], object]
    """Ends its handling."""


@dataclass(frozen=True, slots=True)
class Arrival(Report):
    """A report that arrives: it is handled by its kind and by the access of its sender."""

    overtaken: Sequence[Overtaken] = ()
    """For a `/stop`: the earlier messages of the place that it has overtaken."""

    async def handle(self) -> None:
        """Handle the message.

        Raises `RedisUnavailable` and `RedisRefused`, and `MessageRefused` if one of the message's
        ids is invalid. After any other error, the sender is notified before it is raised.
        """
        self.message("-")  # raises for invalid ids, before anything is stored under them
        arrival, access = await self._under_first_id()
        verdict = await arrival._verdict(access)
        addressed = replace(arrival, incoming=arrival._addressed(access, verdict))
        await addressed._handle(access, verdict)

    async def place(self) -> Place:
        """Return the chat, under its first id, and thread to which the report belongs."""
        arrival, _ = await self._under_first_id()
        return Place(arrival.incoming.chat, arrival.incoming.thread)

    async def keeps_place(self) -> bool:
        """Whether the report has an effect on its conversation, so that its order counts.

        An earlier message of a thread may still begin the session that makes this one count.
        """
        arrival, access = await self._under_first_id()
        verdict, incoming = await arrival._verdict(access), arrival.incoming
        may_change = incoming.replaces is not None or incoming.deletes is not None
        may_count = may_change or access.may_follow(incoming)
        return verdict is Verdict.ADMITTED or (verdict is Verdict.NOT_FOR_US and may_count)

    async def record_late(self) -> bool:
        """Record a message that is too old to be answered in the chat's history.

        Return whether it would have been answered; an edit is not. Raises as `handle()` does.
        """
        self.message("-")  # raises for invalid ids, before anything is stored under them
        arrival, access = await self._under_first_id()
        is_admitted = await arrival._verdict(access) is Verdict.ADMITTED
        if not is_admitted or not arrival.incoming.is_message:
            return False
        await arrival.record(None, access.config)
        await arrival.note_handled(arrival.session_of(access, arrival.incoming), "-")
        return True

    async def give_up(self, why: str) -> None:
        """Mark the message as handled, unless it is, and tell a sender who may write `why`."""
        arrival, access = await self._under_first_id()
        is_admitted = await arrival._verdict(access) is Verdict.ADMITTED
        session = arrival.session_of(access, arrival.incoming)
        known = arrival.known(arrival.incoming)
        is_noted = any(await self.context.fleet.edits.note_handled(session, known, "-"))
        if is_noted and is_admitted:
            await arrival.reply(why, once=(arrival.name, "failed"))

    async def _under_first_id(self) -> tuple["Arrival", Access]:
        """Return the report under its chat's first id and in its thread, and the access rules."""
        context, incoming = self.context, self.incoming
        accounts, pairings = context.fleet.accounts, context.fleet.pairings
        access = Access(context.config(), accounts, pairings, context.provider, context.account)
        first_id = await access.first_id(incoming)
        place = ChatPlace(context.provider, context.account, first_id)
        facts = await context.fleet.chats.facts(place, is_group=incoming.is_group)
        known = facts.within if incoming.within is None else tuple(incoming.within)
        config = access.config.knowing(place, known)
        access = replace(access, config=config, facts=replace(facts, within=known))
        if known != facts.within and (facts.within or await access.has_access(first_id)):
            await context.fleet.chats.note_within(place, known)
        if first_id != incoming.chat:
            incoming = replace(incoming, chat=first_id, current_chat=incoming.chat)
        arrival = replace(self, incoming=incoming)
        opened_by = await arrival._opened_by(access)
        return replace(arrival, incoming=replace(incoming, thread=opened_by)), access

    async def _opened_by(self, access: Access) -> str | None:
        """Return the thread of the report: the platform's, or the one that its message opens.

        A change of a message that has opened a thread belongs there.
        """
        incoming = self.incoming
        if access.settings is None or incoming.thread is not None:
            return incoming.thread
        if await access.opens_thread(incoming) and not await self._may_answer():
            return incoming.id
        changed = incoming.replaces or incoming.deletes
        if changed is not None and incoming.is_group and access.threads(incoming) == "auto":
            session = self.session_of(access, replace(incoming, thread=changed))
            if (await self.context.fleet.edits.known(session, [self.name_of(changed)]))[0]:
                return changed
        return None

    async def _may_answer(self) -> bool:
        """Whether the message may answer a request that its chat shows outside of threads."""
        context, incoming = self.context, self.incoming
        if not incoming.is_for_us:
            return False
        place = ChatPlace(context.provider, context.account, incoming.chat)
        if incoming.reply_to:
            return await context.fleet.replies.card_at(place, incoming.reply_to) is not None
        if not NUMBERS.fullmatch(incoming.text.strip()):
            return False
        shown, _ = await context.fleet.requests.shown_in(place)
        return bool(shown)

    async def _verdict(self, access: Access) -> Verdict:
        """Return the access decision about the report, whose thread the agent may follow."""
        verdict, incoming = await access.verdict(self.incoming), self.incoming
        if verdict is not Verdict.NOT_FOR_US or not access.may_follow(incoming):
            return verdict
        # The message that begins the session may still be on its way.
        overtaken = [each.incoming for each in self.overtaken]
        is_begun = any(one.is_for_us and not one.is_bot for one in overtaken)
        session = self.session_of(access, incoming)
        if is_begun or await self.context.fleet.sessions.exists(session):
            return Verdict.ADMITTED
        return verdict

    def _addressed(self, access: Access, verdict: Verdict) -> Incoming:
        """Return the report. A command in a thread that the agent follows is for the agent."""
        incoming = self.incoming
        is_followed = verdict is Verdict.ADMITTED and access.may_follow(incoming)
        if is_followed and not incoming.is_for_us and commands.is_plain_command(incoming.text):
            return replace(incoming, is_for_us=True)
        return incoming

    async def _handle(self, access: Access, verdict: Verdict) -> None:
        incoming = self.incoming
        if incoming.moved_to is not None:
            await access.move(incoming)
            return
        if incoming.invitation is not None:
            membership = Membership(self.context, self.source, self.incoming)
            await membership.take(access, is_admitted=verdict is Verdict.ADMITTED)
            return
        match verdict:
            case _ if incoming.choice is not None:
                is_admitted = verdict is Verdict.ADMITTED
                await self._response.take_choice(access, incoming.choice, is_admitted=is_admitted)
            case _ if incoming.reaction is not None:
                is_admitted = verdict is Verdict.ADMITTED
                await self._response.take_reaction(access, is_admitted=is_admitted)
            case Verdict.ADMITTED if incoming.deletes is not None:
                await self._change.withdraw(access, incoming.deletes)
            case Verdict.ADMITTED:
                try:
                    async with asyncio.timeout(ADMIT_S):
                        await self._admit(access)
                except (RedisUnavailable, RedisRefused):
                    raise
                except Exception:
                    await self.reply(FAILED, once=(incoming.id, "failed"))
                    raise
            case Verdict.STRANGER if incoming.is_message:
                await self._offer_pairing()
            case Verdict.NEW_GROUP if incoming.is_message:
                await self._admit(access, only_pairing=True)
            case Verdict.IGNORED if incoming.is_message:
                await self._ignore()
            case Verdict.NOT_FOR_US if incoming.is_message:
                await self.note_handled(self.session_of(access, incoming), "~")
            case Verdict.NOT_FOR_US if incoming.replaces is not None:
                await self._change.take_back(access, incoming.replaces)

    async def _ignore(self) -> None:
        """Log why a message gets no answer. An anonymous sender may be an owner, and is told."""
        incoming, place = self.incoming, f"{self.context.provider}/{self.context.account}"
        if incoming.is_bot:
            log.info("a message in chat %s of %s is ignored: a bot wrote it", incoming.chat, place)
        elif incoming.is_group and incoming.is_for_us:
            log.info(
                "a message in group %s of %s is ignored: the group has no access, which an owner "
                "gives with /pair there",
                incoming.chat,
                place,
            )
            if incoming.is_anonymous:
                await self.reply(ANONYMOUS, once=(incoming.chat, "anonymous"))

    @property
    def _response(self) -> Response:
        return Response(self.context, self.source, self.incoming)

    @property
    def _change(self) -> Change:
        return Change(self.context, self.source, self.incoming)

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
            await self.reply(STRANGER.format(code=code))
        else:
            log.info("a message of an unknown sender, %s, is not read", incoming.sender)

    async def _admit(self, access: Access, *, only_pairing: bool = False) -> None:
        """Run the message if it is a command, else queue it for the agent.

        With `only_pairing`, any message other than `/pair` is refused.
        """
        incoming = self.incoming
        if incoming.problem:
            if not await self.is_too_fast():
                await self.reply(UNREAD.format(problem=incoming.problem))
            return
        if not incoming.text.strip() and not incoming.files:
            return
        if incoming.replaces is not None:
            await self._change.take_edit(access, incoming.replaces)
            return
        session = self.session_of(access, incoming)
        if (unhandled := await self._unhandled(session)) is None:
            return
        arrival = replace(self, incoming=unhandled)
        if not await arrival._take(access, session, only_pairing=only_pairing):
            await arrival.note_handled(session, "-")

    async def _unhandled(self, session: SessionKey) -> Incoming | None:
        """Return the message without the parts that were accepted before; None if it was handled.

        A part may have been accepted alone, or with fewer others, before a crash. A command that
        has run, or that a `/stop` has withdrawn, is handled.
        """
        parts = self.incoming.parts or (self.incoming,)
        names = [each.name for each in self.known(self.incoming)]
        known = await self.context.fleet.edits.known(session, names)
        if all(each is not None and each.became == "-" for each in known):
            return None
        new = [part for part, each in zip(parts, known, strict=True) if each is None]
        return Incoming.joined(new) if 0 < len(new) < len(parts) else self.incoming

    async def _take(self, access: Access, session: SessionKey, *, only_pairing: bool) -> bool:
        """Run or queue the message; return whether it is on a session's stream now."""
        incoming = self.incoming
        if await self.is_too_fast():
            return False
        command = commands.parse(incoming.text) if incoming.is_for_us else None
        if only_pairing and (command is None or command.name != "pair"):
            await self.reply(NEW_GROUP)
            return False
        begins_thread = await self.begins_thread(session)
        is_counted = command is None or command.known in (None, "new") or bool(self.incoming.files)
        if begins_thread and is_counted and await self.begins_too_many_threads():
            return False
        reactions = await self.record(session, access.config)
        outcome = await self._run_command(access, session)
        awaited = self.awaited
        if outcome.reply and awaited:
            awaited.answer = outcome.reply.text
        if outcome.reply and outcome.reply.text and not (awaited and awaited.deliver == "caller"):
            await replace(self, awaited=None).reply(outcome.reply.text, is_private=True)
        if not outcome.text and not incoming.files:
            return False
        if session.agent not in access.config.agents:  # a pairing may name an earlier one
            if incoming.is_for_us:
                await self.reply(AGENT_GONE.format(agent=session.agent))
            return False
        context = await self.thread_context() if begins_thread else ""
        return await self._append(
            session, outcome.text, access, reactions, is_command=outcome.is_command, context=context
        )

    async def _run_command(self, access: Access, session: SessionKey) -> commands.MessageOutcome:
        """Run the message if it is a command. Group members' messages to each other never are."""
        incoming = self.incoming
        if not incoming.is_for_us:
            return commands.MessageOutcome(None, incoming.text, False)
        withdrawn = await self._withdraw_overtaken(access, session)
        return await commands.handle_message(
            incoming.text,
            lambda arguments: self._command_call(access, session, arguments, withdrawn),
            has_files=bool(incoming.files),
        )

    async def _withdraw_overtaken(self, access: Access, session: SessionKey) -> int:
        """Withdraw the session's messages that a `/stop` has overtaken; return their number.

        They are on no stream yet, so the stop could not reach them. After a crash, they are not
        accepted either.
        """
        withdrawn = 0
        may_end_all = self._command_call(access, session, "", 0).may_end_all
        for each in self.overtaken:
            other = replace(self, incoming=each.incoming, overtaken=())
            other, _ = await other._under_first_id()
            is_admitted = await other._verdict(access) is Verdict.ADMITTED
            is_own = may_end_all or other.incoming.sender == self.incoming.sender
            if is_admitted and is_own and other.session_of(access, other.incoming) == session:
                known = other.known(other.incoming)
                if any(await self.context.fleet.edits.note_handled(session, known, "-")):
                    each.cancel()
                    withdrawn += 1
        return withdrawn

    def _command_call(
        self, access: Access, session: SessionKey, arguments: str, withdrawn: int
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
            withdrawn=withdrawn,
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
        context: str,
    ) -> bool:
        """Queue the message for the agent; return whether it is on the session's stream now."""
        if not text.strip() and (why := self._why_not_heard(session, access)):
            if self.incoming.is_for_us:
                await self.reply(why)
            return False
        received = await self.receive(session, access)
        text = "\n\n".join(filter(None, (text, *received.prompt_texts)))
        is_accepted = False
        if text.strip() or received.attachments:
            try:
                accepted = await self.context.fleet.inbound.append(
                    self.message(
                        text,
                        received.attachments,
                        reactions,
                        quoted=await self.quoted(received.quoted_notes),
                        context=context,
                    ),
                    agent=session.agent,
                    deliver=self.awaited.deliver if self.awaited else "channel",
                    waits=self.awaited is not None,
                    lane=self.awaited.lane if self.awaited else "agents",
                    is_command=is_command,
                    is_shared=session.is_shared,
                    of_thread=session.thread is not None,
                    once=self.known(self.incoming),
                )
                is_accepted = True
                await self._show_state(accepted, access)
                if self.awaited:
                    self.awaited.accepted = accepted
            except MessageRefused as refusal:
                received.problems.append(str(refusal))
        if received.problems:
            await self.reply("\n".join(received.problems), once=(self.name, "problems"))
        return is_accepted

    async def _show_state(self, accepted: Accepted, access: Access) -> None:
        """Have the message show its state, if it is for the agent and the chat shows states."""
        incoming, signs = self.incoming, self.context.signs
        channel = access.config.channel_of(accepted.session)
        is_for_agent = incoming.is_for_us or incoming.thread is not None
        if signs and is_for_agent and channel.shows_state_in(incoming.chat_kind):
            sid = accepted.session.sid
            sign = Sign(incoming.chat, incoming.thread, incoming.id, sid, accepted.entry_id)
            await signs.add(sign)

    def _why_not_heard(self, session: SessionKey, access: Access) -> str:
        """Return why a message that has only recordings can't be heard; empty if it can."""
        files = self.incoming.files
        if access.config.channel_of(session).transcribe or not all(map(is_recording, files)):
            return ""
        is_owner = access.is_owner(self.incoming)
        how = HOW_TO_TRANSCRIBE.format(channel=self.context.provider) if is_owner else ""
        return f"{NO_TRANSCRIPTION} {how}".strip()
