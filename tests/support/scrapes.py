"""What Prometheus reads from a gateway."""

from collections.abc import Sequence
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.doors import Door

#: What Prometheus 3 sends; the parser of this format is stricter than that of the older one.
ACCEPT = "application/openmetrics-text;version=1.0.0"


async def scrape(door: Door, token: str) -> Sequence[Sample]:
    """Return all samples of a gateway, as the official library parses them."""
    answer = await door.get("/metrics", token, Accept=ACCEPT)
    assert answer.status == 200
    parsed: Any = text_string_to_metric_families
    families = parsed(answer.body.decode())
    return [sample for family in families for sample in family.samples]


def value(samples: Sequence[Sample], name: str, **labels: str) -> float:
    """Return the value of the one sample with this name, without its prefix, and these labels."""
    (found,) = (
        each.value
        for each in samples
        if each.name == f"remoteclaw_{name}" and labels.items() <= each.labels.items()
    )
    return found
