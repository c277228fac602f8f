"""The commands `backup` and `restore`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, on_fleet
from remoteclaw.cli.output import echo, echo_wrapped, short_id
from remoteclaw.cli.redis_url import fit_url
from remoteclaw.clock import local_time
from remoteclaw.errors import RemoteClawError
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

#: `restore` lists at most this many conversations.
MAX_SHOWN = 50
#: The setting that is never in a backup.
REDIS_URL = "redis.url"
#: The secret that each start makes.
MADE_ANEW = "gateway-token"

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=_FILE)
@click.option("--with-secrets", is_flag=True, help="Also tokens, keys and secret settings.")
def backup(file: Path, with_secrets: bool) -> None:
    """Write a backup to FILE.

    Everything goes on meanwhile.

    It has what Redis has, the configuration and the agents' identity files. Conversations are
    readable in it, so FILE is readable only by you. `remoteclaw restore FILE` restores it.
    """
    if str(file) == "-":  # a script would take what is printed for the backup
        raise click.UsageError("FILE is the name of a file: the standard output has the summary.")
    from remoteclaw.host.files import format_size
    from remoteclaw.up.backup import Backup, write_backup

    home, config = load()

    async def run(fleet: "Fleet") -> Backup:
        return await write_backup(fleet, home, config, file, with_secrets=with_secrets)

    written: Backup = on_fleet(run)
    echo(f"{one_line(str(file))} is written, {format_size(written.size)}. In it:")
    _row("redis", "conversations, waiting messages, cron jobs, memories, usage and pairings")
    for name in written.files:
        _row("file", name)
    if written.manifest.has_secrets:
        _row("secrets", "tokens, keys and secret settings: keep the file like a password")
    echo("Not in it:")
    for name in written.manifest.left_out:
        _row("redis" if name == REDIS_URL else "secret", name)
    for path in written.workspaces:
        _row("workspace", str(path))
    _row("CLIs", "their own files, such as ~/.claude: agents go on from the record in Redis")


def _row(label: str, text: str) -> None:
    echo_wrapped(one_line(text), lead=f"  {label:<9} ")


@click.command()
@click.argument("file", type=_FILE, required=False)
@click.option("--go", is_flag=True, help="Start what waits, after you have seen the list.")
@click.option("--redis", "url", metavar="URL", help="The empty Redis to which the data goes.")
def restore(file: Path | None, go: bool, url: str | None) -> None:
    """Restore a backup from FILE into an empty state directory.

    The fleet then starts paused, because what waits in the backup may have been answered since:
    after `remoteclaw up`, `restore` without FILE lists it, and `restore --go` starts it. End the
    earlier installation first. Without --redis, the data goes to RemoteClaw's own Redis. Leave a
    password out of URL: it is asked for, or read from the standard input.
    """
    if file and go:
        raise click.UsageError("Restore first, then use --go.")
    if url and not file:
        raise click.UsageError("--redis needs the FILE of a backup.")
    if file:
        _restore(file, url or "")
    else:
        on_fleet(_go if go else _list)


def _restore(file: Path, url: str) -> None:
    import asyncio

    from remoteclaw.config.home import Home
    from remoteclaw.up.restore import restore as restore_to

    home = Home.default().check()
    url = fit_url(url) if url else ""
    restored = asyncio.run(restore_to(home, file, url))
    manifest = restored.manifest
    echo(f"The backup of {_time(manifest.at_ms)} on {manifest.host} is restored to {home.path}.")
    secrets = [name for name in manifest.left_out if name not in (REDIS_URL, MADE_ANEW)]
    rows = [("secret", name) for name in secrets]
    if url and not restored.config_file:
        rows.insert(0, ("redis", f"{REDIS_URL}: name the Redis that has the data now"))
    elif not url and REDIS_URL in manifest.left_out:
        rows.insert(0, ("redis", f"{REDIS_URL}: the data is in RemoteClaw's own Redis now"))
    if rows:
        echo("These are not in it, so set what is needed before the start:")
        for label, text in rows:
            _row(label, text)
    echo_wrapped(
        "The fleet is paused: run `remoteclaw up`, then `remoteclaw restore` lists what waits."
    )


def _time(at_ms: int) -> str:
    return f"{local_time(at_ms, None):%Y-%m-%d %H:%M}"


async def _list(fleet: "Fleet") -> None:
    backup_ms = await _paused_from(fleet)
    echo(f"The fleet was restored from a backup of {_time(backup_ms)}, and is paused.")
    count, views = await fleet.sessions.busy(limit=MAX_SHOWN)
    held = await fleet.restores.held()
    has = "conversation has" if count == 1 else "conversations have"
    echo(f"{count} {has} work, which `remoteclaw stop SESSION` drops:")
    for view in views:
        name = one_line(view.name or "")[:60]
        echo(f"  {short_id(str(view.key))} {view.status:<9} {view.key} {name}".rstrip())
    if count > len(views):
        echo(f"  and {count - len(views)} more")
    if held.reports:
        are = "message from a chat" if held.reports == 1 else "messages from chats"
        echo(f"{held.reports} {are} had arrived and were not accepted yet.")
    if held.letters:
        are = "reply is" if held.letters == 1 else "replies are"
        echo(
            f"{held.letters} {are} not sent, because people may have got them since: see "
            "`remoteclaw deadletters list`."
        )
    echo("Cron jobs that were due meanwhile are skipped: `remoteclaw cron runs` shows them.")
    echo("`remoteclaw restore --go` starts the work.")


async def _go(fleet: "Fleet") -> None:
    from remoteclaw.config.reload import CurrentConfig
    from remoteclaw.cron.scheduler import Scheduler

    await _paused_from(fleet)
    home, config = load()
    scheduler = Scheduler(fleet.scripts, fleet.waker, fleet.budgets, CurrentConfig(home, config))
    skipped = await scheduler.skip_due()
    await fleet.restores.go()
    jobs = f", {skipped} due times of cron jobs are skipped" if skipped else ""
    echo(f"The fleet goes on{jobs}.")


async def _paused_from(fleet: "Fleet") -> int:
    backup_ms = await fleet.restores.paused_from()
    if backup_ms is None:
        raise RemoteClawError("This fleet is not paused: `remoteclaw restore FILE` restores one.")
    return backup_ms
