"""The section `[fleet]`."""

import socket
from typing import Annotated, Literal

from pydantic import Field, field_validator

from remoteclaw.config.model.section import (
    AT_START,
    MAX_NUMBER,
    MAX_S,
    WITH_WORKERS,
    Section,
    zone_name,
)
from remoteclaw.config.rights import BY_PEOPLE, by_people

WITH_UP = by_people(restart="`remoteclaw up`")

#: The default duration of a lease, in seconds.
LEASE_S = 30.0


class FleetConfig(Section):
    """Workers, leases and agent processes."""

    lease_s: Annotated[float, WITH_WORKERS] = Field(default=LEASE_S, ge=1, le=600)
    """Seconds after a worker's last sign of life at which another worker may take its session. A
    worker that can't reach Redis abandons its turn after 0.8 of this time."""
    workers: Annotated[int, WITH_UP] = Field(default=4, ge=1, le=64)
    """The number of `rq worker` processes that `remoteclaw up` starts, which is the maximum number
    of turns at the same time."""
    linger_s: Annotated[float, BY_PEOPLE] = Field(default=2, ge=0, le=30)
    """Seconds that a worker waits after a turn for the session's next message. It doesn't wait
    while another session waits for a worker."""
    stop_s: Annotated[float, WITH_UP] = Field(default=600, ge=0, le=MAX_S)
    """Seconds for which a host that is stopped lets its running turns go on, when `remoteclaw up`
    gets SIGTERM. A turn that takes longer continues at the next start."""
    leave_s: Annotated[float, BY_PEOPLE] = Field(default=15, ge=0, le=MAX_S)
    """Seconds after the last worker of a host has ended at which its warm agents end. Those of
    `remoteclaw up` end with it."""
    max_agents: Annotated[int, BY_PEOPLE] = Field(default=12, ge=1, le=MAX_NUMBER)
    """The maximum number of agent processes on a host, both running turns and warm. To start
    another one, the agent that has been idle longest is ended, never one that runs a turn."""
    reserve_mb: Annotated[int, BY_PEOPLE] = Field(default=512, ge=0, le=MAX_NUMBER)
    """Megabytes of the host's memory to keep free: with less, warm agents are ended, those that
    have been idle longest first."""
    log_format: Annotated[Literal["text", "json"], AT_START] = "text"
    """The logs of processes: lines that people read, or a line of JSON for each record, with the
    fields of its event."""
    timezone: Annotated[str | None, BY_PEOPLE] = None
    """The IANA time zone, such as Europe/Berlin, of the days and months in which usage is counted,
    by the clock of Redis, and of agents without a `timezone`. Without it, this computer's; hosts in
    several time zones need it."""

    host_name: Annotated[str | None, WITH_UP] = Field(default=None, min_length=1, max_length=64)
    """The name of this host, as `remoteclaw status` shows it. Without it, the computer's name."""

    @property
    def name_of_host(self) -> str:
        """The name of this host."""
        return self.host_name or socket.gethostname()

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, value: str | None) -> str | None:
        return value and zone_name(value)
