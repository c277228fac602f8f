"""The command line.

Each command imports what it needs when it runs: `--help` answers without loading Redis.
"""

import click

from remoteclaw import __version__
from remoteclaw.cli.archive import archive, reset
from remoteclaw.cli.config import config
from remoteclaw.cli.cron import cron
from remoteclaw.cli.deadletters import deadletters
from remoteclaw.cli.edge import Edge
from remoteclaw.cli.gateway import gateway, token
from remoteclaw.cli.looking import agents, doctor, sessions, status
from remoteclaw.cli.policy import policy
from remoteclaw.cli.replies import replies
from remoteclaw.cli.running import dashboard, mcp, sweep, up, worker
from remoteclaw.cli.sending import send, stop
from remoteclaw.cli.usage import usage

__all__ = ["main"]


@click.group(cls=Edge)
@click.version_option(__version__, prog_name="remoteclaw")
def main() -> None:
    """Talk to the coding agents on this machine from the chats you already use."""


for command in (
    *(up, worker, gateway, sweep, dashboard, mcp, send, stop),
    *(token, status, agents, usage, sessions, replies, deadletters, cron, policy, doctor, config),
):
    main.add_command(command)
for command in (archive, reset):
    sessions.add_command(command)
