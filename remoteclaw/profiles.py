"""Profiles of channels: what each kind can do.

A kind that is not named here, such as that of an adapter of one's own, counts as one that can do
everything: its adapter refuses what it can't. Tools are listed by this and never by whether an
adapter is at work, so that the list of a session stays the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ChannelProfile", "profile_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelProfile:
    """What a kind of channel can do."""

    has_threads: bool = True
    lacks: frozenset[str] = frozenset()
    """The tools about the current chat that do nothing there."""


_CONSOLE = ChannelProfile(
    has_threads=False,
    lacks=frozenset(
        (
            "message_thread_reply",
            "message_react",
            "message_delete",
            "message_pin",
            "message_read",
        )
    ),
)
_PROFILES: Mapping[str, ChannelProfile] = {"console": _CONSOLE}


def profile_of(kind: str) -> ChannelProfile:
    """Return what a kind of channel can do, by the name of the channel."""
    return _PROFILES.get(kind, ChannelProfile())
