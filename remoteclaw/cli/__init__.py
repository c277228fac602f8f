"""The command line.

Each command imports what it needs when it runs: `--help` answers without loading Redis, pydantic or
asyncio.
"""

import gc

import click

from remoteclaw import __version__
from remoteclaw.cli import archive, files, tree  # noqa: F401 - they add commands to `sessions`
from remoteclaw.cli.agents import agents
from remoteclaw.cli.archive import stop
from remoteclaw.cli.attach import attach
from remoteclaw.cli.backup import backup, restore
from remoteclaw.cli.channel import channel
from remoteclaw.cli.chat import chat
from remoteclaw.cli.config import config
from remoteclaw.cli.cron import cron
from remoteclaw.cli.deadletters import deadletters, replies
from remoteclaw.cli.drain import drain
from remoteclaw.cli.error_line import ErrorLineGroup
from remoteclaw.cli.join import join
from remoteclaw.cli.logs import logs
from remoteclaw.cli.memory import memory
from remoteclaw.cli.open import open_page
from remoteclaw.cli.pairing import pairing
from remoteclaw.cli.policy import policy
from remoteclaw.cli.processes import dashboard, gateway, mcp, sweep, worker
from remoteclaw.cli.requests import requests
from remoteclaw.cli.send import send
from remoteclaw.cli.service import service
from remoteclaw.cli.sessions import sessions
from remoteclaw.cli.status import doctor, status
from remoteclaw.cli.terminals import audit, terminals
from remoteclaw.cli.token import token
from remoteclaw.cli.up import up
from remoteclaw.cli.usage import usage

__all__ = ["main"]

# Loaded modules live until exit, so searching them for garbage only slows the start, by a tenth.
gc.set_threshold(20_000)


@click.group(cls=ErrorLineGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="remoteclaw")
def main() -> None:
    """Talk to the coding agents on this machine from the chats you already use."""


SECTIONS = {
    "Everyday Commands": (
        up,
        chat,
        attach,
        terminals,
        open_page,
        send,
        stop,
        requests,
        sessions,
        cron,
        usage,
    ),
    "Settings and Rights": (config, agents, memory, channel, pairing, policy, token, audit),
    "When Something Is Wrong": (status, doctor, logs, deadletters, replies, backup, restore),
    "Parts of a Fleet": (join, worker, gateway, sweep, drain, dashboard, mcp, service),
}
for title, commands in SECTIONS.items():
    main.add_section(title, commands)
