"""Handlers of work for a session: its tree, and progress."""

from collections.abc import Mapping

from remoteclaw.bridge.scrubber import Scrubber, secrets_of
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.sessions import current, find
from remoteclaw.gateway.work import tree_of
from remoteclaw.tools import work as contract
from remoteclaw.tools.operators import SessionParams

#: How much is kept of what an agent says of its progress, in characters and in bytes.
MOST_PROGRESS = 256
FOR_NOBODY = (
    "This session works for no other one, so nobody waits for its progress: say it in your answer."
)
FOR_AGENTS = "Only the agent of a task says how far it is: `sessions.tree` shows what it has said."


async def _progress(call: Call, params: contract.ProgressParams) -> contract.ProgressResult:
    if call.caller is None:
        raise CallRefused("INVALID_REQUEST", FOR_AGENTS)
    own = await current(call)
    if own.parent is None:
        raise CallRefused("INVALID_REQUEST", FOR_NOBODY)
    line = Scrubber(secrets_of(call.config)).line(params.progress, MOST_PROGRESS)
    progress = line.encode()[:MOST_PROGRESS].decode(errors="ignore")
    above = await call.fleet.sessions.above(own)
    await call.fleet.calls.progress(call.caller, call.id, progress, above=above)
    return contract.ProgressResult(progress=progress)


async def _tree(call: Call, params: SessionParams) -> contract.TreeResult:
    view = await find(call, params.session_key)
    return tree_of(str(view.key), await call.fleet.work.below(view.sid))


HANDLERS: Mapping[str, Handler] = {
    "sessions.progress": _progress,
    "sessions.tree": _tree,
}
