"""Commands that report on sessions: /status, /queue, /sessions, /usage and /whoami."""

from typing import get_args

from remoteclaw.bridge.activity import shown_of_tools
from remoteclaw.bridge.task_lines import in_a_chat
from remoteclaw.clock import format_duration, format_exact_duration, now_ms
from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.config.model import QueueOverride
from remoteclaw.config.model.agents import ANOTHER_AGENT
from remoteclaw.config.model.queue import QueueMode
from remoteclaw.config.requests import request_settings
from remoteclaw.errors import ConfigError
from remoteclaw.fleet.budgets.words import left_text
from remoteclaw.fleet.sessions.sessions import SessionView
from remoteclaw.fleet.sessions.state import FOR_BUDGET
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.host.terminal import one_line

#: At most this many sessions or tasks are listed.
MAX_LISTED = 10
#: The longest description of a requested action, in characters.
MAX_ACTION_CHARS = 80

#: The queue modes, each with what it does.
MODES = {
    "aside": "a new message is answered during the running turn",
    "collect": "waiting messages are answered together, in one turn",
    "followup": "each message has a turn of its own",
    "steer": "a new message goes to the agent while it works",
    "interrupt": "a new message stops the running turn",
}


async def status(call: CommandCall) -> CommandReply:
    """Show the session's state, agent, workspace, requests and tasks."""
    view = await call.fleet.sessions.view(call.session.sid)
    agent = call.agent
    lines = [f"- agent: {call.session.agent} ({call.runtime})"]
    if model := view.model_in(call.config) if view else agent.model:
        lines.append(f"- model: {model}")
    if view and view.size:
        lines.append(f"- context {view.size.percent} %")
    if view and view.fallback_by:
        left_ms = (view.fallback_until_ms or 0) - now_ms()
        if view.fallback_until_ms is None or left_ms > 0:
            span = f", for {format_duration(left_ms)}" if left_ms > 0 else ""
            by = view.fallback_by.removeprefix(ANOTHER_AGENT)
            lines.append(f"- answers meanwhile: {by} ({view.fallback_for}{span})")
    try:
        works_in = f"`{await call.workspace()}`"
    except ConfigError as problem:
        works_in = f"nothing: {problem}"
    else:
        works_in += f", the project {view.project}" if view and view.project else ""
    lines += [f"- works in: {works_in}", f"- permissions: {agent.permissions}"]
    if call.is_owner and view and (pending := await _identity(call, view)):
        lines.append(f"- identity: {pending}")
    if call.is_owner:
        lines.append(f"- requests: {request_settings(call.config, call.session)}")
    lines += await _request_lines(call)
    lines += await _task_lines(call)
    if view is None or not view.waiting:
        return CommandReply("\n".join(["Idle.", "", *lines]))
    state = (
        f"Running for {_time_since(view.busy_since_ms)}" if view.turn else "Waiting for a worker"
    )
    is_next_counted = not (view.turn or view.turn_entries)
    if view.shown_status == "terminal":
        is_next_counted = False
        state = f"Open in a terminal for {_time_since(view.busy_since_ms)}"
    pause, waiting = _pause_of(view), max(view.waiting - len(view.turn_entries), 0)
    if pause and view.is_postponed:
        state = f"Postponed {pause}"
        is_next_counted = not view.turn_entries
    waiting -= is_next_counted
    if waiting:
        state += f"; {_count(waiting, 'message')} more wait" if waiting > 1 else "; one more waits"
        state += f", {pause}" if pause and view.kept_size else ""
    return CommandReply("\n".join([f"{state}.", "", *lines]))


async def _identity(call: CommandCall, view: SessionView) -> str:
    """Return which identity files have changed since the conversation began; empty if none has."""
    try:
        return await call.fleet.identities.pending(call.config, call.home, view)
    except ConfigError:
        return ""  # of a project that is gone, which another line says


def _pause_of(view: SessionView) -> str:
    """Return for how long a session's next message is postponed, and why; empty if it isn't."""
    left_ms = (view.postponed_until_ms or 0) - now_ms()
    if left_ms <= 0:
        return ""
    span = f"for {format_duration(left_ms)}"
    if view.postponed == FOR_BUDGET:
        span = f"until more is allowed, {span} at most"
    return f"{span}: {view.postponed_for}"


async def _request_lines(call: CommandCall) -> list[str]:
    """Return a line for each waiting request, and for each permission of the conversation."""
    requests, sid = call.fleet.requests, call.session.sid
    waiting = [
        f"- waits for an answer: {request.id}, {_action(request.tool, request.what)}"
        for request in await requests.of_session(sid)
    ]
    allowed = [
        f"- allowed by {one_line(rule['name'])}: {_action(rule['tool'], rule['what'])}"
        for rule in await requests.rules(sid)
    ]
    return waiting + allowed


