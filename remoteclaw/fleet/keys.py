"""The names of all keys in Redis, in one place.

Keys of one session share the hash tag `{sid}`.
Scripts build none of them but are given all they touch, except where the name is known only inside:
an entry's outcome and a swept session's state (they get the prefix), the queue of a host, and what
belongs to the sessions that a session has started.
"""

import hashlib
from dataclasses import replace
from typing import Literal

from remoteclaw.clock import boot_id
from remoteclaw.messages import SessionKey

Lane = Literal["agents", "background"]

#: Sessions that have work, scored with the time (ms) at which the sweeper looks at them.
ACTIVE = "rc:active"
#: Every session, scored with the time (ms) of its last message.
SESSIONS = "rc:sessions"
#: String that exists while a sweeper looks.
SWEEPER = "rc:sweeper"
#: A stream of one entry that changes with every hint: lingering drains listen to it.
WAKE = "rc:wake"
#: A stream: entries that were given up, until somebody retries or drops them.
DEAD_LETTERS = "rc:dead"
#: A stream: replies that no adapter could read, as they were, each with where it stood.
DAMAGED_REPLIES = "rc:damaged"
#: The lanes, each an RQ queue: what people send, and what nobody waits for at a keyboard.
#: A lane's name with `@` and a host's id behind it is for its sessions whose agent is there.
LANES: tuple[Lane, ...] = ("agents", "background")
#: With a session's hash tag behind it, that session's state, and its inbound stream.
STATE_PREFIX, INBOUND_PREFIX = "rc:st:", "rc:in:"
#: Hash: cron jobs by id, as JSON. Sorted set: their ids, scored with when they are due (ms).
CRON_JOBS, CRON_DUE = "rc:cron:jobs", "rc:cron:due"
#: List: how the last runs of all cron jobs ended, and due times without one, newest first.
CRON_RUNS = "rc:cron:runs"
#: Hash: what each agent's turns took since its first one, as numbers (`fleet.usage`).
USAGE = "rc:usage"
#: Sorted set: turns that wait for another session's, scored with when they stop to, at last (ms).
WAITS = "rc:waits"
#: Hash: runs of cron jobs that are not settled, by name, each with the key of its entry's outcome,
#: and JSON. Sorted set: their names, scored with when it is looked next whether they are over (ms).
CRON_OPEN, CRON_LOOKS = "rc:cron:open", "rc:cron:looks"
#: String that exists while a scheduler looks for cron jobs that are due.
CRON_SCHEDULER = "rc:cron:scheduler"
#: Hash: changes of configurations that wait to be confirmed, by id, as JSON.
CONFIG_PENDING = "rc:config:pending"
#: Hash: operators' tokens for the gateway, by id, as JSON; secrets only as digests.
TOKENS = "rc:tokens"
#: In place of a session's key where an operator calls: nothing is there, and nothing is written.
NOBODY = "rc:nobody"
#: In place of a session's id where an operator calls.
OPERATOR = "operator"
#: Sorted set: the accounts that adapters read for, or did of late, scored with the end of the claim
#: to do so (ms).
READERS = "rc:readers"
#: Channel: says nothing, to those who listen to no other yet.
NOTHING = "rc:nothing"
#: RQ's own: every worker, and every queue.
RQ_WORKERS, RQ_QUEUES = "rq:workers", "rq:queues"


def lane_on(lane: Lane, host: str) -> str:
    """RQ queue: a lane's hints for the sessions whose agent is on a host."""
    return f"{lane}@{host}"


def is_lane(queue: str) -> bool:
    """Whether an RQ queue is one of ours."""
    return queue.partition("@")[0] in LANES


def rq_queue(queue: str) -> str:
    """List: RQ's own, the jobs of a queue."""
    return f"rq:queue:{queue}"


def rq_job(job_id: str) -> str:
    """Hash: RQ's own, a job."""
    return f"rq:job:{job_id}"


def rq_worker(name: str) -> str:
    """Hash: RQ's own, a worker."""
    return f"rq:worker:{name}"


def rq_commands(worker_name: str) -> str:
    """Channel: RQ's own, on which a worker takes commands."""
    return f"rq:pubsub:{worker_name}"


def competing(lane: Lane, host: str) -> list[str]:
    """Return the lists whose hints are as urgent as a lane's, or more, for workers of a host."""
    lanes = LANES[: LANES.index(lane) + 1]
    return [rq_queue(name) for each in lanes for name in (each, lane_on(each, host))]


def host(queue: str) -> str:
    """String that exists while a worker serves a host's queue."""
    return f"rc:host:{queue}"


def worker(hostname: str, pid: int) -> str:
    """String that exists while a worker of ours does, by the names under which RQ knows it."""
    return f"rc:worker:{hostname}:{pid}"


