"""Pools: the workers with a label, and the agents whose turns only they run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remoteclaw.config.model import Config
from remoteclaw.config.model.agents import WORKER_LABEL
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.workers import WorkerView

#: The environment variable that gives a worker its label.
LABEL = "REMOTECLAW_LABEL"


def label_problem(label: str) -> str | None:
    """Return why a text is no label; None if it is one."""
    if WORKER_LABEL.fullmatch(label):
        return None
    return f"{label[:40]!a} is no label: use at most 32 lowercase letters, digits and -"


@dataclass(frozen=True, slots=True)
class Pools:
    """The labels of agents in Redis, from which each script knows the queue of a session's hints.

    Every sweeper and every worker writes those of its configuration when it starts, and a sweeper
    also when they change. So the hosts of a fleet need the same `runs_on`.
    """

    _scripts: Scripts

    async def announce(self, config: Config) -> None:
        """Store the labels of the agents of a configuration, in place of the earlier ones."""
        labels = labels_of(config)

        def commands(ask: Any) -> None:
            ask.delete(keys.POOLS)
            if labels:
                ask.hset(keys.POOLS, mapping=labels)

        await self._scripts.run_pipeline(commands, is_atomic=True)

    async def put(self, agent: str, label: str) -> None:
        """Store the label of one agent."""
        await self._scripts.call(self._scripts.client.hset, keys.POOLS, agent, label)

    async def label(self, agent: str) -> str:
        """Return the label of an agent; empty if it has none."""
        label = await self._scripts.call(self._scripts.client.hget, keys.POOLS, agent)
        return label.decode() if label else ""


def labels_of(config: Config) -> Mapping[str, str]:
    """Return the labels of the agents that have one."""
    return {name: agent.runs_on for name, agent in config.agents.items() if agent.runs_on}


def pool_problems(config: Config, workers: Sequence[WorkerView]) -> Mapping[str, str]:
    """Return a sentence for each agent whose turns no running worker takes; none without workers.

    A label that no worker has is the usual reason; the other is that all workers have one.
    """
    served = {view.label for view in workers if view.is_ours}
    problems = {}
    for name, agent in config.agents.items():
        if served and (agent.runs_on or "") not in served:
            problems[name] = (
                f"no worker has the label {agent.runs_on}, so the messages to {name} wait: start "
                f"one with `remoteclaw worker --label {agent.runs_on}`."
                if agent.runs_on
                else f"every worker has a label, so the messages to {name} wait: start a worker "
                "without --label."
            )
    return problems
