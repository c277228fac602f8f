"""The metrics of a gateway and of the fleet, for Prometheus.

Each gateway reads the fleet's numbers from Redis, so all of them report the same.
"""

import asyncio
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.metrics import BUCKETS_S, Counts, Histogram
from remoteclaw.fleet.sessions.sessions import WorkCounts
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.workers import WorkerView
from remoteclaw.holder.runs import warm_agents
from remoteclaw.host.version import VERSION
from remoteclaw.tools.catalog import METHODS, TOOLS

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

#: The outcomes of turns. Each is reported from the start, as 0, so that the first one of a kind is
#: an increase.
OUTCOMES = ("done", "failed", "stopped", "interrupted", "dropped", "dead")

#: A value with its labels' values.
Sample = tuple[tuple[str, ...], float | Histogram]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, as the documentation lists it."""

    name: str
    """Without the prefix `remoteclaw_`."""
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    of: Literal["fleet", "host", "gateway"] = "fleet"
    """Whose number it is: that of a host or a gateway differs between gateways."""


METRICS = (
    Metric("turns_total", "counter", "Turns that have ended.", ("agent", "outcome")),
    Metric(
        "turn_failures_total",
        "counter",
        "Ended turns with an error, by its category.",
        ("agent", "category"),
    ),
    Metric(
        "turn_wait_seconds",
        "histogram",
        "Time from a message's acceptance to the beginning of its turn.",
        ("agent",),
    ),
    Metric(
        "turn_first_text_seconds",
        "histogram",
        "Time from the beginning of a turn to the agent's first text.",
        ("agent",),
    ),
    Metric(
        "turn_duration_seconds",
        "histogram",
        "Time from the beginning of a turn to its end, with all its attempts and pauses.",
        ("agent",),
    ),
    Metric(
        "delivery_lag_seconds",
        "histogram",
        "Time from the end of a message to its receipt by the platform.",
        ("channel",),
    ),
    Metric(
        "sessions",
        "gauge",
        "Sessions that have work: a turn runs, messages wait for a worker, they wait for a time, "
        "or a terminal is open.",
        ("state",),
    ),
    Metric(
        "oldest_message_age_seconds",
        "gauge",
        "How long the oldest message waits for a worker; 0 if none waits.",
    ),
    Metric("hints_waiting", "gauge", "Hints that no worker has taken."),
    Metric("processes", "gauge", "Processes by host and version.", ("kind", "host", "version")),
    Metric("workers", "gauge", "Workers that serve the queues, by RQ's state.", ("host", "state")),
    Metric(
        "hung_workers",
        "gauge",
        "Workers that are connected and give no sign of life, and workers whose session has no "
        "valid lease or another worker.",
    ),
    Metric("open_requests", "gauge", "Requests that wait for a person."),
    Metric("dead_letters", "gauge", "Messages and replies that were given up."),
    Metric("redis_memory_used_bytes", "gauge", "Memory that Redis uses."),
    Metric(
        "redis_memory_limit_bytes",
        "gauge",
        "Limit of Redis' memory; messages are refused from four fifths of it. Absent without one.",
    ),
    Metric(
        "channel_up", "gauge", "Whether a process delivers for the account.", ("channel", "account")
    ),
    Metric(
        "channel_replies_waiting", "gauge", "Replies not delivered yet.", ("channel", "account")
    ),
    Metric("channel_messages_total", "counter", "Messages read.", ("channel", "account")),
    Metric(
        "channel_skipped_messages_total",
        "counter",
        "Messages that could not be read or handled.",
        ("channel", "account"),
    ),
    Metric(
        "agent_asides_total",
        "counter",
        "Messages that agents answered or judged during a turn.",
        ("agent",),
    ),
    Metric(
        "agent_work_seconds_total",
        "counter",
        "Time that agents worked on turns, as their CLIs report it.",
        ("agent",),
    ),
    Metric(
        "agent_tokens_total",
        "counter",
        "Tokens that models read, by where from, and wrote.",
        ("agent", "kind"),
    ),
    Metric(
        "agent_estimated_tokens_total", "counter", "Those tokens that are estimated.", ("agent",)
    ),
    Metric(
        "agent_cost_usd_total",
        "counter",
        "US dollars, where the CLI or a configured price says what a turn costs.",
        ("agent",),
    ),
    Metric("warm_agents", "gauge", "Agent processes that wait for a turn.", ("host",), of="host"),
    Metric("build_info", "gauge", "1, for this version.", ("version", "python"), of="gateway"),
    Metric(
        "gateway_calls_total", "counter", "Calls of methods.", ("method", "outcome"), of="gateway"
    ),
    Metric(
        "gateway_auth_failures_total", "counter", "Requests without a valid token.", of="gateway"
    ),
    Metric("gateway_sockets", "gauge", "Open WebSocket connections.", of="gateway"),
)


@dataclass(slots=True)
class GatewayMetrics:
    """Counts calls and failed authentications since the start of this gateway."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    auth_failures: int = 0

    def count_call(self, name: str, outcome: str) -> None:
        """Count a call. All unknown names are counted under "unknown"."""
        method = METHODS.get(name) or TOOLS.get(name)
        self.calls[method.name if method else "unknown", outcome] += 1


