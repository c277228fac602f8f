"""Samples of a fleet at rest, and the check that nothing has grown."""

import collections
import contextlib
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.fleet import Fleet
from tests.chaos.hosts import Host
from tests.support.processes import descriptors, marked_processes, private_mb

#: Fewer samples are not compared: in their first third, not each process has worked already.
MIN_SAMPLES = 9
#: What may be added between the first third of the samples and the last one: a part of the first,
#: and an amount for each process or row. Kills make processes younger, an allocator keeps what one
#: long answer took, and a pool keeps as many connections to Redis as a burst has needed, such as
#: the messages after an outage. In 30 minutes, an adapter handles thousands of messages: a leak of
#: 3 KB of memory, or of a descriptor for each hundredth of them, is beyond it.
MORE, MORE_MB, MORE_DESCRIPTORS, MORE_KEYS = 0.1, 6.0, 24, 60
#: Redis' memory grows with each message, whose outcome and id are kept for a week. This growth per
#: message may be so much larger in the last third than in the first: tables double at times.
MORE_PER_MESSAGE = 1.5
#: A key that exists for longer than this, in seconds, is one of those that are kept of a message, a
#: command or a failed job for a day or a week. The number of all other keys may not grow.
KEPT_S = 3600
#: The beginnings of most of the keys that are kept: their expiry is not asked for.
KEPT = ("rc:known:", "rc:outcome:", "rc:message-origin:")
#: So many keys are asked for at once.
BATCH = 1000
#: What differs between keys of one kind.
_IDS = re.compile(r"\{.*?\}|[0-9a-f]{8,}(?:-[0-9a-f-]+)?|\d+")


@dataclass(frozen=True)
class Part:
    """A process in a sample."""

    kind: str
    """Its kind, such as `worker`."""
    pid: int
    mb: float
    """Its private memory."""
    descriptors: int


@dataclass(frozen=True)
class Sample:
    """The state of a fleet at rest."""

    messages: int
    """The number of messages that people had written."""
    parts: Sequence[Part]
    redis_mb: float
    connections: int
    """The clients of Redis."""
    kept: int
    """The number of keys that expire after hours or days."""
    keys: Mapping[str, int]
    """The number of all other keys, by kind."""
    files: int
    """The files of all state directories, without logs and Redis' own."""

    def total(self, kind: str) -> tuple[int, float, int]:
        """Return the number, the memory and the descriptors of the processes of a kind."""
        parts = [part for part in self.parts if part.kind == kind]
        return len(parts), sum(p.mb for p in parts), sum(p.descriptors for p in parts)


async def sample(fleet: Fleet, hosts: Sequence[Host], messages: int) -> Sample:
    """Take a sample of a fleet at rest."""
    parts = []
    for host in hosts:
        found = {**host.parts(), "agent": marked_processes(host.stack.home)}
        for kind, pids in found.items():
            for pid in pids:
                with contextlib.suppress(OSError):  # it has just ended
                    parts.append(Part(kind, pid, private_mb(pid), descriptors(pid)))
    client: Any = fleet.scripts.client
    info = await client.info()
    kept, counts = await _keys(client)
    return Sample(
        messages=messages,
        parts=parts,
        redis_mb=info["used_memory"] / 2**20,
        connections=info["connected_clients"],
        kept=kept,
        keys=counts,
        files=sum(_files(host) for host in hosts),
    )


async def _keys(client: Any) -> tuple[int, collections.Counter[str]]:
    """Return the number of keys that are kept for long, and that of each kind of the others."""
    kept, counts = 0, collections.Counter[str]()
    names = [name.decode() async for name in client.scan_iter(count=BATCH)]
    asked = [name for name in names if not name.startswith(KEPT)]
    kept += len(names) - len(asked)
    for start in range(0, len(asked), BATCH):
        batch = asked[start : start + BATCH]
        async with client.pipeline(transaction=False) as pipeline:
            for name in batch:
                pipeline.ttl(name)
            lives = await pipeline.execute()
        for name, life_s in zip(batch, lives, strict=True):
            if life_s > KEPT_S:
                kept += 1
            else:
                counts[_IDS.sub("*", name)] += 1
    return kept, counts


