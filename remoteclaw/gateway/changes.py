"""Changes of the configuration that people are asked for."""

import contextlib
from dataclasses import replace

from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.bridge.wanted import MOST_OF_WHOLE, as_seen
from remoteclaw.config.approvals import approvals_of, can_be_asked
from remoteclaw.config.edit import PlannedChange
from remoteclaw.errors import RedisRefused
from remoteclaw.fleet.request import Change, Request, new_id
from remoteclaw.fleet.request_card import Shown, of_other_chat, shown_by
from remoteclaw.gateway.call import Call
from remoteclaw.host.terminal import fenced
from remoteclaw.messages import people_of

WANTS = "**{agent}**{about} asks to change the configuration:\n\n{block}"
WHOLE = "\n\nAll of it is in the file {name}."
RESTART = "\n\nIt would hold after a restart: {needs}."


async def request_of(call: Call, plan: PlannedChange) -> Request:
    """Return the request for a change that an agent wants."""
    assert call.caller is not None, "operators' changes don't wait"
    entries = call.turn.entries
    change = Change(
        host=call.home.host_id,
        patch=plan.patch,
        base=plan.before.hash,
        after=plan.after.hash,
        changed=plan.paths,
        needs_restart=plan.needs_restart,
    )
    scrubber = Scrubber(secrets_of(call.config))
    what, whole = as_seen(plan.diff, scrubber), as_seen(plan.diff, scrubber, MOST_OF_WHOLE)
    request = Request(
        id=new_id(),
        session=call.caller.session,
        turn=call.turn.id,
        tool=call.tool.tool,
        what=what,
        where=call.home.host_id,
        deliver=entries[-1].deliver,
        chat=approvals_of(call.config, call.caller.session).chat,
        people=people_of(entries),
        change=change,
    )
    if whole != what:
        session, name = call.caller.session, f"request-{request.id}.txt"
        with contextlib.suppress(RedisRefused):  # there is no room: the ends of it are shown
            file = await call.fleet.blobs.put(session.sid, name, whole.encode(), chat=session)
            return replace(request, file=file)
    return request


def shown_in_chat(call: Call, request: Request) -> Shown | None:
    """Return the message that shows a request in a chat; None if nobody is asked there.

    Then it waits for an operator.
    """
    assert request.change, "it is for a change"
    session, entries = request.session, call.turn.entries
    if request.deliver != "channel" or not can_be_asked(call.config, session):
        return None
    needs = ", ".join(request.change.needs_restart)
    about = of_other_chat(request, entries)
    text = WANTS.format(agent=session.agent, about=about, block=fenced(request.what, "diff"))
    text += WHOLE.format(name=request.file.name) if request.file else ""
    return shown_by(
        request,
        attempt=call.turn.attempt,
        text=text + (RESTART.format(needs=needs) if needs else ""),
    )
