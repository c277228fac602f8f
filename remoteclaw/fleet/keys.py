"""The names of all keys in Redis.

Keys of one session share the hash tag `{sid}`.
Scripts are given those that they touch, except where the name is known only inside: an entry's
outcome and a swept session's state (they get the prefix), the queue of a host, an ended
conversation's record, and what belongs to other sessions.
"""

import hashlib
from dataclasses import replace
from typing import Literal
from urllib.parse import quote

from remoteclaw.clock import boot_id
from remoteclaw.messages import ChatPlace, SessionKey

Lane = Literal["agents", "background"]

#: Sorted set: sessions that have work, by when the sweeper looks at them (ms).
ACTIVE = "rc:active"
#: Sorted set: every session, by the time of its last message (ms).
SESSIONS = "rc:sessions"
#: String: when a sweeper last looked; 30 seconds.
SWEEPER = "rc:sweeper"
#: Stream: one entry, new with every hint; lingering drains listen to it.
WAKE = "rc:wake"
#: Stream: dead letters, which are entries that were given up, until an operator retries or drops
#: them.
DEAD_LETTERS = "rc:dead"
#: The lanes, each an RQ queue: what people send, and what no person waits for at a keyboard.
#: A lane's name with `@` and a host's id behind it is for its sessions whose agent is there.
LANES: tuple[Lane, ...] = ("agents", "background")
#: With a session's hash tag behind it, the key of its state.
STATE_PREFIX = "rc:st:"
#: With a session's hash tag behind it, the key of its inbound stream.
INBOUND_PREFIX = "rc:in:"
#: Hash: cron jobs by id, as JSON.
CRON_JOBS = "rc:cron:jobs"
#: Sorted set: ids of cron jobs, by when they are due (ms).
CRON_DUE = "rc:cron:due"
#: List: how the last runs of all cron jobs ended, and the due times that had no run, newest
#: first; 30 days.
CRON_RUNS = "rc:cron:runs"
#: Hash: tokens, time and cost of each agent's turns since its first one, as numbers.
USAGE = "rc:usage"
#: Sorted set: turns that wait for another session's turn, by when they stop to (ms).
WAITS = "rc:waits"
#: Hash: runs of cron jobs that are not settled, by name: the key of the entry's outcome, and
#: JSON.
CRON_OPEN = "rc:cron:open"
#: String: exists while a scheduler looks for due cron jobs; 30 seconds from its last look.
CRON_SCHEDULER = "rc:cron:scheduler"
#: Sorted set: requests to people that can be answered, by when they lapse or expire (ms).
ASKS = "rc:asks"
#: Set: ids of the requests for a change of the configuration that are answered, and not done yet.
CHANGES = "rc:changes"
#: Channel: names each request to people when it is made.
ASKING = "rc:asking"
#: String: exists for a moment after a turn that waited for a person has let its worker go.
LETTING_GO = "rc:letgo"
#: Hash: operators' tokens for the gateway, by id, as JSON; secrets as digests alone.
TOKENS = "rc:tokens"
#: Stream: what was done with terminals, and refused, as JSON: the newest 10,000 or so.
AUDIT = "rc:audit"
#: Sorted set: the ids of revoked JSON Web Tokens, by when the last of them has ended.
JWT_GONE = "rc:jwt:gone"
#: Sorted set: whose JSON Web Tokens are revoked, as KEY/SUB, by up to when they were signed (ms).
JWT_USERS = "rc:jwt:users"
#: String: in place of a key that a script is not given; never written.
NO_KEY = "rc:none"
#: In place of a session's id where an operator calls.
OPERATOR = "operator"
#: Sorted set: accounts that adapters read for, or did within 7 days, by when the claim ends
#: (ms).
READERS = "rc:readers"
#: Channel: nothing is published on it; a gateway subscribes to it, so that its connection listens
#: before a client follows a session.
NOTHING = "rc:nothing"
#: Channel: names the sessions below which something has changed that works for them, the nearest
#: first.
WORK = "rc:work"
#: Channel: names each event of the page's chats, and its chat.
WEB = "rc:web"
#: Hash: people and groups that were let in, by provider, account and id, as JSON.
PAIRED = "rc:paired"
#: Hash: strangers who ask to be let in, by the code that they were told, as JSON; an hour.
PAIRING = "rc:pairing"
#: Sorted set: sessions whose terminals are open, or about to be, by when that was asked for (ms).
TERMINALS = "rc:ttys"
#: Channel: names each session whose terminal has changed.
TERMINAL = "rc:tty"
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
    """String: exists while a worker serves a host's queue; 15 seconds from its last sign of
    life."""
    return f"rc:host:{queue}"


def worker(hostname: str, pid: int) -> str:
    """String: exists while a worker does, named as RQ names it; 15 seconds from its last sign
    of life."""
    return f"rc:worker:{hostname}:{pid}"


