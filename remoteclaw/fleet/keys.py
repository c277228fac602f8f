"""The names of all keys in Redis.

A key is `rc:` and its name here, with `-` for `_`, then what it belongs to. RQ's keys are RQ's.
Keys of one session share the hash tag `{sid}`.
A script is given the keys that it touches, except keys whose names only the script itself knows:
the outcome of an entry, a file, and the sums of a day or a month (it is given the beginnings of
their keys), the queue of a host, the record of an ended conversation, and the keys of other
sessions.
"""

import hashlib
from dataclasses import replace
from typing import Literal
from urllib.parse import quote

from remoteclaw.clock import boot_id
from remoteclaw.messages import ChatPlace, SessionKey

Lane = Literal["agents", "background"]

#: Sorted set: the sessions that have work, scored by when the sweeper checks them next (ms).
ACTIVE = "rc:active"
#: Sorted set: all sessions, scored by the time of their last message (ms).
SESSIONS = "rc:sessions"
#: String: the time of the last sweep (ms); expires after 30 seconds.
SWEEPER = "rc:sweeper"
#: Stream: a single entry, replaced with every hint, so that lingering drains notice new work.
WAKE = "rc:wake"
#: String: the secret of the digests by which the fleet tells accounts of providers apart.
ACCOUNT_DIGESTS = "rc:account-digests"
#: Stream: the dead letters, which are abandoned messages and replies, until an operator retries or
#: drops them.
DEAD_LETTERS = "rc:dead-letters"
#: The lanes, each with an RQ queue: messages of people, then work that no person waits for. The
#: queue LANE@HOST has a lane's hints for the sessions whose agent is on that host. LANE.LABEL and
#: LANE.LABEL@HOST have those for workers with a label.
LANES: tuple[Lane, ...] = ("agents", "background")
#: Hash: the cron jobs by id, as JSON.
CRON_JOBS = "rc:cron-jobs"
#: Sorted set: the ids of cron jobs, scored by when they are due (ms).
CRON_DUE = "rc:cron-due"
#: List: how the latest runs of all cron jobs ended, and which due times had no run, newest first;
#: 30 days.
CRON_RUNS = "rc:cron-runs"
#: Hash: the total tokens, time and cost of each agent's turns and asides, as numbers.
USAGE = "rc:usage"
#: Hash: the turns by agent, status and error, and the histograms of durations by agent or channel,
#: as numbers (`fleet.metrics`).
METRICS = "rc:metrics"
#: Stream: the turns that failed lately, at most 200; expires a day after the last one.
FAILED_TURNS = "rc:failed-turns"
#: Sorted set: the turns that wait for another session's turn, scored by when they stop waiting
#: (ms).
WAITS = "rc:waits"
#: Hash: the unsettled runs of cron jobs by name, each with the key of its entry's outcome, and
#: JSON.
CRON_OPEN = "rc:cron-open"
#: String: exists while a scheduler checks for due cron jobs; expires 30 seconds after its last
#: check.
CRON_SCHEDULER = "rc:cron-scheduler"
#: Sorted set: the ids of the requests to people that are open, lapsed or granted, scored by when
#: that ends (ms).
REQUESTS = "rc:requests"
#: Set: the ids of the answered requests for a change of the configuration that are not carried out
#: yet.
CHANGES = "rc:changes"
#: Channel: announces the id of each request to people that is new or has changed.
REQUEST_UPDATES = "rc:request-updates"
#: Channel: announces that the list of sessions, their usage or the dead letters have changed.
SESSION_UPDATES = "rc:session-updates"
#: Channel: announces that cron jobs or their runs have changed.
CRON_UPDATES = "rc:cron-updates"
#: String: exists briefly after a turn that waits for a person has released its worker, so that only
#: one turn at a time does so.
WORKER_RELEASE = "rc:worker-release"
#: Hash: the operators' tokens for the gateway by id, as JSON; secrets are stored as digests only.
TOKENS = "rc:tokens"
#: Hash: the links with which guests watch a terminal, by id, as JSON; their secrets are stored as
#: digests only. Links that have expired are removed when the next one is made.
GUEST_LINKS = "rc:guest-links"
#: Stream: the audit log of terminals, as JSON; about the latest 10,000 entries.
AUDIT = "rc:audit"
#: Sorted set: the ids of revoked JSON Web Tokens, scored by when every token with that id has
#: expired (ms).
REVOKED_JWTS = "rc:revoked-jwts"
#: Sorted set: the users whose JSON Web Tokens are revoked, as KEY/SUB, scored by the issue time of
#: the last token that is invalid (ms).
REVOKED_JWT_USERS = "rc:revoked-jwt-users"
#: String: never written; stands for an optional key that a script is not given.
NO_KEY = "rc:no-key"
#: String: written for a second, to see whether Redis takes writes.
PROBE = "rc:probe"
#: Stands for a session's id in the calls of operators.
OPERATOR = "operator"
#: Sorted set: the accounts whose replies an adapter reads, or has read within 7 days, scored by
#: when its claim ends (ms).
READERS = "rc:readers"
#: Channel: has no messages; a gateway subscribes to it so that its connection listens before a
#: client follows a session.
IDLE_CHANNEL = "rc:idle-channel"
#: Channel: announces each change of a task or branch by the ids of the sessions above it, nearest
#: first.
TASK_UPDATES = "rc:task-updates"
#: Channel: announces each event in a chat of the page, with its chat.
WEB_UPDATES = "rc:web-updates"
#: Hash: the people and groups that were granted access, by provider, account and id, as JSON.
PAIRED = "rc:paired"
#: Hash: what contains a group chat, such as a server, narrowest first, by provider, account and
#: chat, as JSON.
WITHIN = "rc:within"
#: Hash: the strangers who ask for access, by their pairing code, as JSON; an hour.
PAIRING = "rc:pairing"
#: Sorted set: the sessions whose terminals are open or opening, scored by when that was requested
#: (ms).
TERMINALS = "rc:terminals"
#: Channel: announces the id of each session whose terminal has changed.
TERMINAL_UPDATES = "rc:terminal-updates"
#: Hash: the drained hosts, whose workers take no more work, by id: since when (ms).
DRAINED = "rc:drained"
#: Hash: the processes of the fleet by kind, host and process id: host name, version and times, as
#: JSON. A worker also has the identity of its process, which counts until 15 seconds after its last
#: heartbeat. A process that has not announced itself for a minute is gone.
PROCESSES = "rc:processes"
#: String: the time of the backup (ms) from which the fleet was restored, while it is paused.
RESTORED = "rc:restored"
#: String: when a restored fleet was started (ms): the lost one may have answered messages from
#: before; 90 days.
ANSWERED_UNTIL = "rc:answered-until"
#: Hash: the labels of the workers that run an agent's turns, by agent, for agents that have one.
POOLS = "rc:pools"
#: RQ's own sets of all workers and of all queues.
RQ_WORKERS, RQ_QUEUES = "rq:workers", "rq:queues"


