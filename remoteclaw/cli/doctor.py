"""The command `doctor`."""

import sys

import click

from remoteclaw.cli.output import echo
from remoteclaw.host.terminal import one_line

__all__ = ["doctor"]


@click.command()
def doctor() -> None:
    """Look at what RemoteClaw needs here, and say what is missing."""
    import asyncio

    from remoteclaw.up.doctor import examine

    async def run() -> bool:
        is_well = True
        async for finding in examine():
            is_well &= finding.ok
            text = one_line(finding.text)
            echo(f"{'ok ' if finding.ok else 'NO '} {finding.subject:<16} {text}")
        return is_well

    sys.exit(0 if asyncio.run(run()) else 1)
