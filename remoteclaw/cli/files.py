"""The command `sessions files`, and the reading of the files that `send` attaches."""

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


async def read_files(sources: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """Return the names and contents of the files to send; `sources` are paths and URLs.

    Raises `MessageRefused` if a file can't be attached, or if they are too many or too large.
    """
    if not sources:
        return []
    from remoteclaw.host.files import UnfitFile, format_size, read_file
    from remoteclaw.limits import MAX_ATTACHMENTS, MAX_ATTACHMENTS_BYTES

    if len(sources) > MAX_ATTACHMENTS:
        raise MessageRefused(
            f"Nothing was sent: a message can have at most {MAX_ATTACHMENTS} files."
        )
    files: list[tuple[str, bytes]] = []
    for source in sources:
        try:
            if "://" in source:
                from remoteclaw.host.fetch import fetch

                files.append(await fetch(source))
            else:
                files.append((source, read_file(Path(source))))
        except UnfitFile as problem:
            raise MessageRefused(
                f"Nothing was sent: {printable(source)} can't be attached, because {problem}."
            ) from None
        if sum(len(content) for _, content in files) > MAX_ATTACHMENTS_BYTES:
            limit = format_size(MAX_ATTACHMENTS_BYTES)
            raise MessageRefused(f"Nothing was sent: the files have more than {limit} together.")
    return files


@sessions.command("files")
@click.argument("message")
@click.argument("directory", type=_DIRECTORY, default=Path())
@with_fleet
async def files_of_reply(fleet: "Fleet", message: str, directory: Path) -> bool:
    """Save the files of a reply in DIRECTORY, by default this one.

    MESSAGE is a message's reference, or a session, for its newest message. Files that were saved
    before, or delivered to a channel, are no longer kept.
    """

    from remoteclaw.gateway.traces import find_message
    from remoteclaw.host.files import describe_file, save_file
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
        await fleet.blobs.drop(sid, [file])  # the saved copy replaces it
        echo(describe_file(file, saved=os.fsencode(path).decode("utf-8", "replace")))
        return None

    sid, entry_id = await find_message(fleet, message)
    outcome = await fleet.outcomes.read(sid, entry_id)
    if outcome is None:
        raise NotFound(f"There is no message {message!r}, or its record has expired.")
    if not outcome.is_final:
        raise NotFound(f"Message {message!r} is not answered yet: try again later.")
    files = [file for part in outcome.reply for file in part.get("attachments", ())]
    if not files:
        echo("No files came with the reply.")
    problems = 0
    for file in map(Attachment.model_validate, files):
        if problem := await save(fleet, sid, file):
            complain(f"{file.name} was not saved: {problem}.")
            problems += 1
    return problems > 0
