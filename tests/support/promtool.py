"""Prometheus' own `promtool`, which evaluates rules."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from prometheus_client.samples import Sample

#: Where it is: in this variable, or on PATH. In Debian, it is part of the package `prometheus`.
PROMTOOL = os.environ.get("REMOTECLAW_TEST_PROMTOOL") or shutil.which("promtool")
#: The gateways that report the same, as two of them do.
GATEWAYS = ("one:18789", "two:18789")


def firing(
    rules: Path, before: Sequence[Sample], after: Sequence[Sample], alerts: Iterable[str]
) -> str:
    """Check that exactly `alerts` fire ten minutes after the numbers went from `before` to `after`.

    Return what `promtool` says about it; empty if it is so.
    """
    old = {_series(sample, ""): sample.value for sample in before}
    series = [
        {
            "series": _series(sample, gateway),
            "values": f"{old.get(_series(sample, ''), '_')} {sample.value}x15",
        }
        for sample in after
        for gateway in GATEWAYS
    ]
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(alerts)]
    query = {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "10m"}
    tests = {
        "rule_files": [str(rules)],
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [{**query, "exp_samples": expected}],
            }
        ],
    }
    assert PROMTOOL
    ran = subprocess.run(
        [PROMTOOL, "test", "rules", "/dev/stdin"],
        input=json.dumps(tests), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return f"{ran.stdout}{ran.stderr}" if ran.returncode else ""


def _series(sample: Sample, instance: str) -> str:
    labels: Mapping[str, str] = {**sample.labels, "instance": instance}
    return f"{sample.name}{{{','.join(f'{k}={json.dumps(v)}' for k, v in labels.items())}}}"
