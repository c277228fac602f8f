"""Commands that look at a session: /status, /queue, /sessions, /usage and /whoami."""

from typing import get_args

from remoteclaw.bridge.activity import shown_of_tools
from remoteclaw.bridge.task_lines import in_a_chat
from remoteclaw.clock import in_words, now_ms
from remoteclaw.commands.call import Answer, Asked
from remoteclaw.config.approvals import approvals_of
from remoteclaw.config.model import QueueOverride
from remoteclaw.config.model.queue import QueueMode
from remoteclaw.errors import ConfigError
from remoteclaw.fleet.usage import Usage
from remoteclaw.host.terminal import one_line

#: How many sessions are listed.
MAX_SESSIONS = 10
#: How much of what an agent asks for is shown, in characters.
MAX_SHOWN = 80

MODES = {
    "aside": "a new message is answered beside the running turn",
    "collect": "what waits is answered together, in one turn",
    "followup": "each message has a turn of its own",
    "steer": "a new message goes to the agent while it works",
    "interrupt": "a new message stops the running turn",
}


async def status(asked: Asked) -> Answer:
    """Show what the session does now."""
    view = await asked.fleet.sessions.view(asked.session.sid)
    agent = asked.agent
    lines = [f"- agent: {asked.session.agent} ({asked.runtime})"]
    if model := (view and view.model) or agent.model:
        lines.append(f"- model: {model}")
    try:
        works_in = f"`{await asked.workspace()}`"
    except ConfigError as problem:
        works_in = f"nothing: {problem}"
    else:
        works_in += f", the project {view.project}" if view and view.project else ""
    lines += [f"- works in: {works_in}", f"- permissions: {agent.permissions}"]
    if asked.is_owner:
        lines.append(f"- requests: {approvals_of(asked.config, asked.session)}")
    lines += await _asks(asked)
    lines += await _work(asked)
    if view is None or not view.waiting:
        return Answer("\n".join(["Idle.", "", *lines]))
    running = f"Running for {_since(view.busy_since_ms)}" if view.turn else "Waiting for a worker"
    if view.postponed_until_ms:
        left = max(view.postponed_until_ms - now_ms(), 0)
        running = f"Postponed for {in_words(left)}: {view.postponed}"
    waiting = max(view.waiting - view.taken, 0)
    if waiting:
        running += (
            f"; {_count(waiting, 'message')} more wait" if waiting > 1 else "; one more waits"
        )
    return Answer("\n".join([f"{running}.", "", *lines]))


async def _asks(asked: Asked) -> list[str]:
    """Return what waits for an answer, and what people have allowed for the conversation."""
    asks, sid = asked.fleet.asks, asked.session.sid
    lines = [
        f"- waits for an answer: {one.id}, {_done(one.tool, one.what)}"
        for one in await asks.of_session(sid)
    ]
    return lines + [
        f"- allowed by {one_line(rule['name'])}: {_done(rule['tool'], rule['what'])}"
        for rule in await asks.rules(sid)
    ]


async def _work(asked: Asked) -> list[str]:
    """Return what works for the session, a line each."""
    below = await asked.fleet.work.below(asked.session.sid, most=MAX_SESSIONS, recent_ms=0)
    shown = shown_of_tools(asked.config.channel(asked.session.provider), asked.session)
    lines = [f"- works for it: {in_a_chat(item, shown)}" for item in below.items]
    return lines + ([f"- and {below.left_out} more"] if below.left_out else [])


def _done(tool: str, what: str) -> str:
    """Return what would be done, on one line."""
    return f"{tool} `{one_line(what, most=MAX_SHOWN).replace('`', chr(39))}`"


async def queue(asked: Asked) -> Answer:
    """Show what waits, or change how messages wait that arrive during a turn."""
    view = await asked.fleet.sessions.view(asked.session.sid)
    if wanted := asked.rest.lower():
        if wanted not in get_args(QueueMode):
            return Answer(f"There is no such mode: the modes are {', '.join(MODES)}.")
        if not asked.is_owner:
            return Answer("The mode is changed by owners of this installation.")
        before = (view and view.queue) or QueueOverride()
        override = before.model_copy(update={"mode": wanted})
        await asked.fleet.sessions.configure(asked.session, override)
        return Answer(f"From now on: {MODES[wanted]}.")
    own = view.queue if view else None
    mode = asked.config.queue.of(asked.session.provider, own).mode
    waiting = view.waiting if view else 0
    said = (
        "Nothing waits." if not waiting else f"{_count(waiting, 'message')} without an answer yet."
    )
    return Answer(f"{said} The mode is `{mode}`: {MODES[mode]}.")


async def sessions(asked: Asked) -> Answer:
    """List the newest sessions."""
    views = await asked.fleet.sessions.list(limit=MAX_SESSIONS)
    if not views:
        return Answer("There are no sessions yet.")
    used = await asked.fleet.usage.by_session()
    rows = []
    for view in views:
        spent = used.get(view.sid, Usage())
        cells = (
            f"`{view.sid[:8]}`",
            view.name.replace("|", "\\|"),
            view.key.agent,
            view.model_in(asked.config) or "",
            view.key.provider,
            view.shown_status,
            f"{spent.new_tokens:,}",
            "" if spent.cost_usd is None else f"${spent.cost_usd:.2f}",
            in_words(now_ms() - view.last_message_ms),
        )
        rows.append(f"| {' | '.join(cells)} |")
    head = [
        "| session | title | agent | model | channel | state | tokens | cost | age |",
        "|---|---|---|---|---|---|--:|--:|--:|",
    ]
    return Answer("\n".join([*head, *rows]))


async def usage(asked: Asked) -> Answer:
    """Show what the session has taken, and its agent in all."""
    session = await asked.fleet.usage.session(asked.session.agent, asked.session.sid)
    agents = await asked.fleet.usage.agents()
    rows = [
        ("this session", session),
        (asked.session.agent, agents.get(asked.session.agent, Usage())),
    ]
    lines = [
        "| | turns | tokens in | cached | tokens out | time | cost |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {name} | {each.turns} | {each.input_tokens:,} | {each.cache_read_tokens:,} "
        f"| {each.output_tokens:,} | {in_words(each.duration_ms)} "
        f"| {'' if each.cost_usd is None else f'${each.cost_usd:.2f}'} |"
        for name, each in rows
    ]
    return Answer("\n".join(lines))


async def whoami(asked: Asked) -> Answer:
    """Show who the person is here, and what they may do."""
    session = asked.session
    may = "an owner: you may do everything" if asked.is_owner else "no owner of this installation"
    return Answer(
        f"You are `{asked.sender}` on {session.provider}, in the chat `{session.channel_id}`; "
        f"{may}. This session is `{session.sid[:8]}`."
    )


def _since(at_ms: int | None) -> str:
    return "a moment" if at_ms is None else in_words(now_ms() - at_ms)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