def lane_for(lane: Lane, label: str) -> str:
    """RQ queue: the hints of a lane for the workers with a label; an empty one is no label."""
    return f"{lane}.{label}" if label else lane


def lane_on(lane: Lane, host: str, label: str = "") -> str:
    """RQ queue: the hints of a lane for the sessions whose agent is on a host."""
    return f"{lane_for(lane, label)}@{host}"


def is_lane(queue: str) -> bool:
    """Whether an RQ queue is one of RemoteClaw's."""
    return queue.partition("@")[0].partition(".")[0] in LANES


def rq_queue(queue: str) -> str:
    """List: the jobs of a queue; written by RQ."""
    return f"rq:queue:{queue}"


def rq_job(job_id: str) -> str:
    """Hash: a job; written by RQ."""
    return f"rq:job:{job_id}"


def rq_worker(name: str) -> str:
    """Hash: a worker; written by RQ."""
    return f"rq:worker:{name}"


def rq_commands(worker_name: str) -> str:
    """Channel: the commands for a worker; read by RQ."""
    return f"rq:pubsub:{worker_name}"


def competing(lane: Lane, host: str, label: str = "") -> list[str]:
    """Return the RQ lists whose hints are at least as urgent as those of `lane`, for workers of
    `host` with a label."""
    return [
        rq_queue(name)
        for each in LANES[: LANES.index(lane) + 1]
        for name in (lane_for(each, label), lane_on(each, host, label))
    ]


def host(queue: str) -> str:
    """String: exists while a worker serves a host's queue; expires 15 seconds after the worker's
    last heartbeat."""
    return f"rc:host:{queue}"


def worker(hostname: str, pid: int) -> str:
    """String: exists while a worker runs, by the host name and process id that RQ knows, for hosts
    with the same id and earlier versions; expires 15 seconds after its last heartbeat."""
    return f"rc:worker:{hostname}:{pid}"


def inbound(sid: str) -> str:
    """Stream: the session's unfinished entries, oldest first."""
    return f"rc:inbound:{{{sid}}}"


