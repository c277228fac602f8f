"""The edit or deletion of a message: takes the message's place, or tells the person why not."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from remoteclaw import commands
from remoteclaw.channels.access import Access
from remoteclaw.channels.files import ReceivedFiles
from remoteclaw.channels.report import Report, digest_of
from remoteclaw.commands.answers import NUMBERS
from remoteclaw.errors import MessageRefused
from remoteclaw.fleet.turns.inbound import Known
from remoteclaw.protocols import Incoming

EDIT_LATE = (
    "I had taken up your message before you edited it, so the edit does not run. My next turn "
    "knows of it. Send it as a new message if I should act on it."
)
EDITED_COMMAND = "A command does not run from an edited message: send it as a new message."
EDIT_REFUSED = "An edited message does not run again: send it as a new message."
WITHDRAWN_LATE = "I already work on the message that you have withdrawn: /stop ends that."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change(Report):
    """A report that a person has edited or deleted a message."""

    async def take_edit(self, access: Access, edited_id: str) -> None:
        """Put an edit in the place of the message, or note it for the agent's next turn.

        A report that changes nothing, or whose message is not known, has no effect.
        """
        edits, digest = self.context.fleet.edits, digest_of(self.incoming)
        session, name = self.session_of(access, self.incoming), self.name_of(edited_id)
        # An edit that was accepted before a crash may not have been answered.
        message, accepted = await edits.known(session, [name, self.name])
        if accepted is None and (message is None or message.digest == digest):
            log.info("a message was reported again, but not edited, or is not known any more")
            return
        if await self.is_too_fast():
            return
        begins_thread = await self.begins_thread(session)
        if begins_thread and await self.begins_too_many_threads():
            return
        await self.record(session, access.config)
        is_command = commands.parse(self.incoming.text) is not None
        received = ReceivedFiles() if is_command else await self.receive(session, access)
        words = commands.unescaped(self.incoming.text)
        text = "\n\n".join(filter(None, (words, *received.prompt_texts)))
        if not text.strip() and not received.attachments:
            await self.reply("\n".join(received.problems), once=(self.name, "problems"))
            return
        try:
            quoted = await self.quoted(received.quoted_notes)
            context = await self.thread_context() if begins_thread else ""
            edited = self.message(text, received.attachments, quoted=quoted, context=context)
            verdict = await edits.edit(
                edited.model_copy(update={"id": edited_id, "replaces": None}),
                Known(name, digest),
                name=self.name,
                agent=session.agent,
                is_shared=session.is_shared,
                of_thread=session.thread is not None,
                is_command=is_command,
            )
        except MessageRefused as refusal:
            await self.reply(str(refusal), once=(self.name, "problems"))
            return
        answers = {"late": EDIT_LATE, "command": EDITED_COMMAND, "refused": EDIT_REFUSED}
        if (answer := answers.get(verdict)) and self.incoming.is_for_us:
            await self.reply(answer, once=(self.name, "edit"), is_silent=True)
        elif received.problems and verdict in ("accepted", "replaced"):
            await self.reply("\n".join(received.problems), once=(self.name, "problems"))

    async def withdraw(self, access: Access, deleted_id: str) -> None:
        """Drop a message that its sender has deleted, unless a turn has taken it up."""
        fleet, incoming = self.context.fleet, self.incoming
        session = self.session_of(access, incoming)
        await fleet.history.forget(self.message("-").place, deleted_id)
        if await fleet.edits.withdraw(session, self.name_of(deleted_id)) == "running":
            await self.reply(WITHDRAWN_LATE, is_silent=True)

    async def take_back(self, access: Access, edited_id: str) -> None:
        """Drop a message that waits, because its edit does not address the agent any more.

        A report with the same words is no edit: the platform may only have forgotten the message
        that this one answers.
        """
        session, name = self.session_of(access, self.incoming), self.name_of(edited_id)
        (message,) = await self.context.fleet.edits.known(session, [name])
        addressed = replace(self.incoming, is_for_us=True)
        if message is not None and message.digest not in map(digest_of, (self.incoming, addressed)):
            await self.withdraw(access, edited_id)


def with_edits(reports: Sequence[Incoming]) -> list[Incoming]:
    """Return reports with the content of the last edit in each message that has just arrived too.

    So after an outage no turn begins with a text that is already corrected. Of the edits of a
    message, the last one stays a report of its own, because the message may have been accepted in
    an earlier version before a crash. Texts that may be commands or answers are not changed,
    because an edit brings none.
    """
    found: list[Incoming] = []
    for report in reports:
        if report.replaces is None:
            found.append(report)
            continue
        kept = []
        for each in found:
            if not _can_replace(report, each):
                kept.append(each)
            elif each.is_message:
                text, files, is_for_us = report.text, report.files, report.is_for_us
                kept.append(replace(each, text=text, files=files, is_for_us=is_for_us))
        found = [*kept, report]
    return found


def _can_replace(edit: Incoming, earlier: Incoming) -> bool:
    """Whether an edit replaces an earlier report: the edited message, or another edit of it."""
    edited = earlier.id if earlier.is_message else earlier.replaces
    is_same = (edit.chat, edit.sender) == (earlier.chat, earlier.sender)
    is_edit = edit.replaces is not None and edit.replaces == edited
    return is_edit and is_same and not any(map(_may_act, (edit, earlier)))


def _may_act(incoming: Incoming) -> bool:
    """Whether a message may be a command, or the answer to a request."""
    text = incoming.text.strip()
    is_answer = bool(incoming.reply_to or NUMBERS.fullmatch(text))
    return is_answer or commands.parse(text) is not None