async def exposition(
    metrics: GatewayMetrics, fleet: Fleet, config: Config, home: Home, *, sockets: int, accept: str
) -> tuple[bytes, str]:
    """Return all metrics and their content type: the format that the header `accept` asks for."""
    views, memory = await fleet.workers.list(), await fleet.scripts.memory()
    processes = await fleet.processes.list()
    names = {each.host_id: each.host for each in processes}
    hosts = [names.get(view.host_id, view.host) for view in views]
    warm = await asyncio.to_thread(warm_agents, home.runs)
    samples: dict[str, Sequence[Sample]] = {
        **_turns(await fleet.metrics.read(), config.agents),
        **_work(await fleet.sessions.counts(), await fleet.scripts.now_ms()),
        **_usage(await fleet.usage.agents()),
        **await _accounts(fleet, config.accounts()),
        "hints_waiting": _one(await fleet.workers.waiting()),
        "processes": [*Counter((each.kind, each.host, each.version) for each in processes).items()],
        "workers": [
            *Counter((host, view.state) for host, view in zip(hosts, views, strict=True)).items()
        ],
        "hung_workers": _one(await _hung(fleet, views)),
        "open_requests": _one(len(await fleet.requests.waiting())),
        "dead_letters": _one(await fleet.dead_letters.count()),
        "redis_memory_used_bytes": _one(memory.used),
        "redis_memory_limit_bytes": _one(memory.limit) if memory.limit else [],
        "warm_agents": [((config.fleet.name_of_host,), len(warm))],
        "build_info": [((VERSION, platform.python_version()), 1)],
        "gateway_calls_total": [*metrics.calls.items()],
        "gateway_auth_failures_total": _one(metrics.auth_failures),
        "gateway_sockets": _one(sockets),
    }
    # In a thread, because the first import of the library takes 0.1 s.
    return await asyncio.to_thread(_encoded, samples, accept)


def _encoded(samples: Mapping[str, Sequence[Sample]], accept: str) -> tuple[bytes, str]:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class Reading(Collector):
        """Yields what was read."""

        def collect(self) -> Iterator["Family"]:
            for metric in METRICS:
                yield _family(metric, samples[metric.name])

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reading())
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _family(metric: Metric, samples: Sequence[Sample]) -> "Family":
    from prometheus_client import core

    name = f"remoteclaw_{metric.name}"
    if metric.kind == "histogram":
        histograms = core.HistogramMetricFamily(name, metric.meaning, labels=metric.labels)
        for labels, value in sorted(samples):
            assert isinstance(value, Histogram)
            buckets, total = [], 0
            for bound, count in zip((*map(float, BUCKETS_S), "+Inf"), value.counts, strict=True):
                total += count
                buckets.append((str(bound), total))
            histograms.add_metric(labels, buckets, value.sum_ms / 1000)
        return histograms
    family = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
    values = family(name, metric.meaning, labels=metric.labels)
    for labels, value in sorted(samples):
        assert not isinstance(value, Histogram)
        values.add_metric(labels, value)
    return values


def _one(value: float) -> Sequence[Sample]:
    return [((), value)]


def _turns(counts: Counts, agents: Iterable[str]) -> Mapping[str, Sequence[Sample]]:
    turns = Counter({(agent, outcome): 0 for agent in agents for outcome in OUTCOMES})
    failures: Counter[tuple[str, str]] = Counter()
    for (agent, outcome, category), count in counts.turns.items():
        turns[agent, outcome] += count
        if category:
            failures[agent, category] += count
    of = {
        name: [((label,), histogram) for label, histogram in by_label.items()]
        for name, by_label in counts.histograms.items()
    }
    return {
        "turns_total": [*turns.items()],
        "turn_failures_total": [*failures.items()],
        "turn_wait_seconds": of["wait"],
        "turn_first_text_seconds": of["first_text"],
        "turn_duration_seconds": of["duration"],
        "delivery_lag_seconds": of["delivery"],
    }


def _work(work: WorkCounts, now_ms: int) -> Mapping[str, Sequence[Sample]]:
    since_ms = work.waiting_since_ms
    states = {
        "running": work.running,
        "waiting": work.waiting,
        "postponed": work.postponed,
        "terminal": work.terminals,
    }
    return {
        "sessions": [((state,), count) for state, count in states.items()],
        "oldest_message_age_seconds": _one(max(0, now_ms - since_ms) / 1000 if since_ms else 0),
    }


async def _hung(fleet: Fleet, views: Sequence[WorkerView]) -> int:
    """Return the number of workers that hang, or have lost their session to another worker.

    A worker that is just beginning or ending its work counts as well, so only a number that stays
    means something.
    """
    busy = Counter(each.session for each in views if each.is_ours and each.session)
    leased = await fleet.sessions.leased(busy) if busy else set()
    lost = sum(count - (session in leased) for session, count in busy.items())
    return lost + sum(not each.is_ours for each in views)


def _usage(usage: Mapping[str, Usage]) -> Mapping[str, Sequence[Sample]]:
    kinds = ("input", "cache_read", "cache_write", "output")
    return {
        "agent_asides_total": [((agent,), used.asides) for agent, used in usage.items()],
        "agent_work_seconds_total": [
            ((agent,), used.duration_ms / 1000) for agent, used in usage.items()
        ],
        "agent_tokens_total": [
            ((agent, kind), getattr(used, f"{kind}_tokens"))
            for agent, used in usage.items()
            for kind in kinds
        ],
        "agent_estimated_tokens_total": [
            ((agent,), used.estimated_tokens) for agent, used in usage.items()
        ],
        "agent_cost_usd_total": [
            ((agent,), used.cost_micro_usd / 1_000_000) for agent, used in usage.items()
        ],
    }


async def _accounts(
    fleet: Fleet, accounts: Iterable[tuple[str, str]]
) -> Mapping[str, Sequence[Sample]]:
    readers = await fleet.replies.readers()
    views = {each: await fleet.accounts.view(*each) for each in accounts}
    return {
        "channel_up": [(each, readers.is_read(*each)) for each in views],
        "channel_replies_waiting": [(each, await fleet.replies.waiting(*each)) for each in views],
        "channel_messages_total": [(each, view.accepted) for each, view in views.items()],
        "channel_skipped_messages_total": [(each, view.skipped) for each, view in views.items()],
    }
