"""The handler that waits for the outcome of a message."""

import asyncio
import contextlib
from collections.abc import Mapping

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.session_access import find_session
from remoteclaw.tools import outcomes as contract


async def _wait(call: Call, params: contract.WaitParams) -> contract.MessageOutcome:
    session, _, entry_id = params.run_id.partition("-")
    view = await find_session(call, session)
    outcome = await call.fleet.outcomes.read(view.sid, entry_id)
    if outcome is None:
        raise CallRefused(
            "NOT_FOUND", f"There is no run {params.run_id!r}, or its record has expired."
        )
    if not outcome.is_final and params.timeout:
        updates = call.fleet.outcomes.follow(view.sid, entry_id)
        with contextlib.suppress(TimeoutError):
            async with (
                call.waiting(),
                asyncio.timeout(params.timeout),
                contextlib.aclosing(updates),
            ):
                async for outcome in updates:
                    if outcome.is_final or (outcome.pause and not params.knows_pause):
                        break
    files = [file for part in outcome.reply for file in part.get("attachments", ())]
    return contract.MessageOutcome(
        session_key=str(view.key),
        run_id=f"{view.sid}-{entry_id}",
        status=outcome.status,
        turn=outcome.turn,
        reply=tuple(
            contract.ReplyPart(text=part["text"], is_error=part["is_error"])
            for part in outcome.reply
        ),
        files=tuple(
            contract.ReplyFile(**{name: file[name] for name in contract.ReplyFile.model_fields})
            for file in files
        ),
        error=outcome.error,
        usage=outcome.usage.plain() if outcome.usage else None,
        pause=outcome.pause,
    )


HANDLERS: Mapping[str, Handler] = {"outcomes.wait": _wait}
