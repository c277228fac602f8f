"""Commands for files: `sessions files`, and the files of a reply to `send`."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import on_fleet
from remoteclaw.cli.edge import complain, echo_text
from remoteclaw.cli.sessions import find_message, sessions
from remoteclaw.errors import MessageRefused, RemoteClawError, UnknownSession
from remoteclaw.host.terminal import printable

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.messages import Attachment

__all__ = ["ReplyFile", "complain_of", "note_on", "save_files", "save_option", "upload"]

_DIRECTORY = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)

save_option = click.option(
    "--save", type=_DIRECTORY, default=None, metavar="DIR", help="Save the reply's files there."
)


async def upload(fleet: "Fleet", sid: str, places: tuple[str, ...]) -> "list[Attachment]":
    """Store files for a message that will name them; raises `MessageRefused` if they are unfit."""
    from remoteclaw.host.fetch import fetch
    from remoteclaw.host.files import UnfitFile, read_file, size_in_words
    from remoteclaw.messages import MAX_ATTACHMENTS, MAX_ATTACHMENTS_BYTES

    if len(places) > MAX_ATTACHMENTS:
        raise MessageRefused(f"Nothing was sent: {MAX_ATTACHMENTS} files are the most at once.")
    found: list[tuple[str, bytes]] = []
    for place in places:
        try:
            if "://" in place:
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
    return [await fleet.blobs.put(sid, name, content) for name, content in found]


@dataclass(frozen=True, slots=True)
class ReplyFile:
    """A file of a reply, and what became of it here."""

    file: "Attachment"
    saved: str | None = None
    """Where it is saved."""
    problem: str | None = None
    """Why it is not, although it was to be."""


async def save_files(
    fleet: "Fleet", sid: str, reply: tuple[dict[str, Any], ...], directory: Path | None
) -> list[ReplyFile]:
    """Save the files of a reply in a directory, if there is one; return what became of each."""
    from remoteclaw.host.files import save_file
    from remoteclaw.messages import Attachment

    files = []
    for described in (file for part in reply for file in part.get("attachments", ())):
        file = Attachment.model_validate(described)
        saved = problem = None
        if directory is not None:
            try:
                content = await fleet.blobs.get(sid, file)
                if content is None:
                    problem = "it is not kept any more"
                else:
                    path = save_file(directory, file.name, content)
                    saved = os.fsencode(path).decode("utf-8", "replace")
                    await fleet.blobs.drop(sid, [file])  # who has it needs no room for it
            except OSError as error:
                problem = error.strerror
            except RemoteClawError as error:
                problem = str(error).rstrip(".")
        files.append(ReplyFile(file, saved, problem))
    return files


def note_on(file: ReplyFile, reference: str) -> str:
    """Return what the person reads of a file."""
    from remoteclaw.host.files import about_file

    if file.saved or file.problem:
        return about_file(file.file, saved=file.saved, problem=file.problem)
    return about_file(file.file, hint=f"`remoteclaw sessions files {reference} DIR` saves it.")


def complain_of(files: list[ReplyFile]) -> bool:
    """Say which files could not be saved; return whether there are any."""
    unsaved = [file for file in files if file.problem]
    for file in unsaved:
        complain(f"{file.file.name} was not saved: {file.problem}.")
    return bool(unsaved)


@sessions.command("files")
@click.argument("what")
@click.argument("directory", type=_DIRECTORY, default=Path())
def files_of_reply(what: str, directory: Path) -> None:
    """Save the files of a reply in DIRECTORY, by default here.

    WHAT is a message's reference, or a session: then its newest message. Files that were saved or
    went to a channel are not kept.
    """

    async def run(fleet: "Fleet") -> bool:
        sid, entry_id = await find_message(fleet, what)
        outcome = await fleet.outcomes.read(sid, entry_id)
        if outcome is None:
            raise UnknownSession(f"Nothing is known of message {what!r} any more.")
        if not outcome.is_final:
            raise UnknownSession(f"Message {what!r} is not answered yet: try again later.")
        files = await save_files(fleet, sid, outcome.reply, directory)
        notes = [note_on(file, f"{sid[:8]}-{entry_id}") for file in files if file.saved]
        echo_text("\n".join(notes) if files else "No files came with the reply.")
        return complain_of(files)

    sys.exit(on_fleet(run))
