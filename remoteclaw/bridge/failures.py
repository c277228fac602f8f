"""Failures of a turn: category, sentence and remedy, and whether the conversation is lost."""

from remoteclaw.clock import local_time, now_ms
from remoteclaw.errors import ErrorCategory, Overdue, Remedy, sentence
from remoteclaw.events import ErrorEvent
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import Turn
from remoteclaw.protocols import AgentSpec, ModelSetting, Runtime

#: The maximum length of a CLI's reason for a failure in a reply, in characters.
MAX_REASON_CHARS = 300
#: The maximum length of the list of files that allow more, in characters.
MAX_OPENINGS_CHARS = 600
#: The end of a limit is not mentioned if it is less than this many seconds away.
SOON_S = 120


def error_of(
    reported: ErrorEvent | None, *, overdue: Overdue | None, is_stopped: bool
) -> ErrorEvent | None:
    """Return the error of a turn without a complete answer; None if there is none.

    An exceeded limit or a stop takes precedence over the error that the agent `reported`.
    """
    if overdue:
        return ErrorEvent(ErrorCategory.TIMEOUT, overdue.detail)
    if is_stopped:
        return ErrorEvent(ErrorCategory.ABORTED, "stopped by request")
    return reported


def failure_text(
    error: ErrorEvent,
    turn: Turn,
    *,
    overdue: Overdue | None,
    zone: str | None,
    remedy: Remedy | None = None,
    has_begun: bool = False,
    breaks_off: bool = False,
    model: str | None = None,
    model_setting: ModelSetting = "model",
) -> str:
    """Return the sentence about a failure; `remedy` is for a person who can fix it.

    `has_begun` tells that the agent has said or done something before it failed, and `breaks_off`
    that the beginning of its answer was delivered. `model` is the model that was asked, if it was
    chosen, and `model_setting` says where.
    """
    return sentence(
        error.category,
        agent=turn.session.agent,
        reference=turn.reference,
        until=_until(error.retry_at_ms, zone),
        overdue=overdue,
        remedy=remedy,
        has_begun=has_begun,
        model=as_code(model) if model else "",
        model_setting=model_setting,
        breaks_off=breaks_off,
    )


def remedy_of(
    error: ErrorEvent,
    turn: Turn,
    *,
    reason: str,
    spec: AgentSpec,
    runtime: Runtime,
    model_setting: ModelSetting = "model",
) -> Remedy:
    """Return the remedy of a failure, for a person who can change settings and start programs.

    `reason` is the CLI's error message, on one line and without secrets. `model_setting` says where
    the model was chosen.
    """
    agent, ways, then = turn.session.agent, runtime.remedies, "then send your message again."
    says = f"{runtime.name}: {as_code(reason)}" if reason else ""
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
                f"started in, or remove it and {sign_in}, {on}; {then}"
            )
        case ErrorCategory.AUTH:
            fix = f"{sign_in[0].upper()}{sign_in[1:]}, {on}; {then}"
        case ErrorCategory.UNKNOWN_MODEL if model_setting != "/model":
            known = f" ({ways.models}, lists the available models)" if ways.models else ""
            what = f"{agent}'s account can't use its model"
            here = ", or in this session with /model" if model_setting == "model" else ""
            choose = f"`{model_setting}` under [agents.{agent}]{here}{known}"
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
    """Return the remedy for an agent that can't be started; `why` also says what to do."""
    what = f"{agent} can't be started: {one_line(why).rstrip('.')}"
    return Remedy(what=what, fix="Then send your message again.")


def missing_server(agent: str, name: str, *, why: str, runtime: str) -> str:
    """Return the notice about an MCP server that an agent could not connect."""
    why = f" ({as_code(why)})" if why else ""
    name = as_code(name)
    return (
        f"({agent} works without the MCP server {name}, which {runtime} could not connect{why}: "
        f"correct it under [agents.{agent}.mcp_servers], or in {runtime}'s own settings.)"
    )


def missing_tools(agent: str, *, why: str, runtime: str) -> str:
    """Return the notice about an agent that could not reach RemoteClaw's own tools."""
    why = f" ({as_code(why)})" if why else ""
    return (
        f"({agent} works without RemoteClaw's tools, which {runtime} could not reach{why}: "
        f"`remoteclaw doctor` checks the gateway, and a proxy in {runtime}'s own settings needs "
        "`127.0.0.1` in its `NO_PROXY`.)"
    )


def more_than_allowed(agent: str, openings: str) -> str:
    """Return the notice about files that allow an agent more than its permissions."""
    return (
        f"({agent} does more than its permissions without asking, because RemoteClaw can't outrank "
        f"{as_code(openings)}.)"
    )


def as_code(text: str) -> str:
    """Return a CLI's text as inline code, so that nothing in it is Markdown."""
    return f"`{text.replace('`', chr(39))}`"


def _until(at_ms: int | None, zone: str | None) -> str:
    """Return the time at which the provider accepts requests again; empty if not known or soon."""
    if at_ms is None or at_ms < now_ms() + SOON_S * 1000:
        return ""
    at, now = local_time(at_ms, zone), local_time(now_ms(), zone)
    return at.strftime("%H:%M %Z" if at.date() == now.date() else "%A, %d %B, %H:%M %Z")


def may_be_of_conversation(error: ErrorEvent) -> bool:
    """Whether a failure may be due to what the conversation contains, such as too much text.

    Then it recurs with each further message, unless the CLI has removed the cause.
    """
    match error.category:
        case ErrorCategory.UNFIT_IMAGE:
            return not error.is_repaired
        case category:
            return category in (ErrorCategory.CONTEXT_OVERFLOW, ErrorCategory.INVALID_REQUEST)