def inbound(sid: str) -> str:
    """Stream: what the session has still to answer, oldest first."""
    return f"{INBOUND_PREFIX}{{{sid}}}"


def state(sid: str) -> str:
    """Hash: lease, recorded batch, phase, stop mark, agent, host, lane, queue settings."""
    return f"{STATE_PREFIX}{{{sid}}}"


def outcome_prefix(sid: str) -> str:
    """With an entry's id behind it, a hash: what became of that entry, and when."""
    return f"rc:oc:{{{sid}}}:"


def children(sid: str) -> str:
    """Sorted set: the sessions that it has started, scored with when (ms)."""
    return f"rc:kids:{{{sid}}}"


def spawned(sid: str) -> str:
    """Hash: what the unfinished turn has started, by what was asked for; and how often who did."""
    return f"rc:spawned:{{{sid}}}"


def labels(agent: str) -> str:
    """Hash: the sessions of an agent that have a label, by it."""
    return f"rc:labels:{agent}"


def limit(login: str) -> str:
    """String: until when a login's plan allows nothing more (ms); expires then."""
    return f"rc:limit:{login}"


def session_map(sid: str) -> str:
    """Hash: runtime and workspace → the CLI's own session id."""
    return f"rc:map:{{{sid}}}"


def record(sid: str) -> str:
    """String: the conversation so far, as lines of JSON."""
    return f"rc:rec:{{{sid}}}"


def archive(sid: str) -> str:
    """List: the session's ended conversations, newest first: which turn ended each, when, and why.

    With a colon and that turn's id behind it, a string: the record of the conversation.
    """
    return f"rc:old:{{{sid}}}"


def blob(sid: str, name: str) -> str:
    """String: what is in a file that came with a message or goes with a reply."""
    return f"{blob_prefix(sid)}{name}"


def blob_prefix(sid: str) -> str:
    """With a blob's name behind it, its key."""
    return f"rc:blob:{{{sid}}}:"


def stored(sid: str) -> str:
    """String: how many bytes of files the session has stored within the hour."""
    return f"rc:stored:{{{sid}}}"


def sent(session: SessionKey) -> str:
    """Hash: what the tools of a person's turns in a chat have sent within the hour.

    Threads and tasks count together: each could begin any number of them.
    """
    return f"rc:sent:{{{replace(session, thread=None, task=None).sid}}}"


def retried(letter_id: str) -> str:
    """String: the entry that a dead letter became when it was retried."""
    return f"rc:retried:{letter_id}"


def live(sid: str) -> str:
    """String: the answer as far as it has come; also the channel that announces it."""
    return f"rc:live:{{{sid}}}"


def effects(sid: str) -> str:
    """List: what the tools of the unfinished turn did, as JSON."""
    return f"rc:fx:{{{sid}}}"


def call(name: str) -> str:
    """String: what came of a call, by its name among all: asked again, it is not done again."""
    return f"rc:call:{name}"


def cron_runs(job_id: str) -> str:
    """List: how a cron job's last runs ended, and due times without one, newest first."""
    return f"{CRON_RUNS}:{job_id}"


def config_changes(who: str) -> str:
    """List: when somebody's last changes of a configuration were made (ms), newest first."""
    return f"rc:config:changes:{who}"


def usage_day(day: str) -> str:
    """Hash: what each session's turns took on a day, by agent and session id, as numbers."""
    return f"{USAGE}:{day}"


def gateway(host_id: str) -> str:
    """String that exists while this host has a gateway: its address, which is only good here."""
    return f"rc:gateway:{host_id}:{boot_id()}"


def answers(name: str) -> str:
    """Stream: what adapters tell of a call's messages and operations, one entry for each."""
    return f"rc:answer:{name}"


def bell(sid: str) -> str:
    """Channel: tells a running turn of what a person has sent, and of a stop."""
    return f"rc:bell:{{{sid}}}"


def outcome_channel(sid: str) -> str:
    """Channel: names each entry whose outcome is final."""
    return f"rc:done:{{{sid}}}"


def reply_stream(provider: str, account: str) -> str:
    """Stream: what an adapter has still to deliver, oldest first."""
    return f"rc:out:{provider}:{account}"


def reader(provider: str, account: str) -> str:
    """String: the token of the one adapter that may read the reply stream."""
    return f"rc:reader:{provider}:{account}"


def dedupe(session: SessionKey, message_id: str) -> str:
    """String: the entry that a session's message became; sending it again finds the same."""
    digest = hashlib.sha256(f"{session}\0{message_id}".encode()).hexdigest()[:32]
    return f"rc:seen:{digest}"
