"""The command `usage`: sums the tokens, the time and the cost of turns and asides."""

from typing import TYPE_CHECKING, Literal

import click

from remoteclaw.cli.access import with_fleet
from remoteclaw.cli.output import json_option, print_list
from remoteclaw.clock import format_exact_duration

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.sessions.usage import Usage

#: The number of days that `remoteclaw.fleet.sessions.usage` keeps. They are repeated here, so that
#: `--help` does not import that module.
MAX_DAYS = 92
COLUMNS = ("TURNS", "ASIDES", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT")


@click.command()
@click.option(
    "--by",
    type=click.Choice(("agent", "session", "day")),
    default="agent",
    show_default=True,
    help="What each row sums up.",
)
@click.option(
    "--days",
    type=click.IntRange(1, MAX_DAYS),
    default=30,
    show_default=True,
    metavar="NUMBER",
    help="How many days, today included.",
)
@json_option
@with_fleet
async def usage(
    fleet: "Fleet", by: Literal["agent", "session", "day"], days: int, as_json: bool
) -> None:
    """Add up the tokens, the time and the cost of turns and asides.

    ASIDES counts the messages that were answered or judged during a turn. INPUT counts the tokens
    that the model read and no cache had. ESTIMATED counts the tokens that the CLI does not report
    and that are estimated; without any, it is not shown. Days are those of the workers' time zone.
    COST is in US dollars, if the agent CLI reports it; under a subscription, it is the price of the
    same tokens without one.
    """
    from remoteclaw.fleet.sessions.usage import sum_usage

    sums = sum_usage(await fleet.usage.days(days=days), by=by)
    sids = [name.encode() for name in sums if by == "session"]
    views = {view.sid: view for view in await fleet.sessions.views(sids)}
    labels = {name: str(view.key) if (view := views.get(name)) else name for name in sums}

    has_estimates = any(used.estimated_tokens for used in sums.values())

    def row(name: str) -> tuple[object, ...]:
        used = sums[name]
        view = views.get(name)
        title = view.name or view.key if view else None
        return (
            *((name[:8], title) if by == "session" else (name,)),
            used.turns,
            used.asides,
            used.input_tokens,
            used.cache_read_tokens,
            used.cache_write_tokens,
            used.output_tokens,
            *((used.estimated_tokens,) if has_estimates else ()),
            format_exact_duration(used.duration_ms),
            used.cost_text or "-",
        )

    headers = ("SESSION", "TITLE") if by == "session" else (by.upper(),)
    estimates = ("ESTIMATED",) if has_estimates else ()

    print_list(
        sums,
        as_json=as_json,
        to_json=lambda name: {by: labels[name], **sums[name].plain()},
        headers=(*headers, *COLUMNS, *estimates, "TIME", "COST"),
        row=row,
        empty="No agent has taken a turn in these days.",
        cut_column="TITLE" if by == "session" else "",
    )


def usage_line(used: "Usage") -> str:
    """Return usage as one line: turns, if more than one, asides, tokens, time and cost."""
    parts = [f"{used.turns:,} turns"] if used.turns > 1 else []
    if used.asides:
        parts.append(f"{used.asides:,} aside{'' if used.asides == 1 else 's'}")
    if not (used.turns or used.read_tokens):
        return ", ".join([*parts, "counted with the turn"])
    parts.append(f"{used.read_tokens:,} tokens read ({used.cache_read_tokens:,} from the cache)")
    parts.append(f"{used.output_tokens:,} written")
    if used.estimated_tokens:
        parts.append(f"{used.estimated_tokens:,} of them estimated")
    if used.duration_ms:
        parts.append(format_exact_duration(used.duration_ms))
    if cost := used.cost_text:
        parts.append(cost)
    return ", ".join(parts)
