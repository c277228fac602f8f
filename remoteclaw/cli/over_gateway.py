"""Connects commands to a gateway, and sends messages for `send` through this state directory's.

A command that talks to Redis itself has to import pydantic, redis and rq, which takes three times
the processor time.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.files import read_files
from remoteclaw.cli.outcome import EXIT_ERROR, OutcomeReport, OutcomeWait, complain_of_no_workers
from remoteclaw.cli.output import complain
from remoteclaw.client.link import Address, GatewayMissing, GatewayRefused, Link, persist
from remoteclaw.client.own import open_link, own_gateway
from remoteclaw.errors import PerhapsSent

if TYPE_CHECKING:
    from remoteclaw.cli.order import Order
    from remoteclaw.cli.stream import AnswerStream
    from remoteclaw.config.home import Home

#: How long one call of `outcomes.wait` waits, in seconds; the gateway allows at most 110.
OUTCOME_CALL_S = 100.0
#: How long `send` tries to send a message at least, in seconds, even with a shorter --wait: Redis
#: may have stored the message already.
MIN_SEND_S = 10.0
#: How long `send` waits before it asks whether a worker runs, and how long it asks, in seconds:
#: the question costs as much as a message.
SOON_S, STATUS_S = 1.0, 5.0


def gateway_at(url: str | None, home: "Home", *, scope: str) -> tuple[Address, str]:
    """Return the address and token of the gateway at `url`, or of our own if there is no `url`.

    The token for `url` is in the environment. Raises `GatewayMissing` if it is absent, with advice
    to create one that has `scope`.
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


#: Why a message has neither an entry nor an answer.
WITHDRAWN = "The message was withdrawn: a /stop has overtaken it."
REPEATED = (
    "It was handled before the connection was lost: your conversation has the answer, which "
    "`remoteclaw chat` shows."
)


async def send_over_gateway(
    home: "Home", order: "Order", *, as_json: bool, stream: "AnswerStream | None"
) -> int:
    """Send a message, and print its reply or reference; return the exit status."""

    asked = set[str]()

    def on_event(name: str, payload: dict[str, Any]) -> None:
        if name == "session.live" and stream:
            stream.live(payload)
        if name != "session.request" or payload["state"] != "open" or payload["id"] in asked:
            return
        asked.add(payload["id"])
        complain(
            f"The agent waits for your answer: `remoteclaw requests show {payload['id']}` shows "
            "what it asks. Answer in your chat, on the page or with `remoteclaw requests answer`."
        )

    must_warn = True

    def on_problem(text: str) -> None:
        nonlocal must_warn
        if text and must_warn:
            must_warn = False
            complain(f"{text.rstrip('.')}; still trying to send. {order.repeat_hint}")

    send_s = max(order.wait_s, MIN_SEND_S)
    follow = "session" if stream or order.is_in_chat else "nothing"
    opening = {**order.target, "follow": follow}
    files = await read_files(order.attach)
    opened = open_link(
        home,
        ("chat.open", opening),
        on_event=on_event,
        on_problem=on_problem,
        refused_s=send_s,
    )
    async with opened as (link, chat):
        uploads = []
        if files:
            upload = _uploads(home, files, str(chat["sessionKey"]))
            uploads = [await persist(each, on_problem, persist_s=send_s) for each in upload]
        sent = await _send(link, chat, order, uploads, send_s)
        must_warn = False  # the message is accepted, so a problem can't lose it
        is_duplicate = order.warn_of_duplicate(is_duplicate=bool(sent.get("isDuplicate")))
        for notice in sent["notices"]:
            complain(notice)
        if sent.get("entry") is None:
            is_command = sent.get("reply") is not None or is_duplicate
            if not is_command and not sent["notices"]:
                complain(REPEATED if sent.get("isDuplicate") else WITHDRAWN)
            if not is_command:
                return EXIT_ERROR
            return order.print_answer(str(sent.get("reply") or ""), as_json=as_json)
        reference = f"{chat['sid'][:8]}-{sent['entry']}"
        if order.wait_s == 0:
            await _warn_without_workers(link, str(chat["sessionKey"]))
            return order.print_reference(reference, is_duplicate=is_duplicate, as_json=as_json)
        if stream:
            stream.turn = str(sent["entry"])
        wait = OutcomeWait(reference, order.wait_s)
        outcome = await _wait_for_outcome(link, chat, str(sent["entry"]), wait)
        if outcome is None:
            return wait.give_up()
        if as_json:
            return outcome.print_json(reference, is_duplicate=is_duplicate)
        return outcome.print(reference, stream)