async def _task_lines(call: CommandCall) -> list[str]:
    """Return a line for each unfinished task and branch of the session."""
    tree = await call.fleet.task_trees.read(call.session.sid, max_tasks=MAX_LISTED, recent_ms=0)
    detail = shown_of_tools(call.config.channel_of(call.session), call.session)
    lines = [f"- at work: {in_a_chat(item, detail)}" for item in tree.items]
    return lines + ([f"- and {tree.left_out} more"] if tree.left_out else [])


def _action(tool: str, what: str) -> str:
    """Return the use of a tool on one line of Markdown."""
    return f"{tool} `{one_line(what, max_chars=MAX_ACTION_CHARS).replace('`', chr(39))}`"


async def queue(call: CommandCall) -> CommandReply:
    """Show the number of waiting messages and the queue mode, or change the mode."""
    view = await call.fleet.sessions.view(call.session.sid)
    if new_mode := call.arguments.lower():
        if new_mode not in get_args(QueueMode):
            return CommandReply(f"There is no such mode: the modes are {', '.join(MODES)}.")
        if not call.is_owner:
            return CommandReply("Only owners of this installation can change the mode.")
        before = (view and view.queue_settings) or QueueOverride()
        override = before.model_copy(update={"mode": new_mode})
        await call.fleet.sessions.configure(call.session, override)
        return CommandReply(f"From now on: {MODES[new_mode]}.")
    own = view.queue_settings if view else None
    mode = call.config.queue_of(call.session, own).mode
    waiting = view.waiting if view else 0
    count = (
        "Nothing waits." if not waiting else f"{_count(waiting, 'message')} without an answer yet."
    )
    if view and (pause := _pause_of(view)):
        count += f" The next one waits {pause}."
    return CommandReply(f"{count} The mode is `{mode}`: {MODES[mode]}.")


async def sessions(call: CommandCall) -> CommandReply:
    """List the newest sessions, with their usage."""
    views = await call.fleet.sessions.list(limit=MAX_LISTED)
    if not views:
        return CommandReply("There are no sessions yet.")
    used = await call.fleet.usage.by_session()
    rows = []
    for view in views:
        spent = used.get(view.sid, Usage())
        cells = (
            f"`{view.sid[:8]}`",
            view.name.replace("|", "\\|"),
            view.key.agent,
            view.model_in(call.config) or "",
            view.key.provider,
            view.shown_status,
            f"{spent.new_tokens:,}",
            spent.cost_text or "",
            format_duration(now_ms() - view.last_message_ms),
        )
        rows.append(f"| {' | '.join(cells)} |")
    head = [
        "| session | title | agent | model | channel | state | tokens | cost | age |",
        "|---|---|---|---|---|---|--:|--:|--:|",
    ]
    return CommandReply("\n".join([*head, *rows]))


async def usage(call: CommandCall) -> CommandReply:
    """Show the usage of the session, the total of its agent, and what is left of budgets."""
    session = await call.fleet.usage.session(
        call.session.agent, call.session.sid, also=call.config.agents
    )
    agents = await call.fleet.usage.agents()
    rows = [
        ("this session", session),
        (call.session.agent, agents.get(call.session.agent, Usage())),
    ]
    lines = [
        "| | turns | tokens read | from the cache | tokens written | asides | time | cost |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {name} | {each.turns} | {each.read_tokens:,} | {each.cache_read_tokens:,} "
        f"| {each.output_tokens:,} | {each.asides} | {format_exact_duration(each.duration_ms)} "
        f"| {each.cost_text or ''} |"
        for name, each in rows
    ]
    lines += [
        f"\n({name}: {each.estimated_tokens:,} of the tokens are estimated.)"
        for name, each in rows
        if each.estimated_tokens
    ]
    root = await call.fleet.sessions.root(call.session)
    standings = await call.fleet.budgets.of_session(call.config, call.session, root, [call.person])
    if standings:
        lines += ["", *(f"- {left_text(standing)}" for standing in standings)]
    return CommandReply("\n".join(lines))


async def whoami(call: CommandCall) -> CommandReply:
    """Show the sender's id, chat and session, and whether the sender is an owner."""
    session = call.session
    role = "an owner: you may do everything" if call.is_owner else "no owner of this installation"
    return CommandReply(
        f"You are `{call.sender}` on {call.place.provider}, in the chat `{call.place.chat}`; "
        f"{role}. This session is `{session.sid[:8]}`."
    )


def _time_since(at_ms: int | None) -> str:
    return "a moment" if at_ms is None else format_duration(now_ms() - at_ms)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
