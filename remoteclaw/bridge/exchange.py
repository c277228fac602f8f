"""The exchange with the agent: step 6 of the bridge asks it and delivers its answer."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from remoteclaw.bridge.activity import label_of, shown_of_tools
from remoteclaw.bridge.attachments import GivenFile, TurnFiles, left_out_files
from remoteclaw.bridge.conduct import TurnSupervisor, remedies_of
from remoteclaw.bridge.delivery import Listeners
from remoteclaw.bridge.failures import (
    MAX_OPENINGS_CHARS,
    MAX_REASON_CHARS,
    missing_server,
    missing_tools,
    more_than_allowed,
)
from remoteclaw.bridge.outgoing import OutgoingFiles
from remoteclaw.bridge.permission_text import as_shown
from remoteclaw.bridge.run import Run
from remoteclaw.bridge.task_lines import describe_tasks
from remoteclaw.bridge.time_limits import TurnTimer
from remoteclaw.bridge.turn_prompt import build_turn_prompt
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import ErrorEvent, PermissionEvent, ToolUseEvent
from remoteclaw.messages import OWN_SERVER, Image, ReplyPayload, Turn

#: The notice about denied tools, if the agent does not receive the reason of a denial.
WAS_DENIED = "It wanted to use {tools}, which needs a permission that no person can give here."
#: The notice about a form that an MCP server, or the agent, wanted filled in.
FORM = "({who} asked: `{message}`. Its forms can't be answered here yet: this one was cancelled.)"
#: The maximum length of the notice about denied tools, in characters.
MAX_DENIED_CHARS = 2_000


async def ask_and_deliver(run: Run) -> None:
    """Ask the agent and deliver its answer while it writes."""
    assert run.agent is not None, "start_agent() is called first"
    agents = run.setup.agents
    files = _files_of(run)
    timer = TurnTimer(last_output_at=lambda: agents.last_output_at, used_s=run.used_s)
    supervisor = TurnSupervisor(
        run.agent,
        spec=run.spec,
        limits=run.setup.limits,
        timer=timer,
        abort=run.abort,
        callbacks=run.callbacks,
        as_shown=lambda event: as_shown(event, run.scrubber),
        show=run.delivery.show,
        discard=agents.discard,
        files=agents.files_dir,
        turn=run.turn,
    )
    listeners = Listeners(
        take_files=files.take,
        keep_answer=files.keep_answer,
        on_permission=partial(_decide, run, supervisor),
        on_withdrawn=supervisor.withdraw,
        label=lambda event: _label(run, event),
        head=lambda event: label_of(event, "arguments", run.scrubber, run.spec.workspace),
        scrub=run.scrubber.text,
        is_earlier_message=run.sources.is_earlier_message,
    )
    try:
        async with supervisor.watch(_steering(run, files)):
            prompt, images = await _turn_prompt(run, files)
            if run.is_command:
                prompt, images = run.turn.entries[0].message.text, []
            answering = run.agent.turn(prompt, images, is_command=run.is_command)
            run.is_asked = True
            async with contextlib.aclosing(answering) as events:
                run.delivered = await run.delivery.process(timer.noting(events), listeners)
            run.result, run.error = run.delivered.run, run.delivered.error
    finally:
        run.overdue = supervisor.overdue
        run.people_s += timer.people.seconds
    notices = _notices_of(run, supervisor)
    if run.setup.agents.is_new and run.error is None:
        notices += await _missing_tools(run)
    if notices:
        await run.delivery.deliver_notice(ReplyPayload("\n".join(notices), is_ours=True))
    if not run.delivered.has_ended and run.error is None:
        detail = "the agent's output ended without a result"
        run.error = ErrorEvent(ErrorCategory.FATAL, detail, ends_agent=True)


async def _decide(
    run: Run,
    supervisor: TurnSupervisor,
    event: PermissionEvent,
    deliver_so_far: Callable[[], Awaitable[None]],
) -> None:
    """Begin to decide about a permission; for a plan, first store that the agent is planning."""
    note = run.agent.note if run.agent else ""
    if event.plan is not None and run.session_id and note != run.spec.note:
        await run.remember(run.session_id, note)
        run.spec = replace(run.spec, note=note)
    await supervisor.decide(event, deliver_so_far)


def _label(run: Run, event: ToolUseEvent) -> tuple[str, str]:
    shown = shown_of_tools(run.setup.channel, run.turn.session, run.messages.values())
    return label_of(event, shown, run.scrubber, run.spec.workspace)


# -- the agent's prompts -----------------------------------------------------------------------


async def _turn_prompt(run: Run, files: TurnFiles) -> tuple[str, list[Image]]:
    """Return the turn's prompt and its pictures.

    Puts the files of the messages where the agent can read them.
    """
    sources = run.sources
    seen = run.known.seen if run.known and not run.begins_conversation else None
    history = await sources.history(seen) if sources.history else ()
    given: dict[str, list[GivenFile]] = {}
    images: list[Image] = []
    for entry in run.turn.entries:
        given[entry.id], shown = await files.give(entry)
        images += shown
    all_files = [file for of_entry in given.values() for file in of_entry]
    all_files += [file for entry in run.turn.left_out for file in left_out_files(entry)]
    if problems := [file.notice for file in all_files if file.problem]:
        notice = ReplyPayload("\n".join(problems), is_ours=True)
        await run.delivery.deliver_notice(notice, is_last=False)
    memory = ""
    if sources.memory and run.tells_memory and not run.is_command:
        memory = await sources.memory()
    run.tells_memory = run.tells_memory and run.is_command
    effects = await sources.effects() if sources.effects and run.turn.was_interrupted else ()
    prompt = build_turn_prompt(
        run.turn,
        zone=run.setup.zone,
        begins_conversation=run.begins_conversation,
        history=history,
        memory=memory,
        files=given,
        effects=effects,
        denials=await sources.denials() if sources.denials and not run.is_command else (),
        tasks=await _unfinished_tasks(run),
        aside_notes=await sources.aside_notes()
        if sources.aside_notes and not run.is_command
        else (),
    )
    return prompt, images


async def _unfinished_tasks(run: Run) -> list[dict[str, Any]]:
    if run.sources.tasks is None or run.is_command:
        return []
    zone = run.turn.entries[-1].message.timezone or run.setup.zone
    return describe_tasks(await run.sources.tasks(), zone=zone)


async def _steering(
    run: Run, files: TurnFiles
) -> AsyncGenerator[tuple[str, str, Sequence[Image]], None]:
    """Yield the messages that join the turn: the prompt, entry id and pictures of each."""
    if run.sources.newcomers is None or not run.setup.runtime.capabilities.steers:
        return
    async with contextlib.aclosing(run.sources.newcomers()) as entries:
        async for entry in entries:
            run.messages[entry.id] = entry.message
            run.given[entry.id], images = await files.give(entry)
            turn_of_one = Turn(run.turn.session, (entry,))
            given = {entry.id: run.given[entry.id]}
            prompt = build_turn_prompt(turn_of_one, zone=run.setup.zone, files=given)
            yield prompt, entry.id, images


def _files_of(run: Run) -> TurnFiles:
    setup = run.setup
    directory, workspace = setup.agents.files_dir, Path(run.spec.workspace)
    return TurnFiles(
        setup.attachments,
        setup.channel,
        files_dir=directory,
        outgoing=OutgoingFiles(setup.home, run.spec.permissions, workspace, directory),
        image_types=setup.runtime.image_types,
    )


def _notices_of(run: Run, supervisor: TurnSupervisor) -> list[str]:
    """Return the notices about problems that the answer does not mention."""
    joined = [file for key in run.delivered.steered for file in run.given.get(key, ())]
    notices = [file.notice for file in joined if file.problem]
    denials = dict.fromkeys(run.delivered.run.permission_denials)
    denied = [tool for tool in denials if tool not in supervisor.people_decide]
    if denied and not run.setup.runtime.capabilities.explains_denial:
        remedies = remedies_of(run.turn.session.agent, supervisor.remedies)
        text = f"({WAS_DENIED.format(tools=', '.join(denied))} {remedies}".strip()
        notices.append(run.scrubber.text(f"{text})", MAX_DENIED_CHARS))
    for server, message in run.delivered.forms.items():
        name, question = (
            run.scrubber.line(text, MAX_REASON_CHARS).replace("`", "'")
            for text in (server, message)
        )
        who = f"The MCP server `{name}`" if name else "The agent"
        notices.append(FORM.format(who=who, message=question))
    if run.setup.agents.is_new and run.error is None:
        notices += _missing_servers(run)
    is_first = run.begins_conversation and run.is_local and run.error is None
    if is_first and (openings := run.setup.runtime.openings(run.spec)):
        what = run.scrubber.line("; ".join(openings), MAX_OPENINGS_CHARS)
        notices.append(more_than_allowed(run.turn.session.agent, what))
    return notices


def _missing_servers(run: Run) -> list[str]:
    if run.agent is None or not run.is_local:
        return []
    return [
        missing_server(
            run.turn.session.agent,
            run.scrubber.line(name, MAX_REASON_CHARS),
            why=run.scrubber.line(why, MAX_REASON_CHARS),
            runtime=run.setup.runtime.name,
        )
        for name, why in run.agent.missing_servers.items()
        if name != OWN_SERVER
    ]


async def _missing_tools(run: Run) -> list[str]:
    if not await run.setup.agents.lacks_tools():
        return []
    why = run.agent.missing_servers.get(OWN_SERVER, "") if run.agent and run.is_local else ""
    why = run.scrubber.line(why, MAX_REASON_CHARS)
    return [missing_tools(run.turn.session.agent, why=why, runtime=run.setup.runtime.name)]
