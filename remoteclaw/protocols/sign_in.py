"""The protocol for a channel that signs in to an account, instead of asking for its secrets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from remoteclaw.protocols.platform import AdapterState

__all__ = ["Person", "SignIn", "SignedIn"]


class Person(Protocol):
    """The person who runs `channel add`. Questions raise `ConfigError` if nobody can be asked."""

    @property
    def is_there(self) -> bool:
        """Whether somebody can be asked."""

    def say(self, text: str) -> None:
        """Show a line."""

    def ask(self, question: str) -> str:
        """Return the answer to a question."""

    def ask_hidden(self, question: str) -> str:
        """Return the answer to a question, which the terminal doesn't show."""

    def confirms(self, question: str) -> bool:
        """Return the answer to a question with yes or no."""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """An account to which `channel add` has signed in."""

    name: str
    """The name by which people find the account."""
    settings: Mapping[str, str]
    """The settings to write into the account's section."""
    secrets: Mapping[str, str]
    """The secrets to store, by name; not those that an option names."""
    reach: str
    """How the account's owner reaches it, in a sentence."""


class SignIn(Protocol):
    """Signs in to an account; named by `Channel.sign_in`."""

    async def __call__(
        self,
        person: Person,
        known: Mapping[str, Any],
        state: AdapterState,
        *,
        is_configured: bool,
        recovers: bool,
    ) -> SignedIn:
        """Sign in, with the settings that are known, and keep in `state` what the adapter needs.

        With `is_configured`, `known` are the account's own settings: its login is lost, or its
        owner has asked to recover it (`recovers`). `state` is then empty, and what is kept there
        replaces the values of the account's state. Raises `ConfigError` and the errors of a
        `ChannelAdapter` with a sentence for the person.
        """
