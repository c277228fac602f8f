"""The identity of an agent in a conversation: the operator's texts in its system prompt."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol, Self

import orjson

from remoteclaw.messages import ChannelMessage

__all__ = ["AgentIdentity", "IdentitySource"]

#: The length of a digest, in hexadecimal digits.
DIGEST_DIGITS = 32


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """The operator's texts that a conversation begins with, and keeps."""

    files: Mapping[str, str] = field(default_factory=dict)
    """The texts of files, by their paths in the agent's directory."""
    language: str = ""
    """The language of the person of a direct chat, as a BCP-47 tag; empty if none is set."""

    @property
    def digest(self) -> str:
        """A digest that names the identity."""
        return hashlib.sha256(self.encode()).hexdigest()[:DIGEST_DIGITS]

    @property
    def is_about_person(self) -> bool:
        """Whether it has something about the person of a direct chat."""
        return bool(self.language) or any("/" in name for name in self.files)

    def encode(self) -> bytes:
        """Return the stored form."""
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, stored: bytes) -> Self:
        """Return an identity from its stored form."""
        values = orjson.loads(stored)
        return cls(values["files"], values["language"])

    def changes_to(self, other: "AgentIdentity") -> list[str]:
        """Return what differs: the names of files, and `language`."""
        names = dict.fromkeys((*self.files, *other.files))
        changed = [name for name in names if self.files.get(name) != other.files.get(name)]
        return changed + (["the language of the person"] if self.language != other.language else [])


class IdentitySource(Protocol):
    """Provides the identities of one session's conversations."""

    async def current(self, messages: Sequence[ChannelMessage]) -> AgentIdentity:
        """Return the identity of a conversation that begins now, with `messages`.

        A file that can't be used counts as it was when it last could. Raises `AgentUnavailable` if
        it never could.
        """

    async def find(self, digest: str) -> AgentIdentity | None:
        """Return the identity with a digest; None if it is no longer stored."""

    async def keep(self, identity: AgentIdentity) -> bool:
        """Store an identity for a conversation; False if there is no room for it."""
