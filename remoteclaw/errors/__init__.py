"""Errors: one exception tree, and the sentences that people read.

Two audiences are kept apart.
A `RemoteClawError` is for the operator at a terminal: one line that says what happened, to which
key or file, and what to do.
An `ErrorCategory` is for the person in the chat: `sentence()` turns it into words they can act on,
and never quotes what a CLI printed.
"""

# The names of the package; each is listed where it is defined.
from remoteclaw.errors import category, exceptions, sentences
from remoteclaw.errors.category import *  # noqa: F403
from remoteclaw.errors.exceptions import *  # noqa: F403
from remoteclaw.errors.sentences import *  # noqa: F403

__all__: list[str] = []
__all__ += category.__all__
__all__ += exceptions.__all__
__all__ += sentences.__all__