def edits(sid: str) -> str:
    """Hash: the newest versions of waiting entries that their senders have edited, by entry id."""
    return f"rc:edits:{{{sid}}}"


def state(sid: str) -> str:
    """Hash: the session's state: lease, recorded batch and phase, stop mark, agent, host, lane,
    label, title, parent, queue settings, model, project, usage (`tree SID`: with its tasks) and
    times."""
    return f"rc:state:{{{sid}}}"


def outcome(sid: str, entry: str = "") -> str:
    """Hash: the outcome of an entry, and its times; 7 days, or an hour while memory is short.

    Without `entry`, this is the beginning of the keys of all outcomes of the session.
    """
    return f"rc:outcome:{{{sid}}}:{entry}"


def children(sid: str) -> str:
    """Sorted set: the sessions that the session has started, scored by when (ms): all unfinished
    ones, and at most 50 others."""
    return f"rc:children:{{{sid}}}"


def spawned(sid: str) -> str:
    """Hash: the sessions that the unfinished turn has started, so that its next attempt does not
    start them again; a day."""
    return f"rc:spawned:{{{sid}}}"


def labels(agent: str) -> str:
    """Hash: the ids of an agent's labelled sessions, by label."""
    return f"rc:labels:{agent}"


def session_map(sid: str) -> str:
    """Hash: the CLIs' own conversations as JSON, by agent, runtime and workspace; 7 days from the
    last use."""
    return f"rc:session-map:{{{sid}}}"


def identity(digest: str) -> str:
    """String: an agent's identity in conversations, as JSON, by its digest; 30 days from the last
    turn with it."""
    return f"rc:identity:{digest}"


def identity_files(agent: str) -> str:
    """Hash: the texts of an agent's identity files as they last could be read, by name."""
    return f"rc:identity-files:{agent}"


def memory(agent: str) -> str:
    """Hash: an agent's memory: its text, the number of its changes, and the text of the file
    MEMORY.md as each host has last written it."""
    return f"rc:memory:{agent}"


def memory_log(agent: str) -> str:
    """List: the latest changes of an agent's memory as JSON, newest first, each with the text
    before it."""
    return f"rc:memory-log:{agent}"


def record(sid: str) -> str:
    """String: the conversation's record, as lines of JSON; `[record]` sets its time and size."""
    return f"rc:record:{{{sid}}}"


def aside_notes(sid: str) -> str:
    """List: notes for the agent about asides, and about messages that others sent into the
    session's chat, as JSON, oldest first; until the agent's next turn, at most a week."""
    return f"rc:aside-notes:{{{sid}}}"


def archive(sid: str) -> str:
    """List: the session's ended conversations, newest first: the turn that ended each, when and
    why."""
    return f"rc:archive:{{{sid}}}"


def blob(sid: str, name: str = "") -> str:
    """String: the content of a file; an hour until a message names it, then until the outcome or
    the receipt. The file of a request to people is kept as long as the request.

    Without `name`, this is the beginning of the keys of all files of the session.
    """
    return f"rc:blob:{{{sid}}}:{name}"


def stored(sid: str) -> str:
    """String: the bytes of files that the chat has stored within the hour."""
    return f"rc:stored:{{{sid}}}"


def sent(session: SessionKey) -> str:
    """Hash: the numbers of messages and bytes that the tools of a chat's turns have sent within the
    hour.

    Threads and tasks of a chat count together, because each can begin any number of them.
    """
    return f"rc:sent:{{{replace(session, thread=None, task=None).sid}}}"


def retried(letter_id: str) -> str:
    """String: the id of the entry that a dead letter became when it was retried; 7 days."""
    return f"rc:retried:{letter_id}"


def live(sid: str) -> str:
    """String: the answer so far and the running tools, until the turn ends; also the channel that
    announces it."""
    return f"rc:live:{{{sid}}}"


def live_of(provider: str, account: str) -> str:
    """Channel: announces the live text of all turns whose replies go to an account."""
    return f"rc:live-of:{provider}:{account}"


def previews(provider: str, account: str) -> str:
    """Hash: the previews in an account's chats, by session and message, as JSON; until the answer
    replaces them."""
    return f"rc:previews:{provider}:{account}"


def signs(provider: str, account: str) -> str:
    """Hash: the messages in an account's chats that show their state, by chat and message, as JSON;
    until their outcome is shown."""
    return f"rc:signs:{provider}:{account}"


