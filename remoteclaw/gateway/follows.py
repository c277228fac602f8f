"""Followed calls: a client gets the result of a method again whenever it has changed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from remoteclaw.clock import boottime
from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.feeds import Feeds

#: The methods that can be followed, with the channels that announce changes of their results.
CHANNELS: Mapping[str, tuple[str, ...]] = {
    "requests.list": (keys.REQUEST_UPDATES,),
    "requests.show": (keys.REQUEST_UPDATES,),
    "sessions.search": (keys.SESSION_UPDATES, keys.REQUEST_UPDATES, keys.TERMINAL_UPDATES),
    "terminals.get": (keys.TERMINAL_UPDATES,),
    "cron.list": (keys.CRON_UPDATES,),
    "cron.runs": (keys.CRON_UPDATES,),
    "cron.status": (keys.CRON_UPDATES,),
    "usage": (keys.SESSION_UPDATES,),
    "fleet.status": (keys.SESSION_UPDATES, keys.REQUEST_UPDATES),
    "deadletters.list": (keys.SESSION_UPDATES,),
}
#: The methods whose results also change without an announcement, as when a worker was killed. The
#: gateway checks them at this interval, in seconds, while a client follows them.
CHECKED_S = {"fleet.status": 3.0, "cron.status": 3.0}
#: How soon a call that failed for a while is repeated, in seconds.
RETRY_S = 1.0
#: The pause after each call is at least this long, in seconds; this many times as long as the call;
#: and so long that at most this many bytes per second are sent. So the changes of a burst are sent
#: together.
PAUSE_S, PAUSE_PER_CALL, BYTES_PER_S = 0.25, 9, 1_000_000


class Answer(NamedTuple):
    """An answer to a call."""

    content: object
    """The result or the refusal, without the time of the call."""
    frame: bytes
    """The answer as the client receives it."""
    may_pass: bool = False
    """Whether it is an error, and the same call may succeed later."""


async def follow(
    feeds: Feeds,
    method: str,
    call: Callable[[], Awaitable[Answer]],
    post: Callable[[bytes], None],
) -> None:
    """Post the answer to a call now and after each change, until cancelled.

    Raises `CallRefused` for a method that can't be followed.
    """
    if method not in CHANNELS:
        raise CallRefused("INVALID_REQUEST", f"{method} can't be followed.")
    posted: object = None
    with feeds.announced(CHANNELS[method]) as changed:
        while True:
            changed.clear()  # before the call, so that a change during the call is not missed
            began = boottime()
            answer = await call()
            pause_s = max(PAUSE_S, PAUSE_PER_CALL * (boottime() - began))
            if answer.content != posted:
                posted = answer.content
                post(answer.frame)
                pause_s = max(pause_s, len(answer.frame) / BYTES_PER_S)
            await asyncio.sleep(pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if answer.may_pass else CHECKED_S.get(method)):
                    await changed.wait()
