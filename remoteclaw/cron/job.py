"""A cron job: a message for a session, its schedule, and its stored form."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from remoteclaw.cron.schedule import Schedule
from remoteclaw.messages import ChannelMessage, Provenance, SessionKey

#: The version of the stored form. A scheduler doesn't touch jobs of another version.
JOB_VERSION = 5

#: The treatment of a due time at which no scheduler was running: it is skipped if it is older than
#: `GRACE_S`, or run once at any age.
Misfire = Literal["skip", "run_once"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A scheduled message for a session, and the result of its last run."""

    id: str
    name: str
    schedule: Schedule
    message: str
    session: SessionKey
    """The session to which the job belongs, and to which it sends the message."""
    enabled: bool
    created_ms: int
    people: tuple[str, ...] = ()
    """The people on whose behalf the job was created or changed, each as CHANNEL:ID. A run has the
    rights that they have at the time of the run."""
    has_read_web: bool = False
    """Whether a turn that has added or changed the job had read what others have written."""
    misfire: Misfire = "skip"
    alert_after: int = 0
    """The number of failures in a row after which the chat is notified; 0 for never."""
    next_ms: int | None
    """The next due time; None for never. Every firing changes it, so that a concurrent change of
    the job is detected."""
    last_ms: int | None = None
    """The last due time that was fired."""
    running: str | None = None
    """The name of the last run that was begun; None once it is settled."""
    missed_ms: int | None = None
    """The first due time that was skipped because that run was unfinished."""
    failures: int = 0
    """The number of scheduled runs in a row that failed."""
    last_status: str | None = None
    """The final status of the last run that was settled."""
    last_detail: str | None = None
    last_duration_ms: int | None = None
    stored: str | bytes = field(default=b"", compare=False, repr=False)
    """The stored form that was read: a write is refused if the stored job differs from it."""

    @property
    def is_once(self) -> bool:
        """Whether the job is due once; it is removed after a successful run."""
        return self.schedule.at is not None

    @property
    def provenance(self) -> Provenance | None:
        """The origin of the job's messages, if that matters to what their turns may do."""
        return Provenance(by=str(self.session), has_read_web=True) if self.has_read_web else None

    def with_next_due(self, next_ms: int | None) -> "Job":
        """Return the job with its next due time; with None it is disabled, and kept."""
        return replace(self, next_ms=next_ms, enabled=self.enabled and next_ms is not None)

    def with_run(self, run: str) -> "Job":
        """Return the job with `run` as its open run."""
        return replace(self, running=run, missed_ms=None)

    def message_at(self, due_ms: int, *, name: str | None = None) -> ChannelMessage:
        """Return the job's message for the run at `due_ms`, or for the manual run `name`.

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
        """Return the stored form of the job."""
        values = {**asdict(self), "session": str(self.session), "v": JOB_VERSION}
        del values["stored"]
        if not self.has_read_web:  # an earlier RemoteClaw doesn't know the field
            del values["has_read_web"]
        return orjson.dumps(values)

    @classmethod
    def decode(cls, data: str | bytes) -> "Job":
        """Return a job from its stored form.

        Raises ValueError if the job is damaged or of another version.
        """
        try:
            values: dict[str, Any] = orjson.loads(data)
            if (version := values.pop("v")) != JOB_VERSION:
                raise ValueError(
                    f"its version is {version}, and this RemoteClaw reads {JOB_VERSION}"
                )
            values["schedule"] = Schedule(**values["schedule"])
            values["session"] = SessionKey.parse(values["session"])
            values["people"] = tuple(values["people"])
            return cls(**values, stored=data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None
