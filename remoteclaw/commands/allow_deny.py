"""The commands `/allow`, `/deny` and `/answer`, and plain messages that answer a request."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from remoteclaw.clock import now_ms
from remoteclaw.commands.answers import GONE, NUMBERS, answer_request, verdict_of_numbers
from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.fleet.requests.request import Request, Verdict
from remoteclaw.profiles import profile_of

#: For this long after a request has ended, an answer without an id may be meant for it, in
#: milliseconds.
UNCLEAR_MS = 3000
#: An id that grows with time: a number, or a time and a number.
_ORDERED_ID = re.compile(r"(\d+)(?:[.-](\d+))?")
WHICH = "Say which: {ids}."
NEEDS_ADMIN = "Answering that over the gateway needs a token with the scope admin."
TAKEN_BACK = "What was allowed for this conversation is revoked: the agent asks again."


async def allow(call: CommandCall) -> CommandReply:
    """Allow what an agent asks for: once, or for the conversation with `always`.

    With `edits`, approve a plan and all changes of files in the workspace. With `none`, revoke
    what was allowed for the conversation.
    """
    if call.arguments.lower() == "none":
        return await _revoke(call)
    id_, word = _split(call.arguments)
    verdicts: dict[str, Verdict] = {"always": "conversation", "edits": "edits"}
    verdict = verdicts.get(word.lower(), "once")
    return await _answer(call, id_, verdict)


async def _revoke(call: CommandCall) -> CommandReply:
    if not call.is_owner:
        return CommandReply("That is for owners of this installation.")
    count = await call.fleet.requests.forget_rules(call.session.sid)
    return CommandReply(TAKEN_BACK if count else "Nothing is allowed for this conversation.")


async def deny(call: CommandCall) -> CommandReply:
    """Deny what an agent asks for. The text after the request's id is the reason."""
    id_, why = await _id_and_text(call)
    return await _answer(call, id_, "deny", why)


async def answer(call: CommandCall) -> CommandReply:
    """Answer a question or a plan, with free text or with the numbers of choices."""
    id_, text = await _id_and_text(call)
    request = await _request(call, id_)
    if isinstance(request, CommandReply):
        return request
    verdict, words = verdict_of_numbers(request, text) or ("words", text)
    return await _submit(call, request, verdict, words)


async def answer_by_message(text: str, call: CommandCall) -> CommandReply | None:
    """Use a plain message as an answer to a request. Return None if it answers none.

    A message answers the request that it replies to. A number without a reply answers the request
    that waits in the chat, if only one waits and no agent has written anything since that the
    number may be meant for.
    """
    is_number = NUMBERS.fullmatch(text)
    if not text or not (is_number or call.reply_to):
        return None
    candidates = await _Candidates.of(call)
    if answered := candidates.answered:
        assert answered.answer, "this message has answered it"
        return await _submit(call, answered, answered.answer.verdict, answered.answer.words)
    replies = call.fleet.replies
    replied_id = await replies.card_at(call.place, call.reply_to) if call.reply_to else None
    for request in candidates.waiting:
        if request.id == replied_id or (request.shown and request.shown == call.reply_to):
            takes_words = request.is_question or request.is_plan
            verdict = verdict_of_numbers(request, text) or (
                ("words", text) if takes_words else None
            )
            if verdict:
                return await _submit(call, request, *verdict)
    if call.reply_to or len(candidates.waiting) != 1:
        return None
    (request,) = candidates.waiting
    if is_number and (verdict := verdict_of_numbers(request, text)):
        if candidates.is_over:
            return None
        if candidates.is_unclear:
            return CommandReply(candidates.which)
        return await _submit(call, request, *verdict)
    return None


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The requests that an answer without an id may be meant for."""

    waiting: Sequence[Request]
    """The waiting requests that this chat had shown before the message was written."""
    others: Sequence[Request]
    """The session's other waiting requests: another chat shows them, or this one did so later."""
    answered: Request | None
    """The request that this message has already answered: after a crash it is handled again."""
    is_unclear: bool
    """Whether the answer may be meant for something else: for a request that has just ended without
    this person's answer, or for a later message of the agent."""
    is_over: bool
    """Whether a number can't be meant for the waiting request: the session has begun a newer turn,
    or an agent has written below the request of another conversation."""

    @classmethod
    async def of(cls, call: CommandCall) -> "_Candidates":
        own = await call.fleet.requests.newest(call.session.sid)
        others, newest = await call.fleet.requests.shown_in(call.place)
        shown = [*(each for each in own if each.chat is None), *others]
        sender, since_ms = call.person, now_ms() - UNCLEAR_MS
        ended = [each for each in shown if each.ended_ms > since_ms and not each.is_waiting]
        in_chat = [each for each in shown if each.is_waiting]
        waiting = [each for each in in_chat if _was_shown_before(each, call)]
        has_later_message = is_over = False
        if len(waiting) == 1 and waiting[0].chat:
            has_later_message = is_over = waiting[0].id not in newest
        elif len(waiting) == 1:
            has_later_message, is_over = await call.fleet.requests.activity_since(waiting[0])
        name = _message_name(call)
        return cls(
            waiting,
            [
                *(each for each in own if each.chat and each.is_waiting),
                *(each for each in in_chat if each not in waiting),
            ],
            next((each for each in (*own, *others) if name and each.message == name), None),
            has_later_message
            or any(each.answer is None or each.answer.by != sender for each in ended),
            is_over,
        )

    @property
    def which(self) -> str:
        """The question which of these requests is meant."""
        ids = ", ".join(f"`{each.id}`" for each in self.waiting or self.others)
        return WHICH.format(ids=ids)


