"""Budgets: which of them limit a turn, and the checks of them, of people and of prices."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from remoteclaw.config.model import AgentConfig, Budget, Config
from remoteclaw.config.model.agents import ANOTHER_AGENT
from remoteclaw.config.tool_lists import quoted
from remoteclaw.errors import ConfigError, did_you_mean
from remoteclaw.profiles import CHANNELS, id_problem, profile_of

#: The runtimes that report the cost of a turn; and the demo agent, which asks no model.
TELL_COST = ("claude", "opencode", "demo")


@dataclass(frozen=True, slots=True)
class AppliedBudget:
    """A budget that limits a turn, and the sum that it limits."""

    budget: Budget
    scope: str
    """The field of the sum: `all`, `agent NAME`, `person NAME` or `tree SID`."""
    period: str
    """The day or the month of the sum, such as 2026-11-26 or 2026-11; empty for a tree."""


def budgets_of(
    config: Config, *, agent: str, people: Iterable[str], root: str, day: str
) -> list[AppliedBudget]:
    """Return the budgets that limit a turn of `agent`, in the order of the configuration.

    `people` are those for whom the turn works, each as CHANNEL:ID; `root` is the id of the
    conversation's own session, which is above all its tasks; `day` is the turn's day, as
    2026-11-26. A person's own budget takes the place of that of `person:*` for the same time.
    """
    names = person_names(config, people)
    return _applied(config, agents=[agent], names=names, day=day, root=root)


def current_budgets(config: Config, *, names: Iterable[str], day: str) -> list[AppliedBudget]:
    """Return the budgets of a day and its month, except those of trees.

    `names` are those of the people who have used anything.
    """
    own = (_person_named(config, budget.of) for budget in config.budgets)
    known = dict.fromkeys((*filter(None, own), *names))
    return _applied(config, agents=config.agents, names=[*known], day=day, root=None)


def _applied(
    config: Config, *, agents: Collection[str], names: Sequence[str], day: str, root: str | None
) -> list[AppliedBudget]:
    own = {(_person_named(config, each.of), each.per) for each in config.budgets}
    found = []
    for budget in config.budgets:
        kind, _, of = budget.of.partition(":")
        scopes: Iterable[str]
        if budget.of == "person:*":
            scopes = [f"person {name}" for name in names if (name, budget.per) not in own]
        elif name := _person_named(config, budget.of):
            scopes = [f"person {name}"] if name in names else []
        elif kind == "agent":
            scopes = [f"agent {of}"] if of in agents else []
        elif kind == "tree":
            scopes = [f"tree {root}"] if root else []
        else:
            scopes = ["all"]
        period = {"day": day, "month": day[: len("2026-11")], None: ""}[budget.per]
        found += [AppliedBudget(budget, scope, period) for scope in scopes]
    return found


def person_names(config: Config, people: Iterable[str]) -> list[str]:
    """Return the names of people, who are given as CHANNEL:ID: each person once, in their order."""
    named = (config.person_of(*each.split(":", 1)) for each in people)
    return list(dict.fromkeys(named))


def lacks_price(config: Config, agent: str, model: str) -> bool:
    """Whether a budget in dollars limits an agent and could not count a model."""
    _, settings = config.agent(agent)
    in_dollars = (budget.of for budget in config.budgets if budget.usd is not None)
    is_limited = any(of == f"agent:{agent}" or not of.startswith("agent:") for of in in_dollars)
    return is_limited and settings.runtime not in TELL_COST and model not in config.prices


def check_budgets(config: Config) -> None:
    """Raise `ConfigError` for the first mistake in people, budgets or prices."""
    _check_people(config)
    seen: dict[tuple[str, str | None], int] = {}
    for number, budget in enumerate(config.budgets, start=1):
        where = f"budgets number {number}"
        kind, _, name = budget.of.partition(":")
        if kind == "agent" and name not in config.agents:
            there = f"there are {', '.join(map(repr, config.agents))}."
            hint = did_you_mean(name, config.agents, otherwise=there)
            raise ConfigError(f"{where} is of the agent {name!r}, which doesn't exist; {hint}")
        if kind == "person" and name != "*":
            _check_person_of_budget(config, where, name)
        scope = _person_named(config, budget.of) or budget.of, budget.per
        if other := seen.get(scope):
            time = f" for the same {budget.per}" if budget.per else ""
            raise ConfigError(
                f"{where} is of {quoted(budget.of)}{time}, as number {other} is: keep one of them."
            )
        seen[scope] = number
        if budget.usd is not None:
            for agent, settings in config.agents.items():
                if kind != "agent" or name == agent:
                    _check_prices(config, where, agent, settings)


def _check_people(config: Config) -> None:
    owner: dict[str, str] = {}
    for name, settings in config.people.items():
        for id_ in settings.ids:
            _check_id(config, f"people.{name}.ids has {quoted(id_)}", id_)
            if id_.startswith("cli:"):
                raise ConfigError(
                    f"people.{name}.ids has {quoted(id_)}: who writes with `send` is "
                    f"{quoted('web' + id_[3:])}, so write that."
                )
            if owner.setdefault(id_, name) != name:
                raise ConfigError(
                    f"people.{owner[id_]} and people.{name} both have {quoted(id_)}: an id belongs "
                    "to one person."
                )


def _check_id(config: Config, what: str, person: str) -> None:
    """Raise `ConfigError` for a person, as CHANNEL:ID, whom no channel can have."""
    channel, _, id_ = person.partition(":")
    if channel not in config.channels and not (
        channel in CHANNELS and profile_of(channel).is_local
    ):
        there = ", ".join(map(repr, dict.fromkeys((*config.channels, "web"))))
        raise ConfigError(f"{what}, but there is no channel {channel!r}: there are {there}.")
    if problem := id_problem(channel, id_, "person"):
        raise ConfigError(f"{what}, {problem}.")


def _check_person_of_budget(config: Config, where: str, name: str) -> None:
    if ":" in name:
        _check_id(config, f"{where} is of the person {quoted(name)}", name)
    elif name not in config.people:
        there = "name one with [people.NAME], or write person:CHANNEL:ID"
        hint = did_you_mean(name, config.people, otherwise=f"{there}.")
        raise ConfigError(f"{where} is of the person {name!r}, who doesn't exist; {hint}")


def _check_prices(config: Config, where: str, agent: str, settings: AgentConfig) -> None:
    """Raise `ConfigError` if the dollars of an agent can't be counted."""
    if settings.runtime in TELL_COST:
        return
    if settings.runtime is None:
        raise ConfigError(
            f"{where} has usd, but agents.{agent} has no runtime, and not every CLI reports its "
            'cost: set it, for example to "claude", or limit tokens.'
        )
    about = f"{where} has usd, but {settings.runtime} of agents.{agent} reports no cost"
    if settings.model is None:
        raise ConfigError(f"{about}: set its model and [prices.MODEL], or limit tokens.")
    for model in _models(settings):
        if model not in config.prices:
            raise ConfigError(f"{about}: set [prices.{quoted(model)}], or limit tokens.")


def _models(settings: AgentConfig) -> Iterator[str]:
    """Yield the models that an agent may use without a person's choice."""
    own = (each for each in settings.fallbacks if not each.startswith(ANOTHER_AGENT))
    yield from filter(None, (settings.model, settings.task_model, *own))


def _person_named(config: Config, of: str) -> str | None:
    """Return the name of the person of a budget; None if it isn't of one person."""
    kind, _, name = of.partition(":")
    if kind != "person" or name == "*":
        return None
    return config.person_of(*name.split(":", 1)) if ":" in name else name
