"""Failures of a turn: their category, the words about them, and what ends a conversation."""

from remoteclaw.clock import local_time, now_ms
from remoteclaw.errors import ErrorCategory, Overdue, Remedy, sentence
from remoteclaw.events import ErrorEvent
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import Turn
from remoteclaw.protocols import AgentSpec, Runtime

#: How much of a CLI's reason for a failure a person is shown who can fix it, in characters.
MAX_REASON = 300
#: From which length a message may itself be what a model finds too long, in characters.
LONG_MESSAGE = 50_000
#: What is over so soon is not worth a time of day, in seconds.
SOON_S = 120


def error_of(
    reported: ErrorEvent | None, *, overdue: Overdue | None, is_stopped: bool
) -> ErrorEvent | None:
    """Return the error of a turn without a complete answer; None if nothing went wrong.

    A limit, or a stop, goes before what the agent reported about it.
    """
    if overdue:
        return ErrorEvent(ErrorCategory.TIMEOUT, overdue.detail)
    if is_stopped:
        return ErrorEvent(ErrorCategory.ABORTED, "stopped by request")
    return reported


def failure_words(
    error: ErrorEvent,
    turn: Turn,
    *,
    overdue: Overdue | None,
    zone: str | None,
    remedy: Remedy | None = None,
) -> str:
    """Return what the person reads about a failure; with a `remedy`, one who can fix it."""
    return sentence(
        error.category,
        agent=turn.session.agent,
        reference=turn.reference,
        until=_until(error.retry_at_ms, zone),
        overdue=overdue,
        remedy=remedy,
    )


def remedy_of(
    error: ErrorEvent, turn: Turn, *, reason: str, spec: AgentSpec, runtime: Runtime
) -> Remedy:
    """Return what a person can do about a failure who can change settings and start programs.

    `reason` is what the CLI said, on one line and without secrets.
    """
    agent, ways, then = turn.session.agent, runtime.remedies, "then send your message again."
    says = f"{runtime.name}: {code(reason)}" if reason else ""
    sign_in = ways.sign_in or "sign in to its CLI"
    on = "on the computer that RemoteClaw runs on"
    key = next((name for name in ways.keys if spec.env.get(name)), "")
    what = fix = ""
    match error.category:
        case ErrorCategory.NOT_INSTALLED:
            return unstartable(agent, reason)
        case ErrorCategory.AUTH if key:
            what = f"{agent}'s model refuses the key in {key}"
            fix = (
                f"Correct it, under [agents.{agent}.env] or in the environment that RemoteClaw was "
                f"started in, or take it away and {sign_in}, {on}; {then}"
            )
        case ErrorCategory.AUTH:
            fix = f"{sign_in[0].upper()}{sign_in[1:]}, {on}; {then}"
        case ErrorCategory.UNKNOWN_MODEL:
            known = f" ({ways.models}, lists those that there are)" if ways.models else ""
            what = f"{agent}'s account can't use its model"
            choose = f"`model` under [agents.{agent}], or in this session with /model{known}"
            fix = f"Set {choose}; {then}"
            if spec.model:
                what = f"{agent}'s account can't use the model `{spec.model}`"
                fix = f"Correct {choose}; {then}"
        case ErrorCategory.USAGE_LIMIT:
            fix = (
                "Send your message again when the limit is lifted, or sooner with another account, "
                f"or another `model` under [agents.{agent}]."
            )
        case ErrorCategory.BILLING:
            fix = f"Top it up at its provider, or use another account; {then}"
        case ErrorCategory.UNREACHABLE:
            fix = f"Check the network and the proxy settings {on}; {then}"
        case ErrorCategory.FATAL:
            fix = f"Send it again; `remoteclaw sessions trace {turn.reference}` shows how it went."
    return Remedy(says, what=what, fix=fix)


def unstartable(agent: str, why: str) -> Remedy:
    """Return what is said of an agent that can't be started; `why` says what to do, too."""
    what = f"{agent} can't be started: {one_line(why).rstrip('.')}"
    return Remedy(what=what, fix="Then send your message again.")


def missing_server(agent: str, name: str, *, why: str, runtime: str) -> str:
    """Return what is said of an MCP server that an agent has to do without."""
    why = f" ({code(why)})" if why else ""
    name = code(name)
    return (
        f"({agent} works without the MCP server {name}, which {runtime} could not connect{why}: "
        f"correct it under [agents.{agent}.mcp_servers], or in {runtime}'s own settings.)"
    )


def code(words: str) -> str:
    """Return a CLI's words as code, in which nothing is Markdown."""
    return f"`{words.replace('`', chr(39))}`"


def _until(at_ms: int | None, zone: str | None) -> str:
    """Return in words when the provider takes requests again; nothing if it's not known."""
    if at_ms is None or at_ms < now_ms() + SOON_S * 1000:
        return ""
    at, now = local_time(at_ms, zone), local_time(now_ms(), zone)
    return at.strftime("%H:%M %Z" if at.date() == now.date() else "%A, %d %B, %H:%M %Z")


def is_fatal_to_conversation(error: ErrorEvent, turn: Turn) -> bool:
    """Whether a CLI's conversation can't be continued.

    A picture that the model can't read stays in it and fails each further turn, and so does its
    length, unless the CLI has repaired it. A long message may have been too long by itself: if not,
    the next one tells.
    """
    match error.category:
        case ErrorCategory.CONTEXT_OVERFLOW:
            length = sum(len(entry.message.text) for entry in turn.entries)
            return length < LONG_MESSAGE and not error.is_repaired
        case ErrorCategory.UNFIT_IMAGE:
            return not error.is_repaired
        case category:
            return category is ErrorCategory.SESSION_EXPIRED