def _files(host: Host) -> int:
    home = host.stack.home.path
    ours = (each for each in home.iterdir() if each.name not in ("logs", "db"))
    return sum(sum(1 for _ in each.rglob("*")) if each.is_dir() else 1 for each in ours)


@dataclass(frozen=True)
class Row:
    """What was measured in the first and in the last third of a run."""

    name: str
    first: float
    last: float
    most: float
    """The largest last value that is flat."""

    @property
    def is_flat(self) -> bool:
        """Whether it has not grown."""
        return self.last <= self.most

    def line(self) -> str:
        """Return the row of the table."""
        verdict = "" if self.is_flat else "  GROWS"
        return f"{self.name:<44} {self.first:>9.1f} {self.last:>9.1f} {self.most:>9.1f}{verdict}"


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Compare the medians of the last third of the samples with the most of the first third."""
    third = len(samples) // 3
    first, last = samples[:third], samples[-third:]
    found = []
    for kind in sorted({part.kind for each in samples for part in each.parts}):
        before = _largest([each.total(kind) for each in first])
        after = _medians([each.total(kind) for each in last])
        more = [1, MORE_MB * max(before[0], 1), MORE_DESCRIPTORS * max(before[0], 1)]
        for what, *values in zip(
            ("processes", "MB", "descriptors"), before, after, more, strict=True
        ):
            found.append(_row(f"{kind}: {what}", *values))
    found += _survivors(first, last)
    found += _of_redis(first, last)
    return found


def _row(name: str, first: float, last: float, more: float) -> Row:
    return Row(name, first, last, (1 + MORE) * first + more)


def _largest(values: Sequence[Sequence[float]]) -> list[float]:
    return [max(each) for each in zip(*values, strict=True)]


def _medians(values: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.median(each) for each in zip(*values, strict=True)]


def _survivors(first: Sequence[Sample], last: Sequence[Sample]) -> list[Row]:
    """Compare the processes that have lived all the time, by themselves."""
    found = []
    born = {part.pid: part for part in first[-1].parts}
    for part in last[-1].parts:
        old = born.get(part.pid)
        if old is None or old.kind != part.kind or part.kind.endswith("agent"):
            continue
        name = f"{part.kind} {part.pid}, alive all the time"
        found.append(_row(f"{name}: MB", old.mb, part.mb, MORE_MB))
        found.append(
            _row(f"{name}: descriptors", old.descriptors, part.descriptors, MORE_DESCRIPTORS)
        )
    return found


def _of_redis(first: Sequence[Sample], last: Sequence[Sample]) -> list[Row]:
    names = ("Redis: keys, without those kept for hours", "Redis: connections", "files")
    values = [
        [(sum(s.keys.values()), s.connections, s.files) for s in samples]
        for samples in (first, last)
    ]
    before, after = _largest(values[0]), _medians(values[1])
    found = [_row(*each, MORE_KEYS) for each in zip(names, before, after, strict=True)]
    per_message = [_growth(each) for each in (first, last)]
    for name, then, now, least in zip(
        ("Redis: keys per message", "Redis: bytes per message"),
        *per_message,
        (1, 1000),
        strict=True,
    ):
        found.append(Row(name, then, now, MORE_PER_MESSAGE * max(then, least)))
    return found


def _growth(samples: Sequence[Sample]) -> tuple[float, float]:
    """Return the growth by each message of a third, in keys that are kept and in bytes."""
    begin, end = samples[0], samples[-1]
    count = max(1, end.messages - begin.messages)
    memory = (end.redis_mb - begin.redis_mb) * 2**20
    return (end.kept - begin.kept) / count, memory / count


def table(samples: Sequence[Sample]) -> tuple[str, bool]:
    """Return the comparison as text, and whether everything is flat."""
    if len(samples) < MIN_SAMPLES:
        return f"{len(samples)} samples: too few to tell whether anything grows\n", True
    found = rows(samples)
    lines = [f"{'':<44} {'first':>9} {'last':>9} {'at most':>9}", *(row.line() for row in found)]
    if not all(row.is_flat for row in found):
        more = collections.Counter(samples[-1].keys)
        more.subtract(samples[len(samples) // 3].keys)
        grown = [f"  {count:+} {kind}" for kind, count in more.most_common(12) if count > 0]
        lines += ["keys of Redis:", *grown]
    return "".join(f"{line}\n" for line in lines), all(row.is_flat for row in found)
