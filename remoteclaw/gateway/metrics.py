"""The gateway's counters, for Prometheus."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from remoteclaw.fleet import Fleet
from remoteclaw.fleet.usage import Usage
from remoteclaw.tools.catalog import METHODS, TOOLS


class Meters:
    """Counts calls and wrong tokens since this gateway began."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.auth_failures = 0

    def called(self, name: str, outcome: str) -> None:
        """Count a call; unknown names are counted as one."""
        method = METHODS.get(name) or TOOLS.get(name)
        self.calls[method.name if method else "unknown", outcome] += 1


async def exposition(
    meters: Meters, fleet: Fleet, accounts: Iterable[tuple[str, str]], *, sockets: int
) -> str:
    """Return the counters and current measurements in Prometheus' text format.

    `accounts` are those on chat platforms, by channel and name.
    """
    (busy, _), hints, workers, usage = await asyncio.gather(
        fleet.sessions.busy(limit=1),
        fleet.workers.waiting(),
        fleet.workers.list(),
        fleet.usage.agents(),
    )
    return "".join(
        (
            *_meter(
                "gateway_calls_total",
                "counter",
                "Calls by method and outcome.",
                *(
                    (f'{{method="{method}",outcome="{outcome}"}}', count)
                    for (method, outcome), count in sorted(meters.calls.items())
                ),
            ),
            *_meter(
                "gateway_auth_failures_total",
                "counter",
                "Requests without a valid token.",
                ("", meters.auth_failures),
            ),
            *_meter("gateway_sockets", "gauge", "Open WebSocket connections.", ("", sockets)),
            *_meter("busy_sessions", "gauge", "Sessions that have work.", ("", busy)),
            *_meter("hints_waiting", "gauge", "Hints that no worker has taken.", ("", hints)),
            *_meter("workers", "gauge", "Workers that serve the queues.", ("", len(workers))),
            *_usage_meters(usage),
            *await _account_meters(fleet, accounts),
        )
    )


async def _account_meters(fleet: Fleet, accounts: Iterable[tuple[str, str]]) -> list[str]:
    readers = await fleet.replies.readers()
    up, waiting, accepted, aside = [], [], [], []
    for channel, account in accounts:
        labels = f'{{channel="{channel}",account="{account}"}}'
        view = await fleet.accounts.view(channel, account)
        up.append((labels, float(readers.is_there(channel, account))))
        waiting.append((labels, float(await fleet.replies.waiting(channel, account))))
        accepted.append((labels, float(view.accepted)))
        aside.append((labels, float(view.aside)))
    return [
        *_meter("channel_up", "gauge", "Whether a process runs the account.", *up),
        *_meter("channel_replies_waiting", "gauge", "Replies not delivered yet.", *waiting),
        *_meter("channel_messages_total", "counter", "Messages that were read.", *accepted),
        *_meter("channel_aside_total", "counter", "Messages that could not be read.", *aside),
    ]


def _usage_meters(usage: Mapping[str, Usage]) -> Iterator[str]:
    """Yield agents' usage since their first turns, which Redis has: each gateway reports it."""
    by_agent = [(f'{{agent="{agent}"', used) for agent, used in sorted(usage.items())]
    yield from _meter(
        "agent_turns_total",
        "counter",
        "Turns of agents.",
        *((f"{agent}}}", used.turns) for agent, used in by_agent),
    )
    yield from _meter(
        "agent_turn_seconds_total",
        "counter",
        "Time that turns took.",
        *((f"{agent}}}", used.duration_ms / 1000) for agent, used in by_agent),
    )
    yield from _meter(
        "agent_tokens_total",
        "counter",
        "Tokens that models read, by where from, and wrote.",
        *(
            (f'{agent},kind="{kind}"}}', count)
            for agent, used in by_agent
            for kind, count in (
                ("input", used.input_tokens),
                ("cache_read", used.cache_read_tokens),
                ("cache_write", used.cache_write_tokens),
                ("output", used.output_tokens),
            )
        ),
    )
    yield from _meter(
        "agent_cost_usd_total",
        "counter",
        "US dollars, where the CLI says what a turn costs.",
        *((f"{agent}}}", used.cost_micro_usd / 1_000_000) for agent, used in by_agent),
    )


def _meter(name: str, kind: str, meaning: str, *values: tuple[str, float]) -> Iterator[str]:
    yield f"# HELP remoteclaw_{name} {meaning}\n# TYPE remoteclaw_{name} {kind}\n"
    for labels, value in values:
        yield f"remoteclaw_{name}{labels} {value}\n"
