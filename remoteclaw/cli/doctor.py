"""The command `doctor`."""

import sys
from dataclasses import asdict

import click

from remoteclaw.cli.output import echo, echo_json, json_option
from remoteclaw.host.terminal import one_line

__all__ = ["doctor"]


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Look at what RemoteClaw needs here, and say what is missing."""
    import asyncio

    from remoteclaw.up.doctor import examine

    async def run() -> bool:
        if as_json:
            findings = [finding async for finding in examine()]
            echo_json([asdict(finding) for finding in findings])
            return all(finding.ok for finding in findings)
        is_well = True
        async for finding in examine():  # each is shown when it is known
            is_well &= finding.ok
            text = one_line(finding.text)
            echo(f"{'ok ' if finding.ok else 'NO '} {finding.subject:<16} {text}")
        return is_well

    sys.exit(0 if asyncio.run(run()) else 1)