def inbound(sid: str) -> str:
    """Stream: the messages that the session has still to answer, oldest first."""
    return f"{INBOUND_PREFIX}{{{sid}}}"


def state(sid: str) -> str:
    """Hash: lease, recorded batch and phase, stop mark, agent, host, lane, label, title,
    parent, queue settings, model, project, times."""
    return f"{STATE_PREFIX}{{{sid}}}"


def outcome_prefix(sid: str) -> str:
    """Hash: what became of an entry, whose id ends the key, and when; 7 days, or an hour while
    memory is short."""
    return f"rc:oc:{{{sid}}}:"


def children(sid: str) -> str:
    """Sorted set: the sessions that it has started, by when (ms): the unfinished ones, and 50
    more."""
    return f"rc:kids:{{{sid}}}"


def spawned(sid: str) -> str:
    """Hash: what the unfinished turn has started, so that its next attempt does not start it
    again; a day."""
    return f"rc:spawned:{{{sid}}}"


def labels(agent: str) -> str:
    """Hash: the labelled sessions of an agent, by label."""
    return f"rc:labels:{agent}"


def session_map(sid: str) -> str:
    """Hash: runtime and workspace → the CLI's own session id, and the agent's note; 7 days
    from its last use."""
    return f"rc:map:{{{sid}}}"


def record(sid: str) -> str:
    """String: the conversation so far, as lines of JSON; as long and as large as `[record]`
    says."""
    return f"rc:rec:{{{sid}}}"


def beside(sid: str) -> str:
    """List: what was said in the session's chat beside its turns, as JSON, oldest first; until the
    agent is told, at most a week."""
    return f"rc:beside:{{{sid}}}"


def archive(sid: str) -> str:
    """List: the session's ended conversations, newest first: which turn ended each, when, and
    why."""
    return f"rc:old:{{{sid}}}"


def blob(sid: str, name: str) -> str:
    """String: the content of a file; an hour until a message names it, then until the outcome
    or the receipt; that of a request to people as long as the request."""
    return f"{blob_prefix(sid)}{name}"


def blob_prefix(sid: str) -> str:
    """With a blob's name behind it, its key."""
    return f"rc:blob:{{{sid}}}:"


def stored(sid: str) -> str:
    """String: the bytes of files that the chat has stored within the hour."""
    return f"rc:stored:{{{sid}}}"


def sent(session: SessionKey) -> str:
    """Hash: messages and bytes that the tools of a chat's turns have sent within the hour.

    Threads and tasks count together: each could begin any number of them.
    """
    return f"rc:sent:{{{replace(session, thread=None, task=None).sid}}}"


def retried(letter_id: str) -> str:
    """String: the entry that a dead letter became when it was retried; 7 days."""
    return f"rc:retried:{letter_id}"


def live(sid: str) -> str:
    """String: the answer so far and the running tools, until the turn ends; also the channel
    that announces it."""
    return f"rc:live:{{{sid}}}"


def live_of(provider: str, account: str) -> str:
    """Channel: announces the live text of all turns whose replies go to an account."""
    return f"rc:live-of:{provider}:{account}"


def previews(provider: str, account: str) -> str:
    """Hash: the previews in an account's chats, by session and message, as JSON; until
    the answer is there."""
    return f"rc:previews:{provider}:{account}"


def side_effects(sid: str) -> str:
    """List: what the tools of the unfinished turn did, in all attempts, as JSON."""
    return f"rc:fx:{{{sid}}}"


def call(name: str) -> str:
    """String: the result of a call, by its name, so that it is not done again; a day."""
    return f"rc:call:{name}"


def cron_runs(job_id: str) -> str:
    """List: how a cron job's last runs ended, and its due times that had no run, newest first; 30
    days."""
    return f"{CRON_RUNS}:{job_id}"


def usage_day(day: str) -> str:
    """Hash: what each session's turns took on a day, by agent and session id, as numbers; 93
    days."""
    return f"{USAGE}:{day}"


def gateway(host_id: str) -> str:
    """String: the address of this host's gateway, for this host alone; 30 seconds from its
    last sign of life."""
    return f"rc:gateway:{host_id}:{boot_id()}"


def login(code_digest: str) -> str:
    """String: what a code for the page is good for, as JSON; 10 minutes, or until it is used."""
    return f"rc:login:{code_digest}"


def web(chat: str) -> str:
    """Stream: what has happened in a chat of the page, oldest first; as long as a record."""
    return f"rc:web:{{{chat}}}"


def web_once(chat: str) -> str:
    """Hash: the events of a chat of the page, by what brought each; as long as a record."""
    return f"rc:web:{{{chat}}}:once"


def web_begun(person: str) -> str:
    """Sorted set: a person's chats of the page that they have written in, by their last message; as
    long as a record."""
    return f"rc:web-begun:{person}"


