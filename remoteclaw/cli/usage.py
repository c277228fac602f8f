"""The command `usage`: sums the tokens, the time and the cost of turns and asides."""

from collections.abc import Mapping
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.output import echo_text, json_option, print_result, short_id
from remoteclaw.clock import format_exact_duration

#: The number of days that `remoteclaw.fleet.sessions.usage` keeps. They are repeated here, so that
#: `--help` does not import that module.
MAX_DAYS = 92
COLUMNS = ("TURNS", "ASIDES", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT")


@click.command()
@click.option(
    "--by",
    type=click.Choice(("agent", "session", "day", "hour")),
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
def usage(by: str, days: int, as_json: bool) -> None:
    """Add up tokens, time and cost; show what is left of budgets.

    ASIDES counts the messages that were answered or judged during a turn. INPUT counts the tokens
    that the model read and no cache had. ESTIMATED counts the tokens that the CLI does not report
    and that are estimated; without any, it is not shown. Days are those of the time zone in [fleet]
    of the configuration. COST is in US dollars, if the agent CLI reports it or [prices] has the
    model; under a subscription, it is the price of the same tokens without one. LONGEST WAIT is how
    long a message waited for its turn; it and hours are known for eight days.
    """
    from remoteclaw.events import format_cost

    result = call_method("usage", by=by, days=days)
    has_estimates = any(row["estimatedTokens"] for row in result["rows"])

    def cells(row: Mapping[str, Any]) -> tuple[object, ...]:
        name = row["name"]
        return (
            *(
                (short_id(name), row["title"] or (name if "/" in name else None))
                if by == "session"
                else (name,)
            ),
            row["turns"],
            row["asides"],
            row["inputTokens"],
            row["cacheReadTokens"],
            row["cacheWriteTokens"],
            row["outputTokens"],
            *((row["estimatedTokens"],) if has_estimates else ()),
            format_exact_duration(row["durationMs"]),
            format_cost(row["costUsd"]) or "-",
            *((_wait(row),) if by in ("day", "hour") else ()),
        )

    waits = ("LONGEST WAIT",) if by in ("day", "hour") else ()
    headers = ("SESSION", "TITLE") if by == "session" else (by.upper(),)
    estimates = ("ESTIMATED",) if has_estimates else ()
    print_result(
        result,
        "rows",
        as_json=as_json,
        headers=(*headers, *COLUMNS, *estimates, "TIME", "COST", *waits),
        row=cells,
        empty="No agent has taken a turn in these days.",
        cut_column="TITLE" if by == "session" else "",
    )
    if not as_json:
        print_budgets(result)


def _wait(row: Mapping[str, Any]) -> str:
    return "-" if (wait_ms := row.get("waitMs")) is None else format_exact_duration(wait_ms)


def print_budgets(result: Mapping[str, Any]) -> None:
    """Print what is left of the budgets in a result, each on a line."""
    for budget in result["budgets"]:
        echo_text(budget["left"])


def usage_line(used: Mapping[str, Any]) -> str:
    """Return usage as one line: turns, if more than one, asides, tokens, time and cost."""
    from remoteclaw.events import format_cost

    parts = [f"{used['turns']:,} turns"] if used["turns"] > 1 else []
    if used["asides"]:
        parts.append(f"{used['asides']:,} aside{'' if used['asides'] == 1 else 's'}")
    cached = used["cacheReadTokens"]
    read = used["inputTokens"] + cached + used["cacheWriteTokens"]
    if not (used["turns"] or read):
        return ", ".join([*parts, "counted with the turn"])
    parts.append(f"{read:,} tokens read ({cached:,} from the cache)")
    parts.append(f"{used['outputTokens']:,} written")
    if used["estimatedTokens"]:
        parts.append(f"{used['estimatedTokens']:,} of them estimated")
    if used["durationMs"]:
        parts.append(format_exact_duration(used["durationMs"]))
    if cost := format_cost(used["costUsd"]):
        parts.append(cost)
    return ", ".join(parts)
