"""The gateway's metrics, for Prometheus."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from remoteclaw.fleet import Fleet
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.tools.catalog import METHODS, TOOLS


class GatewayMetrics:
    """Counts calls and failed authentications since the start of this gateway."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.auth_failures = 0

    def count_call(self, name: str, outcome: str) -> None:
        """Count a call. All unknown names are counted under "unknown"."""
        method = METHODS.get(name) or TOOLS.get(name)
        self.calls[method.name if method else "unknown", outcome] += 1


async def exposition(
    metrics: GatewayMetrics, fleet: Fleet, accounts: Iterable[tuple[str, str]], *, sockets: int
) -> str:
    """Return all metrics in Prometheus' text format.

    `accounts` are the accounts on chat platforms, each as channel and name.
    """
    (busy, _), hints, workers, usage = await asyncio.gather(
        fleet.sessions.busy(limit=1),
        fleet.workers.waiting(),
        fleet.workers.list(),
        fleet.usage.agents(),
    )
    return "".join(
        (
            *_metric(
                "gateway_calls_total",
                "counter",
                "Calls by method and outcome.",
                *(
                    (f'{{method="{method}",outcome="{outcome}"}}', count)
                    for (method, outcome), count in sorted(metrics.calls.items())
                ),
            ),
            *_metric(
                "gateway_auth_failures_total",
                "counter",
                "Requests without a valid token.",
                ("", metrics.auth_failures),
            ),
            *_metric("gateway_sockets", "gauge", "Open WebSocket connections.", ("", sockets)),
            *_metric("busy_sessions", "gauge", "Sessions that have work.", ("", busy)),
            *_metric("hints_waiting", "gauge", "Hints that no worker has taken.", ("", hints)),
            *_metric("workers", "gauge", "Workers that serve the queues.", ("", len(workers))),
            *_usage_metrics(usage),
            *await _account_metrics(fleet, accounts),
        )
    )


async def _account_metrics(fleet: Fleet, accounts: Iterable[tuple[str, str]]) -> list[str]:
    readers = await fleet.replies.readers()
    up, waiting, accepted, skipped = [], [], [], []
    for channel, account in accounts:
        labels = f'{{channel="{channel}",account="{account}"}}'
        view = await fleet.accounts.view(channel, account)
        up.append((labels, float(readers.is_read(channel, account))))
        waiting.append((labels, float(await fleet.replies.waiting(channel, account))))
        accepted.append((labels, float(view.accepted)))
        skipped.append((labels, float(view.skipped)))
    return [
        *_metric("channel_up", "gauge", "Whether a process runs the account.", *up),
        *_metric("channel_replies_waiting", "gauge", "Replies not delivered yet.", *waiting),
        *_metric("channel_messages_total", "counter", "Messages that were read.", *accepted),
        *_metric("channel_aside_total", "counter", "Messages that were skipped.", *skipped),
    ]


def _usage_metrics(usage: Mapping[str, Usage]) -> Iterator[str]:
    """Yield the metrics of agents' total usage. Each gateway reports the same sums, from Redis."""
    by_agent = [(f'{{agent="{agent}"', used) for agent, used in sorted(usage.items())]
    yield from _metric(
        "agent_turns_total",
        "counter",
        "Turns of agents.",
        *((f"{agent}}}", used.turns) for agent, used in by_agent),
    )
    yield from _metric(
        "agent_asides_total",
        "counter",
        "Messages that agents answered or judged during a turn.",
        *((f"{agent}}}", used.asides) for agent, used in by_agent),
    )
    yield from _metric(
        "agent_turn_seconds_total",
        "counter",
        "Time that turns took.",
        *((f"{agent}}}", used.duration_ms / 1000) for agent, used in by_agent),
    )
    yield from _metric(
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
    yield from _metric(
        "agent_estimated_tokens_total",
        "counter",
        "Those of the tokens that are estimated.",
        *((f"{agent}}}", used.estimated_tokens) for agent, used in by_agent),
    )
    yield from _metric(
        "agent_cost_usd_total",
        "counter",
        "US dollars, where the CLI says what a turn costs.",
        *((f"{agent}}}", used.cost_micro_usd / 1_000_000) for agent, used in by_agent),
    )


def _metric(name: str, kind: str, meaning: str, *values: tuple[str, float]) -> Iterator[str]:
    yield f"# HELP remoteclaw_{name} {meaning}\n# TYPE remoteclaw_{name} {kind}\n"
    for labels, value in values:
        yield f"remoteclaw_{name}{labels} {value}\n"
