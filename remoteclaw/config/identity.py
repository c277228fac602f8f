"""Identity files: the operator's texts about an agent, and about the people it talks to.

They are in the directory `agents/NAME` of the state directory: those that `[agents.NAME] identity`
lists, and `people/CHANNEL-ID.md` for a person. Nobody else may be able to change them, because the
agent takes them for instructions.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from remoteclaw.config.home import Home
from remoteclaw.config.model import AgentConfig, Config
from remoteclaw.errors import ConfigError
from remoteclaw.host.files import UnfitFile, format_size, read_file
from remoteclaw.locations import MEMORY_FILE
from remoteclaw.messages import SessionKey

#: The maximum size of a file, and of all files of `identity` together, in bytes. The text is read
#: with each request to the model, though mostly from its provider's cache.
MAX_FILE_BYTES, MAX_BYTES = 16 * 1024, 32 * 1024
#: The directory of the files about people.
PEOPLE = "people"
#: The maximum size of a memory, in bytes: the agent reads it at the begin of each conversation.
MAX_MEMORY_BYTES = 8 * 1024
#: What to do about a file that can't be opened, by the reason as `read_file()` says it.
_MEND = {
    "it is not there": "create it",
    "it is no regular file": "put one there",
    "permission denied": "make it readable for you",
}
_MEND_ELSE = "put a regular file there"
TOO_MUCH = (
    "The files of [agents.{agent}] identity have {size} together, and {most} are the most: shorten "
    "them."
)


@dataclass(frozen=True, slots=True)
class IdentityFile:
    """A file that an agent's conversation is to have in its system prompt."""

    name: str
    """The path in the agent's directory."""
    is_about_person: bool
    """Whether it is about the person of a direct chat; such a file may be absent."""


def identity_files(config: Config, agent: str, session: SessionKey | None) -> list[IdentityFile]:
    """Return the files of an agent, with that about the person of `session`, a direct chat."""
    names = config.agents[agent].identity if agent in config.agents else ()
    files = [IdentityFile(name, is_about_person=False) for name in names]
    if session is not None and (person := _person_file(config, session)):
        files.append(IdentityFile(f"{PEOPLE}/{person}", is_about_person=True))
    return files


def language_of(config: Config, session: SessionKey) -> str:
    """Return the language of the person of a direct chat (`[people]`); empty if none is set."""
    if not _is_of_one_person(session):
        return ""
    person = config.people.get(config.person_of(session.provider, session.user))
    return (person and person.language) or ""


def read_identity_file(directory: Path, file: IdentityFile) -> str | None:
    """Return the text of a file in an agent's directory; None for an absent one about a person.

    Raises `ConfigError` if the file can't be used.
    """
    path = directory / file.name
    if file.is_about_person and not os.path.lexists(path):
        return None
    try:
        content = read_file(path, check=partial(_check, directory))
        text = content.decode("utf-8-sig")
        if "\0" in text:
            raise UnicodeError
    except UnfitFile as problem:
        why = str(problem)
        if ": " not in why:  # those of `_check()` say what to do
            why += f": {_MEND.get(why, _MEND_ELSE)}"
        hint = "" if file.is_about_person else ", or take it out of identity"
        raise ConfigError(
            f"{path} can't be used for the agent {directory.name!r}: {why}{hint}."
        ) from None
    except UnicodeError:
        raise ConfigError(
            f"{path} can't be used for the agent {directory.name!r}: it is no UTF-8 text: save it "
            "as UTF-8."
        ) from None
    return text.replace("\r\n", "\n").strip()


def read_memory(directory: Path) -> str:
    """Return the text of `MEMORY.md` in an agent's directory; empty if it is absent.

    Raises `ConfigError` if it can't be used.
    """
    text = read_identity_file(directory, IdentityFile(MEMORY_FILE, is_about_person=True)) or ""
    if (size := len(text.encode())) > MAX_MEMORY_BYTES:
        raise ConfigError(
            f"{directory / MEMORY_FILE} can't be used for the agent {directory.name!r}: it has "
            f"{size:,} bytes, and {MAX_MEMORY_BYTES:,} are the most: shorten it."
        )
    return text


def check_sizes(agent: str, texts: Sequence[str]) -> None:
    """Raise `ConfigError` if the files of `identity` are too large together."""
    size = sum(len(text.encode()) for text in texts)
    if size > MAX_BYTES:
        raise ConfigError(
            TOO_MUCH.format(agent=agent, size=format_size(size), most=format_size(MAX_BYTES))
        )


def identity_problem(home: Home, agent: str, settings: AgentConfig) -> str | None:
    """Return why an identity file of an agent can't be used; None if all can."""
    directory = home.agent_files(agent)
    try:
        listed = [IdentityFile(name, is_about_person=False) for name in settings.identity]
        texts = [read_identity_file(directory, file) or "" for file in listed]
        check_sizes(agent, texts)
        for file in _people_files(directory):
            read_identity_file(directory, file)
        if settings.memory:
            read_memory(directory)
    except ConfigError as problem:
        return str(problem)
    return None


def check_identities(home: Home, agents: Mapping[str, AgentConfig]) -> None:
    """Raise `ConfigError` if an identity file of an agent can't be used."""
    for name, settings in agents.items():
        if problem := identity_problem(home, name, settings):
            raise ConfigError(problem)


def _check(directory: Path, path: Path, status: os.stat_result) -> None:
    """Raise `UnfitFile` for an open file that isn't the operator's own, or too large."""
    if not path.is_relative_to(os.path.realpath(directory)) or _is_linked(directory):
        raise UnfitFile(f"it leads to {path}, outside of {directory}: put the file itself there")
    if status.st_uid not in (os.getuid(), 0):
        raise UnfitFile(f"it belongs to user {status.st_uid}, not to you: make it your own")
    # The group of most users is their own, and their files are often writable for it.
    is_of_others = status.st_mode & 0o020 and status.st_gid != os.getgid()
    if status.st_mode & 0o002 or is_of_others:
        raise UnfitFile(f"other users can change it: `chmod go-w {path}`")
    if status.st_size > MAX_FILE_BYTES:
        size, most = format_size(status.st_size), format_size(MAX_FILE_BYTES)
        raise UnfitFile(f"it has {size}, and {most} are the most: shorten it")


def _is_linked(directory: Path) -> bool:
    """Whether an agent's directory, or the one around it, is a symbolic link."""
    return directory.is_symlink() or directory.parent.is_symlink()


def _person_file(config: Config, session: SessionKey) -> str | None:
    """Return the name of the file about the person of a direct chat; None if it can have none.

    A person whom `[people]` names has a file of that name instead of one for each channel.
    """
    if not _is_of_one_person(session):
        return None
    person = config.person_of(session.provider, session.user)
    name = person if person in config.people else f"{session.provider}-{session.user}"
    is_plain = "/" not in name and name.isprintable() and len(os.fsencode(name)) <= 200
    return f"{name}.md" if is_plain else None


def _is_of_one_person(session: SessionKey) -> bool:
    """Whether a session is a direct chat, and no task."""
    return session.task is None and not session.is_shared


def _people_files(directory: Path) -> Iterator[IdentityFile]:
    try:
        names = sorted(entry for entry in os.listdir(directory / PEOPLE) if entry.endswith(".md"))
    except OSError:
        return
    for name in names:
        yield IdentityFile(f"{PEOPLE}/{name}", is_about_person=True)
