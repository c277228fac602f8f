"""A cron job: a message for a session, its schedule, and its stored form."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from remoteclaw.cron.schedule import Schedule
from remoteclaw.messages import ChannelMessage, SessionKey

__all__ = ["JOB_VERSION", "Job", "Maker", "Misfire", "NewerJob", "Policy", "State"]

#: The form of a stored job. A scheduler leaves a job with a higher number to a newer one.
JOB_VERSION = 4

#: What happens to a due time that no scheduler fired: it is skipped once it is older than the
#: grace, or run once at any age.
Misfire = Literal["skip", "run_once"]


class NewerJob(Exception):
    """Raised for a job that a newer RemoteClaw has written: its schedulers can read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Who made a job."""

    operator: str | None = None
    """The name of an operator's token."""
    agent: str | None = None
    """The agent that made it in a turn."""
    session: str | None = None
    """The key of that turn's session."""
    people: tuple[str, ...] = ()
    """The people on whose behalf it was made or changed, as entries name them. A run has the rights
    that they have at that time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings for missed, finished and failed runs."""

    misfire: Misfire = "skip"
    delete_after_run: bool | None = None
    """Whether the job is removed after a successful run. None: if it is due once."""
    alert_after: int = 0
    """After how many failures in a row the chat is told; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Results of a job's runs."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A scheduled message for a session."""

    id: str
    name: str
    schedule: Schedule
    message: str
    session: SessionKey
    """The session that it belongs to and writes to."""
    enabled: bool
    created_ms: int
    maker: Maker
    next_ms: int | None
    """When it is due next; None for never. Every firing changes it, so that a concurrent change of
    the job is noticed."""
    last_ms: int | None = None
    """The due time that was fired last."""
    policy: Policy = Policy()
    state: State = State()
    stored: bytes = field(default=b"", compare=False, repr=False)
    """The job as it was read: writes are refused if it has changed since."""

    @property
    def is_once(self) -> bool:
        """Whether it is due once."""
        return self.schedule.at is not None

    @property
    def goes_after_run(self) -> bool:
        """Whether it is removed after a successful run."""
        wanted = self.policy.delete_after_run
        return self.is_once if wanted is None else wanted

    def begun(self, run: str) -> "Job":
        """Return the job while a run of it is open."""
        return replace(self, state=replace(self.state, running=run, missed_ms=None))

    def entry(self, due_ms: int, *, name: str | None = None) -> ChannelMessage:
        """Return the message of a due time, or of a run with another name.

        Raises `MessageRefused` for an invalid message.
        """
        return ChannelMessage.checked(
            id=f"cron-{self.id}-{name or due_ms}",
            text=self.message,
            from_=self.session.user,
            user_name=f"cron job {self.name}",
            channel_id=self.session.channel_id,
            provider=self.session.provider,
            account=self.session.account,
            thread_id=self.session.thread,
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

        Raises `NewerJob` for one of a newer version, and ValueError for one that is damaged.
        """
        try:
            told: dict[str, Any] = orjson.loads(data)
            if told.pop("v") > JOB_VERSION:
                raise NewerJob
            told["schedule"] = Schedule(**told["schedule"])
            told["session"] = SessionKey.parse(told["session"])
            maker = told["maker"]
            told["maker"] = Maker(**{**maker, "people": tuple(maker["people"])})
            told["policy"] = Policy(**told["policy"])
            told["state"] = State(**told["state"])
            return cls(**told, stored=data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None
