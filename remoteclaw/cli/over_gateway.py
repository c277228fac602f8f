"""Commands that are clients of the gateway of this state directory, which has loaded everything.

A process that talks to Redis itself has to load pydantic, redis and rq: three times the processor
time.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.files import read_files
from remoteclaw.cli.outcome import ToldOutcome, Wait, complain_of_no_workers
from remoteclaw.cli.output import complain
from remoteclaw.client.link import Address, GatewayMissing, Link
from remoteclaw.errors import PerhapsSent
from remoteclaw.gateway.token_file import token_files

if TYPE_CHECKING:
    from remoteclaw.cli.send import Order
    from remoteclaw.cli.stream import AnswerStream
    from remoteclaw.config.home import Home

#: How long one call waits for an outcome, in seconds: the gateway takes no more than 110.
ASK_S = 100.0
#: How long a message is tried to be sent at least, in seconds, if Redis may have it already.
SEND_S = 10.0


def own_gateway(
    home: "Home", otherwise: str = "`remoteclaw gateway` beside workers of your own"
) -> tuple[Address, str]:
    """Return where the gateways of a state directory are, and their owner's token.

    Raises `GatewayMissing` where none has ever run.
    """
    owners = token_files(home.path)[0]
    if not owners.path.exists():
        raise GatewayMissing(
            f"RemoteClaw isn't running in {home.path}: start it with `remoteclaw up`, or "
            f"{otherwise}."
        )
    return Address(sockets=home.gateways), owners.read()


def gateway_at(url: str | None, home: "Home", *, scope: str) -> tuple[Address, str]:
    """Return a gateway on another machine with the token in the environment, or else our own.

    `scope` is what the token needs. Raises `GatewayMissing` without one.
    """
    if not url:
        return own_gateway(home, "name a gateway on another machine with --url")
    token = os.environ.get("REMOTECLAW_GATEWAY_TOKEN", "").strip()
    if not token:
        raise GatewayMissing(
            f"The gateway at {url} needs a token in REMOTECLAW_GATEWAY_TOKEN: "
            f"`remoteclaw token create NAME --scope {scope}` makes one there."
        )
    if not url.startswith(("http://", "https://", "ws://", "wss://")):
        raise click.UsageError("--url must be like https://host:18789.")
    return Address(url=url), token


@contextlib.asynccontextmanager
async def linked(
    home: "Home",
    opening: tuple[str, Mapping[str, Any]],
    *,
    event: Callable[[str, dict[str, Any]], None] = lambda _name, _payload: None,
    problem: Callable[[str], None] = lambda _words: None,
) -> AsyncIterator[tuple[Link, dict[str, Any]]]:
    """Yield a link to a gateway of a state directory, and the answer to what is asked first.

    Raises `GatewayMissing` if there is none; an error of the link comes in a group.
    """
    address, token = own_gateway(home)
    opened: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def take(answer: dict[str, Any]) -> None:
        if not opened.done():  # else it was connected again
            opened.set_result(answer)

    link = Link(
        address,
        token,
        opening=opening,
        opened=take,
        event=event,
        problem=problem,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(link.run(patience_s=0))
        yield link, await opened
        running.cancel()


async def send_over_gateway(
    home: "Home", order: "Order", *, as_json: bool, stream: "AnswerStream | None"
) -> int:
    """Send a message and print what comes of it; return the exit status."""

    def event(name: str, payload: dict[str, Any]) -> None:
        if name == "session.live" and stream:
            stream.live(payload)

    is_told = False

    def problem(words: str) -> None:
        nonlocal is_told
        if words and not is_told:
            is_told = True
            complain(f"{words.rstrip('.')}; I keep trying. If you end this: {order.repeated}")

    opening = {**order.target, "follow": "session" if stream else "nothing"}
    files = await read_files(order.attach)
    asked = linked(home, ("chat.open", opening), event=event, problem=problem)
    async with asked as (link, here):
        stored = await _stored(home, files, str(here["sessionKey"])) if files else []
        sent = await _sent(link, here, order, stored)
        is_told = True  # from here on it is not lost
        if sent.get("entry") is None:
            return order.print_answer(str(sent.get("answer") or ""), as_json=as_json)
        reference = f"{here['sid'][:8]}-{sent['entry']}"
        is_duplicate = order.warn_of_duplicate(is_duplicate=bool(sent.get("isDuplicate")))
        if (await link.ask("status", {}))["workers"] == 0:
            complain_of_no_workers()
        if order.wait_s == 0:
            return order.print_reference(reference, is_duplicate=is_duplicate, as_json=as_json)
        if stream:
            stream.turn = str(sent["entry"])
        wait = Wait(reference, order.wait_s)
        told = await _outcome(link, here, str(sent["entry"]), wait)
        if told is None:
            return wait.give_up()
        if as_json:
            return told.print_json(reference, is_duplicate=is_duplicate)
        return told.print(reference, stream)


async def _stored(
    home: "Home", files: Sequence[tuple[str, bytes]], session: str
) -> list[dict[str, Any]]:
    from remoteclaw.chat.files import Files

    gateway = Files(*own_gateway(home), home.downloads)
    return [await gateway.upload(name, content, session) for name, content in files]


async def _sent(
    link: Link, here: Mapping[str, Any], order: "Order", files: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    params = {
        "sessionKey": here["sessionKey"],
        "message": order.text,
        "messageId": order.message_id,
        "toCaller": True,
        "isBackground": order.is_background,
        "attachments": files,
    }
    try:
        async with asyncio.timeout(max(order.wait_s, SEND_S)):
            return await link.ask("chat.send", params, persists=order.wait_s > 0)
    except TimeoutError:
        raise PerhapsSent(
            f"Perhaps not sent: RemoteClaw stopped answering. {order.repeated}"
        ) from None
    except asyncio.CancelledError:
        complain(f"Perhaps not sent. {order.repeated}")
        raise


async def _outcome(
    link: Link, here: Mapping[str, Any], entry: str, wait: Wait
) -> ToldOutcome | None:
    """Wait for an outcome; None if it takes too long."""
    with wait.unless_interrupted(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait.seconds):
            while True:
                told = await link.ask(
                    "chat.outcome",
                    {
                        "sessionKey": here["sessionKey"],
                        "entry": entry,
                        "timeout": ASK_S,
                        "knowsPause": wait.knows_pause,
                    },
                    persists=True,
                )
                if told["status"] not in ("accepted", "running"):
                    return ToldOutcome(
                        status=told["status"],
                        reply=told["reply"],
                        files=told["files"],
                        error=told.get("error"),
                        usage=told.get("usage"),
                    )
                wait.pause(told.get("pause"))
    return None
