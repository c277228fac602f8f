"""The dashboard and the alert rules of the example `monitoring`, on the metrics that exist."""

import json
import signal
from collections.abc import Sequence
from typing import Any

import promql_parser as promql
import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.samples import Sample

from remoteclaw.fleet import keys
from remoteclaw.gateway.metrics import METRICS
from remoteclaw.host.process import is_alive
from tests.support.agents import ROOT
from tests.support.channel import TestChannel
from tests.support.doors import opened, own_token
from tests.support.processes import children
from tests.support.promtool import PROMTOOL, firing
from tests.support.scrapes import scrape, value
from tests.support.stack import Stack, kill
from tests.support.waiting import eventually

MONITORING = ROOT / "examples" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
PANELS = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
EXPRESSIONS = [
    *(rule["expr"] for rule in RULES),
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
]
#: The labels of each series, by its name.
LABELS = {
    f"remoteclaw_{metric.name}{ending}": {*metric.labels, *(["le"] if ending == "_bucket" else [])}
    for metric in METRICS
    for ending in (("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",))
}
#: The metrics that differ between gateways, which an expression need not aggregate.
OF_GATEWAY = {f"remoteclaw_{metric.name}" for metric in METRICS if metric.of == "gateway"}


def nodes(expression: str) -> list[Any]:
    """Return the nodes of an expression's tree; raise ValueError if it is none."""
    found: list[Any] = []
    tree = promql.parse(expression.replace("$__rate_interval", "5m"))
    promql.walk(tree, found.append)
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_use_metrics_and_labels_that_exist(expression: str) -> None:
    found = nodes(expression)
    selectors = [each for each in found if isinstance(each, promql.VectorSelector)]
    selectors += [each.vector_selector for each in found if isinstance(each, promql.MatrixSelector)]

    names = {str(each.name) for each in selectors}
    assert names
    assert names <= LABELS.keys()
    known = {"instance", *(label for name in names for label in LABELS[name])}
    assert {matcher.name for each in selectors for matcher in each.matchers.matchers} <= known
    aggregations = [each for each in found if isinstance(each, promql.AggregateExpr)]
    grouped = {label for each in aggregations if each.modifier for label in each.modifier.labels}
    assert grouped <= known


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_take_the_maximum_over_gateways(expression: str) -> None:
    aggregations = [each for each in nodes(expression) if isinstance(each, promql.AggregateExpr)]
    innermost = [each for each in aggregations if not has_aggregation(each.expr)]

    assert innermost or any(name in expression for name in OF_GATEWAY)
    assert {str(each.op) for each in innermost} <= {"max"}


def has_aggregation(tree: Any) -> bool:
    """Whether an aggregation is in the tree."""
    return not promql.walk(tree, lambda node: not isinstance(node, promql.AggregateExpr))


def test_rules_and_panels_say_what_they_are_about() -> None:
    readme = (MONITORING / "README.md").read_text()

    assert len(RULES) == 6
    for rule in RULES:
        assert f"| `{rule['alert']}` |" in readme
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {*rule["annotations"]} == {"summary", "description"}
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(panel["title"] and panel["targets"] for panel in PANELS)


@pytest.mark.thorough
@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
async def test_each_alert_fires_for_its_fault_and_for_no_other(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    channel = TestChannel.installed(monkeypatch, stack)
    request.addfinalizer(channel.end)
    stack.lease_s = 5  # a hung worker loses its session soon
    channel.configure()
    stack.reopen()
    adapter = channel.start(claim_ms=1000)
    client: Any = stack.fleet.scripts.client
    async with opened(stack) as door:

        async def now() -> Sequence[Sample]:
            return await scrape(door, own_token(stack))

        async def reaches(name: str, wanted: float) -> None:
            async def is_reached() -> bool:
                return value(await now(), name) == wanted

            await eventually(is_reached)

        worker = await stack.start_worker()
        await reaches("channel_up", 1)
        for text in ("hello", "fail", "fail"):
            await stack.outcome(await stack.append(text))
        await reaches("hung_workers", 0)  # the worker no longer ends its last turn
        scrapes = {"": await now()}
        for _ in range(3):
            await stack.outcome(await stack.append("fail"))
        await reaches("hung_workers", 0)
        scrapes["TurnsFail"] = await now()

        await client.config_set(
            "maxmemory", int((await client.info("memory"))["used_memory"] / 0.75)
        )
        scrapes["RedisFull"] = await now()
        await client.config_set("maxmemory", 0)

        accepted = await stack.append("slow")
        await stack.reached(accepted, "output")
        (horse,) = children(worker.pid)
        kill(horse, signal.SIGSTOP)
        await reaches("hung_workers", 1)
        scrapes["WorkerHangs"] = await now()
        worker.kill()
        worker.wait()
        assert await stack.fleet.workers.clear_dead(is_alive) == 1

        waiting = await stack.append("hello", channel_id="other")
        inbound = keys.inbound(waiting.session.sid)
        ((entry_id, fields),) = await client.xrange(inbound)
        await client.delete(inbound)
        ten_minutes_ago = int(entry_id.partition(b"-")[0]) - 600_000
        await client.xadd(inbound, fields, id=f"{ten_minutes_ago}-0")
        scrapes["MessageWaits"] = await now()
        await client.xadd(inbound, fields)
        await client.xdel(inbound, f"{ten_minutes_ago}-0")

        adapter.kill()
        await reaches("channel_up", 0)
        scrapes["AdapterAway"] = await now()
        scrapes["Away"] = []  # no gateway answers

    before = scrapes[""]
    for name, after in scrapes.items():
        alerts = [f"RemoteClaw{name}"] if name else []
        assert firing(ALERTS, before, after, alerts) == ""
        before = after
    assert {rule["alert"] for rule in RULES} == {f"RemoteClaw{name}" for name in scrapes if name}