def side_effects(sid: str) -> str:
    """List: the side effects of the unfinished turn's tools, in all attempts, as JSON."""
    return f"rc:side-effects:{{{sid}}}"


def call(name: str) -> str:
    """String: the result of a tool call, kept so that the call is performed only once; a day."""
    return f"rc:call:{name}"


def cron_job_runs(job_id: str) -> str:
    """List: how a cron job's latest runs ended, and which due times had no run, newest first; 30
    days."""
    return f"rc:cron-job-runs:{job_id}"


def usage_day(day: str) -> str:
    """Hash: the tokens, time and cost of each session's turns and asides on a day, by agent and
    session id, as numbers; 93 days."""
    return f"rc:usage-day:{day}"


def usage_hour(hour: str) -> str:
    """Hash: the tokens, time and cost of each `agent NAME` in an hour (2026-11-26T09), as numbers;
    `wait` is the longest wait of a message whose turn ended then, in milliseconds; 9 days."""
    return f"rc:usage-hour:{hour}"


def spent(period: str) -> str:
    """Hash: the tokens, time and cost of a day or a month (2026-11-26, 2026-11), as numbers: of
    `all`, of each `agent NAME` and of each `person NAME`, whose shares of a turn add up to it; 93
    days."""
    return f"rc:spent:{period}"


def cool(runtime: str, account: str, model: str) -> str:
    """String: why and until when a model of a provider's account is left alone; until then.
    `account` is a digest that no key or account can be computed from."""
    return f"rc:cool:{runtime}:{account}:{model}"


def gateway(host_id: str) -> str:
    """String: the address of a host's gateway, for processes of this machine only; expires 30
    seconds after its last announcement."""
    return f"rc:gateway:{host_id}:{boot_id()}"


def login(code_digest: str) -> str:
    """String: the rights that a login code for the page grants, as JSON; 10 minutes, or until it is
    used."""
    return f"rc:login:{code_digest}"


def web(chat: str) -> str:
    """Stream: the events in a person's chat, oldest first; as long as a record, at least a day."""
    return f"rc:web:{{{chat}}}"


def web_event_ids(chat: str) -> str:
    """Hash: the ids of the events in a person's chat, by the name of their cause, so that each is
    added once, and the chat's `agent`; as long as the chat."""
    return f"rc:web-event-ids:{{{chat}}}"


def web_chats(person: str) -> str:
    """Sorted set: a person's chats, scored by the time of the person's last message
    (ms); as long as a record."""
    return f"rc:web-chats:{person}"


def pushes(person: str) -> str:
    """Hash: a person's browsers that get push notifications, by the ids of their tokens, as JSON;
    90 days from when the page was last opened in one of them."""
    return f"rc:pushes:{person}"


def receipts(name: str) -> str:
    """Stream: the receipts for a tool call's messages and operations, one entry each; a day."""
    return f"rc:receipts:{name}"


def bell(sid: str) -> str:
    """Channel: notifies a running turn of a person's message, or of a stop."""
    return f"rc:bell:{{{sid}}}"


def outcome_channel(sid: str) -> str:
    """Channel: announces the id of each entry whose outcome is final."""
    return f"rc:outcome-channel:{{{sid}}}"


def request(request_id: str) -> str:
    """Hash: a request to people: what is asked for, its state, its answer, and the message that
    shows it; as long as a record after it is closed."""
    return f"rc:request:{request_id}"


def session_requests(sid: str) -> str:
    """Sorted set: the ids of the session's requests to people, by when they were made (ms)."""
    return f"rc:session-requests:{{{sid}}}"


def shown_requests(chat: ChatPlace) -> str:
    """Sorted set: the ids of other conversations' requests that a chat shows, scored by when they
    were shown (ms), and an empty member for the last message of an agent there; a day."""
    place = quote(str(chat), safe="/:")
    return f"rc:shown-requests:{place}"


def budget(budget_id: str) -> str:
    """Hash: what owners have decided about a budget in one period, the request to them, and who
    was told about its limit; until a day after the period, 31 days for that of a tree."""
    return f"rc:budget:{budget_id}"


def rules(sid: str) -> str:
    """Hash: the permissions that people have given for the session's conversation, by rule and by
    the person for whom, as JSON; until the conversation ends."""
    return f"rc:rules:{{{sid}}}"


def grants(sid: str) -> str:
    """Hash: the ids of requests that were allowed after their turn, by the digest of what they
    allow once; an hour."""
    return f"rc:grants:{{{sid}}}"


