"""Notes of what a task's turn does, for the sessions that it works for."""

import asyncio
import contextlib

from remoteclaw.bridge.scrubber import Scrubber
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet.lease import Lease
from remoteclaw.host.terminal import one_line
from remoteclaw.session.reply import TurnReply

#: The least pause between two notes, in seconds.
EVERY_S = 2.0
#: How much is kept of the tool and its argument, and of what was said, in characters.
MAX_DOING, MAX_SAID = 120, 200
#: How much is looked at of what was said, in characters: a secret may begin before its end.
MAX_READ = 2000


async def keep_noting(lease: Lease, turn: str, reply: TurnReply, scrubber: Scrubber) -> None:
    """Note, until cancelled, the turn's last tool and what it said last, each time they change.

    Nothing is noted of a session that works for no other one.
    """
    if lease.state.parent is None:
        return
    noted: dict[str, str] | None = None
    while True:
        reply.has_news.clear()
        doing = doing_of(reply, scrubber)
        if doing == noted:
            await reply.has_news.wait()
            continue
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            await lease.work.note(turn, doing, is_first=noted is None)
            noted = doing
        await asyncio.sleep(EVERY_S)


def doing_of(reply: TurnReply, scrubber: Scrubber) -> dict[str, str]:
    """Return the last tool and what was said last, without secrets and on one line each."""
    doing, tool = {}, reply.last_tool
    if tool is not None:  # its argument was scrubbed when it was shown
        doing["tool"] = one_line(tool.name, most=MAX_DOING // 2)
        doing["argument"] = one_line(tool.argument, most=MAX_DOING - 2 - len(doing["tool"]))
    if said := one_line(scrubber.text(reply.words[-MAX_READ:], MAX_READ)):
        doing["said"] = said if len(said) <= MAX_SAID else f"…{said[1 - MAX_SAID :]}"
    return doing
