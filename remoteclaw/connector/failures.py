"""Sentences about a gateway that does not answer, for agents and people."""

from remoteclaw.connector.exchange import Refused, TooSlow, Unreachable
from remoteclaw.connector.wire import load

TYPE_CHECKING = False  # typing's own would cost 5 ms
if TYPE_CHECKING:
    from typing import Any

__all__ = ["error_in", "is_passing", "sentence"]

#: The uncertainty about a call whose answer is missing.
UNKNOWN = " Whether it was done is unknown: look before you repeat it."
#: How much of the gateway's own words is passed on, in characters.
MOST_WORDS = 300


def is_passing(failure: Exception) -> bool:
    """Whether the same message with the same token may work later."""
    return not isinstance(failure, Refused) or failure.status >= 500


def error_in(refused: Refused) -> "dict[str, Any] | None":
    """Return the JSON-RPC error that the gateway sent along, if it did."""
    try:
        said = load(refused.body)
    except ValueError:
        return None
    error = said.get("error") if isinstance(said, dict) else None
    return error if isinstance(error, dict) else None


def sentence(failure: Exception, *, gateway: str, token_source: str, what: str, may_be: str) -> str:
    """Say what happened to `what`, and what to do; `may_be` if that may have been done."""
    where = f"RemoteClaw's gateway at {gateway}"
    match failure:
        case Unreachable():
            start = "start it with `remoteclaw up` or `remoteclaw gateway`"
            return f"{where} can't be reached: {failure}; {start}."
        case TooSlow():
            return f"{where} has not answered {what} within {failure}.{may_be}"
        case Refused():
            return _refusal(failure, where, token_source, what, may_be)
        case _:
            return f"The connection to {where} failed during {what}: {failure}.{may_be}"


def _refusal(refused: Refused, where: str, token_source: str, what: str, may_be: str) -> str:
    said = (error_in(refused) or {}).get("message")
    why = f" ({' '.join(said.split())[:MOST_WORDS]})" if isinstance(said, str) else ""
    match refused.status:
        case 401:
            return f"{where} doesn't accept the token from {token_source}{why}."
        case 403:
            return f"{where} doesn't allow {what} with this token{why}."
        case 404:
            return f"{where} has no MCP endpoint where REMOTECLAW_GATEWAY_URL says{why}."
        case 413:
            return f"What {what} carries is too large for {where}{why}."
        case status if status >= 500:
            return f"{where} failed at {what}, with HTTP status {status}{why}.{may_be}"
        case status:
            return f"{where} answered {what} with HTTP status {status}{why}."