async def _warn_without_workers(link: Link, session: str) -> None:
    """Warn if no worker runs, or none for the session's agent.

    The gateway may have too much to do to say so.
    """
    with contextlib.suppress(TimeoutError, GatewayRefused):
        async with asyncio.timeout(STATUS_S):
            fleet = await link.ask("fleet.status", {})
            problems = {each["subject"]: each["text"] for each in fleet["problems"]}
            agent = f"agent {session.partition('/')[0]}"
            if "paused" in problems or agent in problems:
                complain(f"the message waits: {problems.get('paused') or problems[agent]}")
            elif not any(each["isOurs"] for each in fleet["workers"]):
                if "drained" in problems:
                    complain(f"no worker runs, so the message waits. {problems['drained']}")
                else:
                    complain_of_no_workers()


def _uploads(
    home: "Home", files: Sequence[tuple[str, bytes]], session: str
) -> list[Callable[[], Awaitable[dict[str, Any]]]]:
    """Return functions that upload the files."""
    from remoteclaw.chat.files import Files

    gateway = Files(*own_gateway(home), home.downloads)
    return [partial(gateway.upload, name, content, session) for name, content in files]


async def _send(
    link: Link,
    chat: Mapping[str, Any],
    order: "Order",
    files: Sequence[Mapping[str, Any]],
    send_s: float,
) -> dict[str, Any]:
    params = {
        "sessionKey": chat["sessionKey"],
        "text": order.text,
        "messageId": order.message_id,
        "waits": True,
        "isBackground": order.is_background,
        "files": files,
    }
    try:
        async with asyncio.timeout(send_s):
            return await link.ask("chat.send", params, persists=order.wait_s > 0)
    except TimeoutError:
        raise PerhapsSent(
            f"Perhaps not sent: RemoteClaw stopped answering. {order.repeat_hint}"
        ) from None
    except asyncio.CancelledError:
        complain(f"Perhaps not sent. {order.repeat_hint}")
        raise


async def _wait_for_outcome(
    link: Link, chat: Mapping[str, Any], entry: str, wait: OutcomeWait
) -> OutcomeReport | None:
    """Return an entry's outcome; None if it has none within the time of `wait`.

    Warns if no worker takes the message soon.
    """
    is_first = True
    with wait.unless_interrupted(), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait.wait_s):
            while True:
                outcome = await link.ask(
                    "outcomes.wait",
                    {
                        "runId": f"{chat['sid']}-{entry}",
                        "timeout": SOON_S if is_first else OUTCOME_CALL_S,
                        "knowsPause": wait.knows_pause,
                    },
                    persists=True,
                )
                if outcome["status"] not in ("accepted", "running"):
                    return OutcomeReport(
                        status=outcome["status"],
                        reply=outcome["reply"],
                        files=outcome["files"],
                        error=outcome.get("error"),
                        usage=outcome.get("usage"),
                    )
                wait.print_pause(outcome.get("pause"))
                if is_first and outcome["status"] != "running":
                    await _warn_without_workers(link, str(chat["sessionKey"]))
                is_first = False
    if is_first:
        await _warn_without_workers(link, str(chat["sessionKey"]))
    return None