def pushes(person: str) -> str:
    """Hash: a person's browsers that are notified, by the id of each one's token, as JSON; 90 days
    from when the page was opened in one of them."""
    return f"rc:push:{person}"


def receipts(name: str) -> str:
    """Stream: what adapters tell of a call's messages and operations, one entry for each; a day."""
    return f"rc:receipt:{name}"


def bell(sid: str) -> str:
    """Channel: tells a running turn of a person's message, and of a stop."""
    return f"rc:bell:{{{sid}}}"


def outcome_channel(sid: str) -> str:
    """Channel: names each entry whose outcome is final."""
    return f"rc:done:{{{sid}}}"


def ask(ask_id: str) -> str:
    """Hash: a request to people: what is asked for, its state, its answer, and what shows it; as
    long as a record once it is closed."""
    return f"rc:ask:{ask_id}"


def asked(sid: str) -> str:
    """Sorted set: the session's requests to people, by when they were made (ms)."""
    return f"rc:asked:{{{sid}}}"


def asked_in(chat: ChatPlace) -> str:
    """Sorted set: the requests of other conversations that a chat shows, by when they came there
    (ms), and what an agent has written below them, without a name; a day."""
    place = quote(str(chat), safe="/:")
    return f"rc:askedin:{place}"


def rules(sid: str) -> str:
    """Hash: what people have allowed for the session's conversation, by what it is, as JSON; until
    the conversation ends."""
    return f"rc:rules:{{{sid}}}"


def grants(sid: str) -> str:
    """Hash: the requests that were allowed after their turn, by what passes once; an hour."""
    return f"rc:grants:{{{sid}}}"


def unheard(sid: str) -> str:
    """Hash: the denials of which the agent has not heard the reason, each with the turn that has
    told it since, if one has; until the next turn, as long as a record, and at least a day."""
    return f"rc:unheard:{{{sid}}}"


def reply_stream(provider: str, account: str) -> str:
    """Stream: what an adapter has still to deliver, oldest first; once no adapter has read it for
    an hour, at most 32 MB and 3 days."""
    return f"rc:out:{provider}:{account}"


def account_of(reply_stream: str) -> tuple[str, str]:
    """Return the provider and the account of a reply stream."""
    provider, _, account = reply_stream.removeprefix("rc:out:").partition(":")
    return provider, account


def reader(provider: str, account: str) -> str:
    """String: the token of the one adapter that may read the reply stream."""
    return f"rc:reader:{provider}:{account}"


def standbys(provider: str, account: str) -> str:
    """Sorted set: the tokens of the adapters that would read the reply stream if its reader ended,
    by when they have to say so again (ms)."""
    return f"rc:standbys:{provider}:{account}"


def sending(provider: str, account: str) -> str:
    """Hash: how far the replies are sent that are being sent, by their ids on the stream; until the
    receipt."""
    return f"rc:sending:{provider}:{account}"


def said(provider: str, account: str, chat: str, message_id: str) -> str:
    """String: what a message that the platform has been sent belongs to, as JSON: session, turn and
    entries; 7 days."""
    return f"rc:said:{provider}:{account}:{chat}:{message_id}"


def history(provider: str, account: str, chat: str) -> str:
    """Stream: what passed through a chat, messages and reactions; the last 150, a week from the
    last one."""
    return f"rc:chat:{provider}:{account}:{chat}"


def position(provider: str, account: str) -> str:
    """String: from where an account's adapter goes on reading its platform; what is before it was
    accepted."""
    return f"rc:position:{provider}:{account}"


def moved(provider: str, account: str) -> str:
    """Hash: the first ids of chats that their platform has given another one, by that."""
    return f"rc:moved:{provider}:{account}"


def terminal(sid: str) -> str:
    """Hash: the session's terminal as people see it: state, activity, who opened it and who types,
    size, title, and how far its transcript was told; 8 days."""
    return f"rc:tty:{{{sid}}}"


def terminal_events(sid: str) -> str:
    """Stream: what cockpits are told of the session: states, and messages of its terminal; the last
    2,000, 7 days."""
    return f"rc:ev:{{{sid}}}"


def terminal_opens(who: str) -> str:
    """Hash: how often a person may open a terminal now, and since when; until it is full again."""
    person = quote(who, safe="")
    return f"rc:opens:{person}"


def account(provider: str, account: str) -> str:
    """Hash: what the process that runs an account tells of it: name, problem, counts."""
    return f"rc:account:{provider}:{account}"


def dedupe(session: SessionKey, message_id: str) -> str:
    """String: the entry that a platform's message became, so that it is accepted once; 7 days."""
    digest = hashlib.sha256(f"{session}\0{message_id}".encode()).hexdigest()[:32]
    return f"rc:seen:{digest}"
