"""The names of all keys in Redis, in one place.

Keys of one session share the hash tag `{sid}`.
Scripts build none of them but are given all they touch, except for an entry's outcome, whose id is
only known inside: they get its prefix.
"""

import hashlib

from remoteclaw.messages import SessionKey

#: Sessions that have work, scored with the time (ms) at which the sweeper looks at them.
ACTIVE = "rc:active"
#: Every session, scored with the time (ms) of its last message.
SESSIONS = "rc:sessions"
#: A stream of one entry that changes with every hint: lingering drains listen to it.
WAKE = "rc:wake"
#: The RQ queue for what people send.
QUEUE = "agents"
#: The list in which RQ keeps that queue.
RQ_QUEUE = f"rq:queue:{QUEUE}"


def inbound(sid: str) -> str:
    """Stream: what the session has still to answer, oldest first."""
    return f"rc:in:{{{sid}}}"


def state(sid: str) -> str:
    """Hash: lease, recorded batch, phase, stop mark, parked agent."""
    return f"rc:st:{{{sid}}}"


def outcome_prefix(sid: str) -> str:
    """With an entry's id behind it, a hash: what became of that entry, and when."""
    return f"rc:oc:{{{sid}}}:"


def session_map(sid: str) -> str:
    """Hash: runtime and workspace → the CLI's own session id."""
    return f"rc:map:{{{sid}}}"


def live(sid: str) -> str:
    """String: the answer as far as it has come; also the channel that announces it."""
    return f"rc:live:{{{sid}}}"


def stop_channel(sid: str) -> str:
    """Channel: says that the session's turn is to be stopped."""
    return f"rc:stop:{{{sid}}}"


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
