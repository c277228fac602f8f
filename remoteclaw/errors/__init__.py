"""Errors: the exceptions, and the sentences about failed turns.

Errors have two audiences.
A `RemoteClawError` is for the operator at a terminal: one line that says what happened, to which
key or file, and what to do.
An `ErrorCategory` is for the person in the chat: `sentence()` turns it into a sentence that says
what to do, without the CLI's output.
"""

# The public names of the package; each is listed in the `__all__` of its module.
from remoteclaw.errors import category, exceptions, sentences
from remoteclaw.errors.category import *  # noqa: F403
from remoteclaw.errors.exceptions import *  # noqa: F403
from remoteclaw.errors.sentences import *  # noqa: F403

__all__: list[str] = []
__all__ += category.__all__
__all__ += exceptions.__all__
__all__ += sentences.__all__
