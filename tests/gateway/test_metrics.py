"""The metrics of a gateway, as Prometheus reads them."""

import re
from collections.abc import Sequence

import pytest
from prometheus_client.samples import Sample

from remoteclaw.gateway.metrics import METRICS, Metric
from remoteclaw.host.version import VERSION
from tests.support.doors import opened, own_token
from tests.support.scrapes import ACCEPT, scrape, value
from tests.support.stack import Stack
from tests.support.waiting import eventually

#: The endings for what is measured: base units (https://prometheus.io/docs/practices/naming/).
UNITS = {"seconds", "bytes"}
#: Words that stand for another unit, or for a type, which the type already says.
FORBIDDEN = re.compile(
    r"(^|_)(ms|milliseconds|minutes|hours|days|kb|kilobytes|mb|megabytes|percent|count|sum|bucket|"
    r"counter|gauge|histogram|metric)(_|$)"
)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_rules_of_prometheus(metric: Metric) -> None:
    assert re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", metric.name)  # no colons, no camelCase
    assert not FORBIDDEN.search(metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    unit = metric.name.removesuffix("_total").rpartition("_")[2]
    measures = re.search("seconds|bytes", metric.name)
    assert (unit in UNITS) == bool(measures or metric.kind == "histogram")
    assert metric.meaning[0].isupper() or metric.meaning[0].isdecimal()
    assert metric.meaning.endswith(".")
    assert not {"le", "quantile", "instance", "job"} & {*metric.labels}
    for label in metric.labels:
        assert re.fullmatch("[a-z]+", label)
        assert label not in metric.name.split("_")[1:]


async def test_every_metric_is_reported_and_parsed_by_the_official_library(stack: Stack) -> None:
    stack.configure(agents={"broken": {"runtime": "demo", "command": ["/nowhere/demo"]}})
    await stack.start_worker()
    accepted = await stack.append("hello")
    await stack.outcome(accepted)
    await stack.until_idle(accepted)
    async with opened(stack) as door:
        token = own_token(stack)

        async def rested() -> Sequence[Sample] | None:
            """Return the metrics once the worker has ended its job; until then, it may count."""
            samples = await scrape(door, token)
            return None if value(samples, "hung_workers") else samples

        samples = await eventually(rested)
        plain = await door.get("/metrics", token)
        open_metrics = await door.get("/metrics", token, Accept=ACCEPT)

    assert plain.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert open_metrics.headers["Content-Type"].startswith("application/openmetrics-text;")
    described = re.findall(r"^# TYPE remoteclaw_(\S+) (\S+)$", plain.body.decode(), re.MULTILINE)
    assert described == [(metric.name, metric.kind) for metric in METRICS]
    assert value(samples, "turns_total", agent="main", outcome="done") == 1
    assert value(samples, "turns_total", agent="broken", outcome="failed") == 0
    for name in ("wait", "first_text", "duration"):
        assert value(samples, f"turn_{name}_seconds_count", agent="main") == 1
        assert value(samples, f"turn_{name}_seconds_bucket", agent="main", le="+Inf") == 1
        assert 0 <= value(samples, f"turn_{name}_seconds_sum", agent="main") < 60
    assert value(samples, "build_info", version=VERSION) == 1
    assert (
        0 < value(samples, "redis_memory_used_bytes") < value(samples, "redis_memory_limit_bytes")
    )
    assert value(samples, "oldest_message_age_seconds") == 0
    assert value(samples, "processes", kind="worker", version=VERSION) == 1
    (host,) = {each.labels["host"] for each in samples if "host" in each.labels}
    states = [each for each in samples if each.name == "remoteclaw_workers" and each.value]
    assert [each.labels["host"] for each in states] == [host]  # it may still end its job
    assert value(samples, "warm_agents") == 1


async def test_what_waits_is_reported_with_its_age(stack: Stack) -> None:
    await stack.append("hello")
    async with opened(stack) as door:
        samples = await scrape(door, own_token(stack))

    assert value(samples, "sessions", state="waiting") == 1
    assert value(samples, "sessions", state="running") == 0
    assert 0 < value(samples, "oldest_message_age_seconds") < 60