def _was_shown_before(request: Request, call: CommandCall) -> bool:
    """Whether the chat had shown a request before the message of `call` was written.

    Only the platform's own order of messages tells: a message that was delayed on its way here is
    older than a request that it arrives after.
    """
    written = _ORDERED_ID.fullmatch(call.id)
    if written is None or not profile_of(call.place.provider).orders_ids:
        return True
    shown = _ORDERED_ID.fullmatch(request.shown)
    return shown is not None and _numbers(shown) < _numbers(written)


def _numbers(id_: re.Match[str]) -> tuple[int, int]:
    return int(id_[1]), int(id_[2] or 0)


def _message_name(call: CommandCall) -> str:
    """Return a name of the message that is unique among all chats; empty if it has no id."""
    return f"{call.place} {call.id}" if call.id else ""


async def _answer(call: CommandCall, id_: str, verdict: Verdict, words: str = "") -> CommandReply:
    request = await _request(call, id_)
    if isinstance(request, CommandReply):
        return request
    return await _submit(call, request, verdict, words)


async def _request(call: CommandCall, id_: str) -> Request | CommandReply:
    """Return the request `id_`, or the one that waits in the chat if `id_` is empty.

    If there is no such request, or it is unclear which one is meant, return a reply that says so.
    """
    if id_:
        return await call.fleet.requests.find(id_) or CommandReply(GONE)
    candidates = await _Candidates.of(call)
    if candidates.answered:
        return candidates.answered
    if len(candidates.waiting) == 1 and not candidates.is_unclear:
        return candidates.waiting[0]
    if candidates.waiting or candidates.others:
        return CommandReply(candidates.which)
    return CommandReply("Nothing waits for an answer here.")


async def _submit(
    call: CommandCall, request: Request, verdict: Verdict, words: str
) -> CommandReply:
    if not call.can_answer:
        return CommandReply(NEEDS_ADMIN)
    outcome = await answer_request(
        call.fleet.requests,
        call.home,
        call.config,
        request,
        verdict,
        by=call.person,
        name=call.sender_name or call.sender,
        is_owner=call.is_owner,
        words=words,
        message=_message_name(call),
    )
    is_here = request.session == call.session or request.chat == call.place
    return CommandReply("" if is_here and outcome.is_shown else outcome.text)


def _split(arguments: str) -> tuple[str, str]:
    """Return a request's id and the rest. The id is empty if the first word has no such form."""
    first, _, rest = arguments.partition(" ")
    return (first, rest.strip()) if re.fullmatch("[a-z2-9]{8}", first) else ("", arguments)


async def _id_and_text(call: CommandCall) -> tuple[str, str]:
    """Return the request's id and the text after it. A word that only looks like an id is text."""
    id_, text = _split(call.arguments)
    if id_.isalpha() and not await call.fleet.requests.find(id_):
        return "", call.arguments
    return id_, text
