"""The writes of a turn that opens a terminal."""

import uuid
from typing import TYPE_CHECKING

from remoteclaw.fleet import keys
from remoteclaw.fleet.inbound import GRACE_MS
from remoteclaw.fleet.terminal_state import TerminalPlace

if TYPE_CHECKING:
    from remoteclaw.fleet.lease import Lease


class TerminalTurn:
    """The writes of a turn that opens a terminal, each refused once the lease is lost."""

    def __init__(self, lease: "Lease") -> None:
        self._lease = lease

    async def place(self, place: TerminalPlace) -> None:
        """Record where the terminal is about to be started."""
        await self._lease.run_fenced(
            "terminal_place",
            {},
            {
                "turn": place.turn,
                "place": place.encode(),
                "outcomes": keys.outcome_prefix(self._lease.sid),
                "detail": f"a terminal of {place.runtime}",
            },
        )

    async def hold(self, place: TerminalPlace, holder: str, *, hold_s: float) -> str:
        """Give the lease to the holder's process of a place; return its epoch.

        From here on the lease is another one's, and so is every write.
        """
        lease = self._lease
        lease.is_given_away = True
        epoch: bytes = await lease.run_fenced(
            "hold",
            {"active": keys.ACTIVE},
            {
                "nonce": uuid.uuid4().hex,
                "sid": lease.sid,
                "turn": place.turn,
                "place": place.encode(),
                "holder": f"{lease.host} {holder}",
                "hold_ms": int(hold_s * 1000),
                "grace_ms": GRACE_MS,
            },
        )
        return epoch.decode()
