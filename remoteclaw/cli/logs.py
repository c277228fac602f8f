"""The command `logs`."""

import re
import time
from datetime import UTC, datetime, timedelta

import click

from remoteclaw.cli.output import echo, echo_text
from remoteclaw.errors import NotFound

#: Without --since, the latest records are printed, this many.
LATEST = 200
#: How often new records are looked for, in seconds: no event says that a file has grown.
FOLLOW_S = 0.5
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Period(click.ParamType):  # type: ignore[type-arg]
    """A period such as 10m."""

    name = "period"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the period."""
        match = re.fullmatch(r"(\d{1,6})([smhd])", value)
        if match is None:
            self.fail(f"{value!r} is no period such as 90s, 10m, 2h or 1d.", param, ctx)
        return timedelta(**{UNITS[match[2]]: int(match[1])})


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with new records, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as a line of JSON.")
@click.option("--session", metavar="ID", help="Only a session (id or key), or a reference.")
@click.option("--since", type=Period(), metavar="PERIOD", help="Only of the last 90s, 10m, 2h, 1d.")
def logs(follow: bool, as_json: bool, session: str | None, since: timedelta | None) -> None:
    """Print the logs of this host by time.

    Without --since, prints the latest 200 records. Parts that run as services of their own log to
    the journal instead: journalctl --user -u 'remoteclaw*'.
    """
    import json

    from remoteclaw.config.home import Home
    from remoteclaw.host.log_files import LogFiles

    home = Home.default().check()
    files, wanted = LogFiles(home.logs), _part_of(session)
    earliest = datetime.now(UTC) - since if since else None
    records = [
        record
        for record in files.new_records()
        if wanted in record.text and (earliest is None or record.at >= earliest)
    ]
    if not records and not follow:
        matching = " that matches" if session or since else ""
        raise NotFound(
            f"{home.logs} has no record{matching}. Parts that run as services of their own log to "
            "the journal: journalctl --user -u 'remoteclaw*'."
        )
    if earliest is None:
        records = records[-LATEST:]
    while True:
        for record in records:
            if as_json:
                echo(json.dumps({"process": record.process, **record.fields}))
            else:
                echo_text(f"{record.process}: {record.text}")
        if not follow:
            return
        time.sleep(FOLLOW_S)
        records = [record for record in files.new_records() if wanted in record.text]


def _part_of(session: str | None) -> str:
    """Return what is in each line about a session or a message; empty for every line."""
    from remoteclaw.messages import SessionKey

    if session is None:
        return ""
    if "/" in session:
        try:
            session = SessionKey.parse(session).sid
        except ValueError:
            raise NotFound(f"{session!r} is no session's key.") from None
    if not re.fullmatch(r"[0-9a-f]{8,32}|[0-9a-f]{8}-\d+-\d+", session):
        raise NotFound(
            f"{session!r} is no id, key or reference: `remoteclaw sessions list` shows them."
        )
    return session if "-" in session else session[:8]
