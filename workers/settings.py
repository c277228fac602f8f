"""Settings of `rq worker -c workers.settings -j workers.jobs.DrainJob`, read before it forks.

RQ reads the names in capitals; `workers.jobs` uses the others.
Importing this module checks the flags and Redis, and preloads everything that a work-horse needs,
so that a turn waits only for the fork.
"""

import asyncio
import functools
import gc
import os
import sys

import click
import redis.utils

from remoteclaw.bridge import Hooks
from remoteclaw.config.home import Home
from remoteclaw.config.reload import CurrentConfig, load_and_keep
from remoteclaw.errors import RemoteClawError
from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.drains import wait_while_drained
from remoteclaw.fleet.fitness import check_fitness
from remoteclaw.fleet.pools import LABEL, Pools, label_problem
from remoteclaw.fleet.sentinel import rq_settings
from remoteclaw.fleet.workers import PEOPLE_ONLY, announce
from remoteclaw.host.logs import logging_config
from remoteclaw.session import drain as _preloaded  # noqa: F401 - so that work-horses find it loaded
from remoteclaw.session.launch import open_lifeline

COMMAND = "rq worker -c workers.settings -j workers.jobs.DrainJob --job-monitoring-interval 3600"
STOCK_WORKER = "rq.Worker"
#: The commands of RQ that run workers.
WORKER_COMMANDS = ("worker", "worker-pool")

#: The process id of the worker; its work-horses must not outlive it.
WORKER_PID = os.getpid()


def _is_worker() -> bool:
    """Whether a worker command of RQ imports this module, rather than a test."""
    context = click.get_current_context(silent=True)
    return context is not None and context.command.name in WORKER_COMMANDS


def _check_flags() -> None:
    """Exit if the worker was started with other flags than those of `COMMAND`.

    Without the job class, it would run any job; without these settings, it would use another Redis.
    """
    # RQ imports this module from inside its command, so the flags are in click's context.
    context = click.get_current_context(silent=True)
    if context is None or not _is_worker():
        return
    start_it = f"Start it as `remoteclaw worker`, which is `{COMMAND}`."
    if context.command.name != "worker" or context.params.get("worker_class") != STOCK_WORKER:
        sys.exit(
            "This worker would end each turn at its start: it must fork its work-horses itself, so "
            f"worker-pool and other worker classes can't be used. {start_it}"
        )
    job_class = context.params.get("job_class")
    if job_class != "workers.jobs.DrainJob":
        sys.exit(
            f"This worker would run any job that is put on its queue ({job_class}). {start_it}"
        )
    elsewhere = context.params.get("url") or context.params.get("queues")
    if context.params.get("config") != "workers.settings" or elsewhere:
        sys.exit(f"This worker would not look at RemoteClaw's Redis and queues. {start_it}")


async def _check_redis(url: str) -> None:
    client = open_redis(url)
    try:
        await check_fitness(client, url, needs_room=True)
        if _is_worker():
            await Pools(Scripts(client)).announce(config)
    finally:
        await client.aclose()


_check_flags()
#: A worker with a label runs only the turns of the agents with `runs_on` = the same label.
label = os.environ.get(LABEL, "")
if label and (problem := label_problem(label)):
    sys.exit(f"{LABEL}: {problem}.")
try:
    home = Home.default().create()
    config = load_and_keep(home)
    hooks = Hooks.load(config.hooks)
    current = CurrentConfig(home, config)
    _url = home.redis_url(config)
    asyncio.run(_check_redis(_url))
    _rq = rq_settings(_url)
    REDIS_URL, SENTINEL = _rq["REDIS_URL"], _rq["SENTINEL"]
    #: Opened here once, and connected by each work-horse: opening it takes 2 ms.
    #: The length of a lease is fixed when the worker starts.
    fleet = Fleet.open(_url, lease_s=config.fleet.lease_s, memory_limit=config.redis.memory_limit)
    fleet.scripts.load()
except RemoteClawError as error:
    sys.exit(str(error))

# For each new connection, such as RQ's own in each work-horse, redis-py reads its version from the
# metadata of its package, which takes 2 ms. It is read once here.
redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)
redis.utils.get_lib_version()


def _queues(lanes: tuple[keys.Lane, ...]) -> list[str]:
    """Return the queues of `lanes`, most urgent first; in each lane, this host's queue first."""
    return [
        name
        for lane in lanes
        for name in (keys.lane_on(lane, home.host_id, label), keys.lane_for(lane, label))
    ]


#: At least one worker should serve only the lane `agents`, of people's messages, so that they never
#: wait for cron jobs and tasks.
QUEUES = _queues(("agents",) if os.environ.get(PEOPLE_ONLY) == "1" else keys.LANES)
DICT_CONFIG = logging_config(log_format=config.fleet.log_format)

if _is_worker():
    open_lifeline(home)
    wait_while_drained(_url, home.host_id)
    announce(_url, QUEUES, home.host_id, config.fleet.name_of_host)

# The objects loaded so far live as long as the worker. Frozen, the garbage collector does not write
# to their memory pages, which stay shared with every work-horse.
gc.collect()
gc.freeze()
