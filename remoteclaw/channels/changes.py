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
from remoteclaw.fleet.inbound import Known
from remoteclaw.protocols import Incoming

EDIT_LATE = (
    "I had taken up your message before you edited it, so the edit does not run. My next turn "
    "knows of it. Send it as a new message if I should act on it."
)
EDITED_COMMAND = "A command does not run from an edited message: send it as a new message."
EDIT_REFUSED = "An edited message does not run again: send it as a new message."
DELETED_RUNNING = "I already work on the message that you have deleted: /stop ends that."

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
        if (await edits.digests(session, [name]))[0] in (None, digest):
            log.info("a message was reported again, but not edited, or is not known any more")
            return
        if await self.is_too_fast():
            return
        await self.record(session, access.config)
        is_command = commands.parse(self.incoming.text) is not None
        received = ReceivedFiles() if is_command else await self.receive(session, access)
        text = "\n\n".join(filter(None, (self.incoming.text, *received.prompt_texts)))
        try:
            quoted = await self.quoted(received.quoted_notes)
            message = self.message(text, received.attachments, quoted=quoted)
            verdict = await edits.edit(
                message.model_copy(update={"id": edited_id, "replaces": None}),
                Known(name, digest),
                name=self.name,
                agent=session.agent,
                is_shared=session.is_shared,
                is_command=is_command,
            )
        except MessageRefused as refusal:
            await self.reply(str(refusal), call=(self.name, "problems"))
            return
        answers = {"late": EDIT_LATE, "command": EDITED_COMMAND, "refused": EDIT_REFUSED}
        if (answer := answers.get(verdict)) and self.incoming.is_for_us:
            await self.reply(answer, call=(self.name, "edit"), is_silent=True)
        elif received.problems and verdict in ("accepted", "replaced"):
            await self.reply("\n".join(received.problems), call=(self.name, "problems"))

    async def withdraw(self, access: Access, deleted_id: str) -> None:
        """Drop a message that its sender has deleted, unless a turn has taken it up."""
        fleet, incoming = self.context.fleet, self.incoming
        session = self.session_of(access, incoming)
        await fleet.history.forget(session.place, deleted_id)
        if await fleet.edits.withdraw(session, self.name_of(deleted_id)) == "running":
            await self.reply(DELETED_RUNNING, is_silent=True)


def with_edits(reports: Sequence[Incoming]) -> list[Incoming]:
    """Return reports with each edit in the place of its message, if both have just arrived.

    So after an outage no turn begins with a text that is already corrected. Texts that may be
    commands or answers are not changed, because an edit brings none.
    """
    found: list[Incoming] = []
    for report in reports:
        number = next(
            (number for number, earlier in enumerate(found) if _can_replace(report, earlier)),
            None,
        )
        if number is None:
            found.append(report)
        else:
            edited = found[number]
            found[number] = replace(
                edited, text=report.text, files=report.files, is_for_us=report.is_for_us
            )
    return found


def _can_replace(edit: Incoming, message: Incoming) -> bool:
    is_edit = message.is_message and edit.replaces == message.id
    is_same = (edit.chat, edit.sender) == (message.chat, message.sender)
    return is_edit and is_same and not any(map(_may_act, (edit, message)))


def _may_act(incoming: Incoming) -> bool:
    """Whether a message may be a command, or the answer to a request."""
    text = incoming.text.strip()
    is_answer = bool(incoming.reply_to or NUMBERS.fullmatch(text))
    return is_answer or commands.parse(text) is not None
