"""A cron job: a message for a session, its schedule, and its stored form."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from remoteclaw.cron.schedule import GRACE_S, ON_TIME_MS, Schedule
from remoteclaw.messages import ChannelMessage, SessionKey, person

__all__ = ["JOB_VERSION", "Job", "Maker", "Misfire", "NewerJob", "Policy", "State"]

#: The newest form of a job. A scheduler leaves alone what has a higher number; 1 had no policy and
#: no state, 2 named no people, and those that know only them would throw these away.
JOB_VERSION = 3

#: What becomes of a due time that nobody fired then: it is run if it is less than a grace old, not
#: at all, or once, however old it is.
Misfire = Literal["grace", "skip", "run_once"]


class NewerJob(Exception):
    """Raised for a job that a newer RemoteClaw has written: its schedulers can read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Who made a job."""

    operator: str | None = None
    """The name of an operator's token, if one did."""
    agent: str | None = None
    """The agent that did in a turn."""
    session: str | None = None
    """The key of that turn's session."""
    people: tuple[str, ...] = ()
    """The people on whose behalf, as entries name them: a run has the rights that they have then.
    Who changes a job is added, because they have a part in what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is to be done where a job doesn't go as it should."""

    misfire: Misfire = "grace"
    grace_s: int = GRACE_S
    """How old a due time may be that is still run, where the misfire policy is a grace."""
    delete_after_run: bool | None = None
    """Whether the job is removed after a run that went well. None: if it is due once."""
    alert_after: int | None = None
    """After how many failures in a row the chat is told; 0: never. None: as is configured."""
    alert_cooldown_s: int | None = None
    """How long it isn't told again. None: as is configured."""

    @property
    def late_ms(self) -> int | None:
        """How late a run may begin; None if however late."""
        if self.misfire == "run_once":
            return None
        return ON_TIME_MS if self.misfire == "skip" else self.grace_s * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How a job's runs have gone."""

    running: str | None = None
    """The name of the run that was begun last, until that is settled."""
    missed_ms: int | None = None
    """The first due time that came while that one was not finished."""
    failures: int = 0
    """How many runs in a row have failed, of those that the clock began."""
    alerted_ms: int | None = None
    """When the chat was told last."""
    last_status: str | None = None
    """How the run ended that was settled last."""
    last_detail: str | None = None
    last_duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A message that a session is given by the clock."""

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
    """When it is due next; None if it isn't. It changes with every firing, so that whoever changes
    a job finds out that it was fired meanwhile."""
    last_ms: int | None = None
    """The due time that was fired last."""
    policy: Policy = Policy()
    state: State = State()
    stored: bytes = field(default=b"", compare=False, repr=False)
    """The job as it was read: who writes it says so."""

    @property
    def is_once(self) -> bool:
        """Whether it is due once."""
        return self.schedule.at is not None

    @property
    def goes_after_run(self) -> bool:
        """Whether it is removed after a run that went well."""
        wanted = self.policy.delete_after_run
        return self.is_once if wanted is None else wanted

    def begun(self, run: str) -> "Job":
        """Return the job while a run of it is open."""
        return replace(self, state=replace(self.state, running=run, missed_ms=None))

    def entry(self, due_ms: int, *, name: str | None = None) -> ChannelMessage:
        """Return the message of a due time, or of a run of another name.

        Raises `MessageRefused` for what can be none.
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

        Raises `NewerJob` if a newer RemoteClaw has to do that, and ValueError if nobody can.
        """
        try:
            told: dict[str, Any] = orjson.loads(data)
            if told.pop("v") > JOB_VERSION:
                raise NewerJob
            told["schedule"] = Schedule(**told["schedule"])
            told["session"] = SessionKey.parse(told["session"])
            told["maker"] = _maker(told["maker"], told["session"])
            told["policy"] = Policy(**told.get("policy", {}))
            told["state"] = State(**told.get("state", {}))
            return cls(**told, stored=data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is damaged ({type(error).__name__})") from None


def _maker(told: dict[str, Any], session: SessionKey) -> Maker:
    """Return who made a job. Until the third version it said only whether for an owner."""
    if told.pop("for_owner", False):
        return Maker(**told, people=(person(session.provider, session.user),))
    return Maker(**{**told, "people": tuple(told.get("people", ()))})
