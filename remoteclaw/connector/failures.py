"""Sentences about a gateway that does not answer, for agents and people."""

import json

from remoteclaw.connector.exchange import Failure, Refused, TooSlow, Unreachable

__all__ = ["sentence"]

#: The uncertainty about a call whose answer is missing.
UNKNOWN = " Whether it was done is unknown: look before you repeat it."
#: How much of the gateway's own words is passed on, in characters.
MOST_WORDS = 300


def sentence(failure: Failure, *, gateway: str, token_source: str, what: str, is_call: bool) -> str:
    """Say what happened to `what`, and what to do; a call may have been done."""
    where = f"RemoteClaw's gateway at {gateway}"
    unknown = UNKNOWN if is_call else ""
    match failure:
        case Unreachable():
            start = "start it with `remoteclaw up` or `remoteclaw gateway`"
            return f"{where} can't be reached: {failure}; {start}."
        case TooSlow():
            return f"{where} has not answered {what} within {failure}.{unknown}"
        case Refused(status=401):
            return f"{where} doesn't accept the token from {token_source}."
        case Refused(status=413):
            return f"What {what} carries is too large for {where}."
        case Refused(status=status):
            why = f"{where} answered {what} with HTTP status {status}{_words(failure)}."
            return why + (unknown if status >= 500 else "")
        case _:
            return f"The connection to {where} failed during {what}: {failure}.{unknown}"


def _words(refused: Refused) -> str:
    """Return what the gateway says about its refusal."""
    try:
        said = json.loads(refused.body)["error"]["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return f" ({' '.join(str(said).split())[:MOST_WORDS]})"
