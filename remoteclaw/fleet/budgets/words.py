"""The words about budgets: their names, sums and times, and the sentences for people."""

import math
from datetime import datetime

from remoteclaw.config.budgets import AppliedBudget
from remoteclaw.fleet.budgets.standing import Standing
from remoteclaw.messages import SessionKey

#: The notices in the chat whose message waits: owners were asked, or can't be.
WAITS = (
    "{Name} is used up. I have asked an owner for more. Your message is kept, and I answer it when "
    "they allow that{or_later}; /stop drops it."
)
WAITS_HERE = (
    "{Name} is used up. Your message is kept, and I answer it when an owner allows more, by the "
    "request above{or_later}; /stop drops it."
)
WAITS_UNASKED = (
    "{Name} is used up, and there is no owner whom I can ask for more. Your message is kept"
    "{and_later}.{command} /stop drops it."
)
ALLOW = " `remoteclaw requests answer {id} once` allows half as much again."
#: The notice about messages that are refused.
REFUSED = "{Name} is used up, so I don't answer{until}. {then}"
AGAIN_THEN = "Your message is not kept: send it again then."
NEW_CONVERSATION = "Your message is not kept: /new begins a conversation with a budget of its own."
#: The notice behind the partial answer of a turn that has reached the limit.
STOPPED_HERE = "(I have stopped here, because {name} is used up.{next})"
ASKED = " An owner is asked for more."
#: Why something other than a message is refused.
USED_UP = "{Name} is used up{until}: {ask}."
ASK_OWNER = "an owner can allow more with `remoteclaw requests`"
RAISE = "raise it in [[budgets]] to go on"
#: The text of the request to owners, and of the message at 80 %.
SPENT = "{who} {have} spent {spent} of {limit}{when}."
CARD = "**Budget:** {what} Messages wait for your answer{or_later}."
WARNING = "**Budget:** {what}"


def name_of(applied: AppliedBudget) -> str:
    """Return the name of a budget within a sentence."""
    kind, _, name = applied.scope.partition(" ")
    if kind == "tree":
        return "the budget of this conversation and its tasks"
    time = {"day": "today's", "month": "this month's"}[applied.budget.per or "day"]
    return f"{time} budget" + (f" of {name}" if name else "")


def labels_of(applied: AppliedBudget) -> tuple[str, str, str]:
    """Return the labels of the answers to the request about a budget."""
    time = {"day": " today", "month": " this month", None: ""}[applied.budget.per]
    return "Half as much again", f"No limit{time}", "Stop"


def spent_text(standing: Standing, session: SessionKey) -> str:
    """Return what was spent of a budget, as a sentence; `session` has reached its limit."""
    kind, _, name = standing.applied.scope.partition(" ")
    # The unit of which most is spent.
    unit, (spent, limit) = max(standing.measures.items(), key=lambda item: item[1][0] / item[1][1])
    match unit:
        case "usd":
            sums = _dollars(spent), _dollars(limit)
        case "tokens":
            sums = f"{spent:,.0f}", f"{limit:,.0f} tokens"
        case _:
            sums = _decimal(math.floor(spent * 10) / 10), f"{_decimal(limit)} {_minutes(limit)}"
    who = {"all": "All agents", "tree": f"The conversation `{session.place}` and its tasks"}
    return SPENT.format(
        who=who.get(kind, name),
        have="has" if kind in ("agent", "person") else "have",
        spent=sums[0],
        limit=sums[1],
        when={"day": " today", "month": " this month", None: ""}[standing.applied.budget.per],
    )


def left_text(standing: Standing) -> str:
    """Return what is left of a budget, such as `main: $12.40 of $20.00 left today`."""
    sums = []
    for unit, (spent, limit) in standing.measures.items():
        left = max(0.0, limit - spent)
        if unit == "usd":
            sums.append(f"${left:,.2f} of ${limit:,.2f}")
        else:
            name = unit if unit == "tokens" else _minutes(limit)
            sums.append(f"{_decimal(math.ceil(left * 10) / 10)} of {_decimal(limit)} {name}")
    when = {"day": " today", "month": " this month", None: ""}[standing.applied.budget.per]
    decided = {"": "", "lifted": " (no limit holds)", "stopped": " (stopped by an owner)"}
    text = f"{scope_name(standing.applied)}: {', '.join(sums)} left{when}"
    return text + decided[standing.verdict]


def scope_name(applied: AppliedBudget) -> str:
    """Return the name of what a budget limits."""
    kind, _, name = applied.scope.partition(" ")
    whole = {"all": "all agents", "tree": "this conversation with its tasks"}
    return whole.get(kind, name)


def time_text(at: datetime | None, before: str) -> str:
    """Return a time as people read it, after `before`; empty without a time."""
    return f"{before} {at:%a %d %b, %H:%M %Z}" if at else ""


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def used_up(standing: Standing, end: datetime | None) -> str:
    """Return why something is refused, as a sentence."""
    return USED_UP.format(
        Name=capital(name_of(standing.applied)),
        until=time_text(end, " until"),
        ask=ASK_OWNER if standing.asks else RAISE,
    )


def _decimal(number: float) -> str:
    """Return a number with at most one decimal."""
    return f"{number:,.1f}".removesuffix(".0")


def _minutes(limit: float) -> str:
    return "minute" if limit == 1 else "minutes"


def _dollars(usd: float) -> str:
    return f"${usd:,.0f}" if usd == round(usd) else f"${usd:,.2f}"
