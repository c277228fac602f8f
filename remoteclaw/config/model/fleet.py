"""The section `[fleet]`."""

from typing import Annotated

from pydantic import Field

from remoteclaw.config.model.section import MOST, WITH_WORKERS, Section
from remoteclaw.config.rights import BY_PEOPLE, by_people

WITH_UP = by_people(restart="`remoteclaw up`")


class FleetConfig(Section):
    """Workers, leases and agent processes."""

    lease_s: Annotated[float, WITH_WORKERS] = Field(default=30, ge=1, le=600)
    """Seconds for which a worker holds a session without a sign of life; then another one may
    take it over. It gives up a turn itself after 0.8 of them without Redis."""
    workers: Annotated[int, WITH_UP] = Field(default=4, ge=1, le=64)
    """How many `rq worker` processes `remoteclaw up` starts: the number of turns at once."""
    linger_s: Annotated[float, BY_PEOPLE] = Field(default=2, ge=0, le=30)
    """Seconds for which a worker waits for the next message of a session after a turn.
    It leaves at once when another session waits for a worker."""
    max_agents: Annotated[int, BY_PEOPLE] = Field(default=12, ge=1, le=MOST)
    """How many agent processes a host keeps, at work and warm. For one more, the one that has
    waited longest is ended; those at work never are."""
    reserve_mb: Annotated[int, BY_PEOPLE] = Field(default=512, ge=0, le=MOST)
    """Megabytes of the host's memory that stay free: below, warm agents are ended likewise."""
