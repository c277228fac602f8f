"""Files on the command line: `sessions files`, and what `send` does with those of a reply."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import on_fleet
from remoteclaw.cli.looking import find_message, sessions
from remoteclaw.errors import MessageRefused, UnknownSession
from remoteclaw.terminal import printable

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.messages import Attachment

__all__ = ["notes_on_files", "save_option", "upload"]

_DIRECTORY = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)

save_option = click.option(
    "--save", type=_DIRECTORY, default=None, metavar="DIR", help="Save the reply's files there."
)


async def upload(fleet: "Fleet", sid: str, places: tuple[str, ...]) -> "list[Attachment]":
    """Store files for a message that will name them; raises `MessageRefused` if one is unfit."""
    from remoteclaw.fetching import fetch
    from remoteclaw.files import UnfitFile, read_file

    files = []
    for place in places:
        try:
            if "://" in place:
                name, content = await fetch(place)
            else:
                name, content = place, read_file(Path(place))
        except UnfitFile as problem:
            raise MessageRefused(
                f"Nothing was sent: {printable(place)} can't be attached, because {problem}."
            ) from None
        files.append(await fleet.blobs.put(sid, name, content))
    return files


async def notes_on_files(
    fleet: "Fleet", sid: str, entry_id: str, reply: tuple[dict[str, Any], ...], save: Path | None
) -> list[str]:
    """Save the files of a reply in a directory, if there is one; return a line about each.

    Where a file is saved stands with it from then on, as `saved`.
    """
    from remoteclaw.files import size_in_words
    from remoteclaw.messages import Attachment

    notes = []
    for described in (file for part in reply for file in part.get("attachments", ())):
        file = Attachment.model_validate(described)
        about = f"{file.name}, {size_in_words(file.size)}"
        if save is None:
            command = f"remoteclaw sessions files {sid[:8]}-{entry_id} DIR"
            notes.append(f"(A file: {about}. `{command}` saves it.)")
            continue
        try:
            described["saved"] = await _save(fleet, sid, file, save)
            notes.append(f"(A file: {about}, saved as {described['saved']}.)")
        except OSError as error:
            notes.append(f"(A file: {about}. It can't be saved: {error.strerror}.)")
    return notes


async def _save(fleet: "Fleet", sid: str, file: "Attachment", directory: Path) -> str:
    from remoteclaw.files import save_file

    content = await fleet.blobs.get(sid, file)
    if content is None:
        raise FileNotFoundError(0, "it is not kept any more")
    return str(save_file(directory, file.name, content))


@sessions.command("files")
@click.argument("what")
@click.argument("directory", type=_DIRECTORY, default=Path())
def files_of_reply(what: str, directory: Path) -> None:
    """Save the files of a reply in DIRECTORY, by default here.

    WHAT is a message's reference, or a session: then its newest message. Files that went to a
    channel are not kept.
    """

    async def run(fleet: "Fleet") -> None:
        sid, entry_id = await find_message(fleet, what)
        outcome = await fleet.outcomes.read(sid, entry_id)
        if outcome is None:
            raise UnknownSession(f"Nothing is known of message {what!r} any more.")
        notes = await notes_on_files(fleet, sid, entry_id, outcome.reply, directory)
        click.echo("\n".join(notes) or "No files came with the reply.")

    on_fleet(run)
