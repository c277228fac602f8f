"""A cron job: a message for a session, its schedule, and its stored form."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from remoteclaw.cron.schedule import Schedule
from remoteclaw.messages import ChannelMessage, SessionKey

#: The form of a stored job. A scheduler leaves a job of another form as it is.
JOB_VERSION = 5

#: What happens to a due time that no scheduler fired: it is skipped once it is older than the
#: grace, or run once at any age.
Misfire = Literal["skip", "run_once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A scheduled message for a session, and the results of its runs."""

    id: str
    name: str
    schedule: Schedule
    message: str
    session: SessionKey
    """The session that it belongs to and writes to."""
    enabled: bool
    created_ms: int
    people: tuple[str, ...] = ()
    """The people on whose behalf it was made or changed, as entries name them. A run has the rights
    that they have at that time."""
    misfire: Misfire = "skip"
    alert_after: int = 0
    """After how many failures in a row the chat is told; 0: never."""
    next_ms: int | None
    """When it is due next; None for never. Every firing changes it, so that a concurrent change of
    the job is noticed."""
    last_ms: int | None = None
    """The due time that was fired last."""
    running: str | None = None
    """The name of the run that was started last, until it is settled."""
    missed_ms: int | None = None
    """The first due time that came while that run was unfinished."""
    failures: int = 0
    """How many scheduled runs in a row have failed."""
    last_status: str | None = None
    """The result of the run that was settled last."""
    last_detail: str | None = None
    last_duration_ms: int | None = None
    stored: bytes = field(default=b"", compare=False, repr=False)
    """The job as it was read: writes are refused if it has changed since."""

    @property
    def is_once(self) -> bool:
        """Whether it is due once, and removed after a successful run."""
        return self.schedule.at is not None

    def due_at(self, next_ms: int | None) -> "Job":
        """Return the job with its next due time; without one it is kept, and off."""
        return replace(self, next_ms=next_ms, enabled=self.enabled and next_ms is not None)

    def begun(self, run: str) -> "Job":
        """Return the job while a run of it is open."""
        return replace(self, running=run, missed_ms=None)

    def entry(self, due_ms: int, *, name: str | None = None) -> ChannelMessage:
        """Return the message of a due time, or of a run with another name.

        Raises `MessageRefused` for an invalid message.
        """
        return self.session.message(
            id=f"cron-{self.id}-{name or due_ms}",
            text=self.message,
            user_name=f"cron job {self.name}",
            timestamp=due_ms,
            timezone=self.schedule.tz,
        )

    def encode(self) -> bytes:
        """Return the job as it is stored."""
        told = {**asdict(self), "session": str(self.session), "v": JOB_VERSION}
        del told["stored"]
        return orjson.dumps(told)

    @classmethod
    def decode(cls, data: bytes) -> "Job":
        """Return a job as it was stored.

        Raises ValueError for one that is damaged, or of another version.
        """
        try:
            told: dict[str, Any] = orjson.loads(data)
            if (version := told.pop("v")) != JOB_VERSION:
                raise ValueError(f"it has version {version}, and {JOB_VERSION} is read")
            told["schedule"] = Schedule(**told["schedule"])
            told["session"] = SessionKey.parse(told["session"])
            told["people"] = tuple(told["people"])
            return cls(**told, stored=data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None
