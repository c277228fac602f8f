"""The command `join`."""

from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load
from remoteclaw.cli.config import change_file
from remoteclaw.cli.output import echo
from remoteclaw.cli.redis_url import fit_url
from remoteclaw.errors import RemoteClawError, StateDirectoryError
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.config.home import Home
    from remoteclaw.config.model import Config


@click.command()
@click.argument("url")
@click.option("--label", metavar="NAME", help="The label of this host's workers, such as gpu.")
def join(url: str, label: str | None) -> None:
    """Let this host work in the fleet of the Redis at URL.

    Checks Redis, the versions and the clock, and the CLIs and workspaces of the configured agents.
    If nothing is missing, URL is saved as `[redis] url`. Leave a password out of URL: it is asked
    for, or read from the standard input.

    Exit status: 0 the host can start, 1 something is missing, and nothing is saved.
    """
    import asyncio

    from remoteclaw.fleet.pools import label_problem
    from remoteclaw.up.lock import running_pid

    if label and (problem := label_problem(label)):
        raise click.BadParameter(problem, param_hint="--label")
    home, config = load()
    if pid := running_pid(home):
        raise StateDirectoryError(
            f"RemoteClaw runs in {home.path} (process {pid}): end it, and join again."
        )
    home.create()
    url = fit_url(url)
    if not asyncio.run(_examine(url, home, config, label or "")):
        raise RemoteClawError("A check failed, so nothing was saved: mend it and join again.")
    plan = change_file(lambda file: file.plan_patch(file.read(), {"redis": {"url": url}}))
    if plan.paths:
        echo(f"Saved in {home.config_file}: redis.url.")
    given = f"REMOTECLAW_LABEL={label} " if label else ""
    echo(f"Start this host with `{given}remoteclaw up`.")


async def _examine(url: str, home: "Home", config: "Config", label: str) -> bool:
    """Print what this host has and lacks; return whether nothing is missing."""
    from remoteclaw.fleet import Fleet
    from remoteclaw.up.join import examine_join

    fleet, is_well = Fleet.open(url), True
    try:
        async for finding in examine_join(fleet, home, config, label):
            is_well &= finding.ok
            mark = "--" if finding.absent else "ok" if finding.ok else "NO"
            echo(f"{mark}  {finding.subject:<16} {one_line(finding.text)}")
    finally:
        await fleet.aclose()
    return is_well
