"""Files: the command `sessions files`, and those that go with `send`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import with_fleet
from remoteclaw.cli.output import complain, echo
from remoteclaw.cli.sessions import sessions
from remoteclaw.errors import MessageRefused, NotFound
from remoteclaw.host.terminal import printable

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.messages import Attachment

_DIRECTORY = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)


async def read_files(places: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Return names and contents of files to send; raises `MessageRefused` if they are unfit."""
    if not places:
        return []
    from remoteclaw.host.files import UnfitFile, read_file, size_in_words
    from remoteclaw.limits import MAX_ATTACHMENTS, MAX_ATTACHMENTS_BYTES

    if len(places) > MAX_ATTACHMENTS:
        raise MessageRefused(f"Nothing was sent: {MAX_ATTACHMENTS} files are the most at once.")
    found: list[tuple[str, bytes]] = []
    for place in places:
        try:
            if "://" in place:
                from remoteclaw.host.fetch import fetch

                found.append(await fetch(place))
            else:
                found.append((place, read_file(Path(place))))
        except UnfitFile as problem:
            raise MessageRefused(
                f"Nothing was sent: {printable(place)} can't be attached, because {problem}."
            ) from None
        if sum(len(content) for _, content in found) > MAX_ATTACHMENTS_BYTES:
            most = size_in_words(MAX_ATTACHMENTS_BYTES)
            raise MessageRefused(f"Nothing was sent: the files have more than {most} together.")
    return found


@sessions.command("files")
@click.argument("what")
@click.argument("directory", type=_DIRECTORY, default=Path())
@with_fleet
async def files_of_reply(fleet: "Fleet", what: str, directory: Path) -> bool:
    """Save the files of a reply in DIRECTORY, by default here.

    WHAT is a message's reference, or a session: then its newest message. Files that were saved or
    went to a channel are not kept.
    """

    from remoteclaw.gateway.traces import find_message
    from remoteclaw.host.files import about_file, save_file
    from remoteclaw.messages import Attachment

    async def save(fleet: "Fleet", sid: str, file: "Attachment") -> str | None:
        """Save a file; return why it can't be, or None."""
        try:
            content = await fleet.blobs.get(sid, file)
            if content is None:
                return "it is not kept any more"
            path = save_file(directory, file.name, content)
        except OSError as error:
            return error.strerror
        await fleet.blobs.drop(sid, [file])  # who has it needs no room for it
        echo(about_file(file, saved=os.fsencode(path).decode("utf-8", "replace")))
        return None

    sid, entry_id = await find_message(fleet, what)
    outcome = await fleet.outcomes.read(sid, entry_id)
    if outcome is None:
        raise NotFound(f"There is no message {what!r}, or its record has expired.")
    if not outcome.is_final:
        raise NotFound(f"Message {what!r} is not answered yet: try again later.")
    files = [file for part in outcome.reply for file in part.get("attachments", ())]
    if not files:
        echo("No files came with the reply.")
    problems = 0
    for file in map(Attachment.model_validate, files):
        if problem := await save(fleet, sid, file):
            complain(f"{file.name} was not saved: {problem}.")
            problems += 1
    return problems > 0