def unreported_denials(sid: str) -> str:
    """Hash: the denied requests whose reason the agent has not received yet, each with the turn
    that reports it, if any; until the turn after that, as long as a record, and at least a day."""
    return f"rc:unreported-denials:{{{sid}}}"


def replies(provider: str, account: str) -> str:
    """Stream: an account's undelivered replies, oldest first; at most 32 MB and 3 days once no
    adapter has read it for an hour."""
    return f"rc:replies:{provider}:{account}"


def account_of(replies: str) -> tuple[str, str]:
    """Return the provider and the account of a reply stream."""
    provider, _, account = replies.removeprefix("rc:replies:").partition(":")
    return provider, account


def reader(provider: str, account: str) -> str:
    """String: the token of the one adapter that may read the account's reply stream."""
    return f"rc:reader:{provider}:{account}"


def standbys(provider: str, account: str) -> str:
    """Sorted set: the tokens of the adapters that stand by to read the reply stream, scored by when
    they have to renew that (ms)."""
    return f"rc:standbys:{provider}:{account}"


def delivery_marks(provider: str, account: str) -> str:
    """Hash: how far each reply that is being delivered was sent, by its id on the stream; until the
    receipt."""
    return f"rc:delivery-marks:{provider}:{account}"


def notified(place: ChatPlace) -> str:
    """Hash: the people who had a notice that a topic of a chat refuses replies, each with the time;
    until a reply is delivered there, at most a day."""
    thread = "" if place.thread is None else place.thread
    return f"rc:notified:{place.provider}:{place.account}:{place.chat}:{thread}"


def message_origin(provider: str, account: str, chat: str, message_id: str) -> str:
    """String: the session, turn and entries to which a delivered message belongs, by the platform's
    id of the message, as JSON; 7 days."""
    return f"rc:message-origin:{provider}:{account}:{chat}:{message_id}"


def history(provider: str, account: str, chat: str) -> str:
    """Stream: the messages and reactions of a chat, the latest 150; at most a week after the last
    one."""
    return f"rc:history:{provider}:{account}:{chat}"


def cursors(provider: str, account: str) -> str:
    """Hash: up to where an account's adapter has read each source of its platform, such as a chat;
    everything before a cursor was handled, or is in the account's inbox."""
    return f"rc:cursors:{provider}:{account}"


def first_chat_ids(provider: str, account: str) -> str:
    """Hash: the first ids of the chats whose id their platform has changed, by their new id."""
    return f"rc:first-chat-ids:{provider}:{account}"


def terminal(sid: str) -> str:
    """Hash: the session's terminal as people see it: state, activity, who opened it and who types,
    size, title, and the position up to which its transcript was published; 8 days."""
    return f"rc:terminal:{{{sid}}}"


def terminal_events(sid: str) -> str:
    """Stream: the events for clients that follow the session: states of its terminal, and messages
    in it; the latest 2,000, 7 days."""
    return f"rc:terminal-events:{{{sid}}}"


def terminal_opens(who: str) -> str:
    """Hash: how many terminals a person may still open now, and when that was computed; until the
    allowance is full again."""
    person = quote(who, safe="")
    return f"rc:terminal-opens:{person}"


def inbox(provider: str, account: str) -> str:
    """Hash: the reports of an account that the platform has delivered and that are still being
    handled, by number: how many processes have tried, and the report as JSON."""
    return f"rc:inbox:{provider}:{account}"


def late_messages(provider: str, account: str) -> str:
    """Hash: by place, as JSON, how many messages were too old to be answered, and the times of the
    first and the last (ms); until the chat is told."""
    return f"rc:late-messages:{provider}:{account}"


def adapter_state(provider: str, account: str) -> str:
    """Hash: the values that an account's adapter keeps for its next process, by name; the first
    byte says whether a value is encrypted."""
    return f"rc:adapter-state:{provider}:{account}"


def account(provider: str, account: str) -> str:
    """Hash: the state that an account's process reports: name, problem, counts."""
    return f"rc:account:{provider}:{account}"


def known(session: SessionKey, message_id: str) -> str:
    """String: what is known of a platform's message, so that it is handled once: the id of the
    entry that it became (`-` if it became something else, `~` if it was not for the agent), the
    digest of its content, and `part` if it was joined with others; for an edit, what became of it;
    7 days."""
    if session.is_shared:  # a group may get another agent between a message and its repetition
        session = replace(session, agent="")
    digest = hashlib.sha256(f"{session}\0{message_id}".encode()).hexdigest()[:32]
    return f"rc:known:{digest}"
