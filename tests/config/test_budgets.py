"""Budgets, people and prices: which budgets limit a turn, and a sentence for each mistake."""

import pytest
from click.testing import CliRunner

from remoteclaw.cli import main
from remoteclaw.config.budgets import TELL_COST, budgets_of
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config, Price
from remoteclaw.config.model.agents import OWN_RUNTIMES
from remoteclaw.errors import ConfigError
from remoteclaw.events import AgentUsage
from remoteclaw.runtimes import create_cli_runtime
from tests.support.rows import for_each

CHANNELS = """
[channels.telegram]
token = "1:x"
"""
PEOPLE = f"""
{CHANNELS}
[people.ada]
ids = ["telegram:1", "web:admin.ada"]
language = "pt-BR"
"""


def load(home: Home, text: str) -> Config:
    home.config_file.write_text(text)
    return load_config(home.config_file, {})


def budget(of: str, limit: str = "tokens = 5", per: str = "day") -> str:
    return f"[[budgets]]\nof = '{of}'\n{limit}\n" + (f"per = '{per}'\n" if per else "")


def applied(config: Config, *people: str, agent: str = "main") -> list[tuple[int, str, str]]:
    found = budgets_of(config, agent=agent, people=people, root="5ab", day="2026-11-26")
    return [(config.budgets.index(each.budget), each.scope, each.period) for each in found]


def test_the_budgets_of_everything_of_the_agent_and_of_the_tree_limit_each_turn(home: Home) -> None:
    budgets = [budget("all"), budget("agent:main", per="month"), budget("tree", per="")]
    config = load(home, "[agents.main]\n[agents.other]\n" + "".join(budgets))

    assert applied(config, "telegram:1") == [
        (0, "all", "2026-11-26"),
        (1, "agent main", "2026-11"),
        (2, "tree 5ab", ""),
    ]
    assert applied(config, agent="other") == [(0, "all", "2026-11-26"), (2, "tree 5ab", "")]


def test_a_person_is_one_under_each_id_and_nobody_is_none(home: Home) -> None:
    config = load(home, PEOPLE + budget("person:*") + budget("person:telegram:9", per="month"))

    assert config.person_of("telegram", "1") == config.person_of("cli", "admin.ada") == "ada"
    assert config.person_of("cli", "admin.bob") == config.person_of("web", "admin.bob")
    assert applied(config) == []
    assert applied(config, "web:admin.ada", "telegram:1") == [(0, "person ada", "2026-11-26")]
    assert applied(config, "telegram:9", "telegram:1") == [
        (0, "person telegram:9", "2026-11-26"),
        (0, "person ada", "2026-11-26"),
        (1, "person telegram:9", "2026-11"),
    ]


def test_a_persons_own_budget_takes_the_place_of_everybodys_for_the_same_time(home: Home) -> None:
    own = budget("person:ada", "tokens = 50")
    config = load(home, PEOPLE + budget("person:*") + own + budget("person:*", per="month"))

    assert applied(config, "telegram:1", "telegram:2") == [
        (0, "person telegram:2", "2026-11-26"),
        (1, "person ada", "2026-11-26"),
        (2, "person ada", "2026-11"),
        (2, "person telegram:2", "2026-11"),
    ]


@for_each(
    ("text", "why"),
    [
        (
            "[people.ada]\nids = []",
            "[people.ada] ids is not valid: is empty: name at least one id, such as telegram:1234.",
        ),
        ("[people.ada]\nlanguage = 'de'", "[people.ada] ids is missing."),
        ("people = 1", "people is not valid: must be a table, not a value."),
        ("[people.ada]\nids = ['1']", "has '1': write CHANNEL:ID, such as telegram:1234"),
        ("[people.ada]\nids = [':1']", "write CHANNEL:ID"),
        ("[people.ada]\nids = ['web:']", "write CHANNEL:ID"),
        ("[people.ada]\nids = ['web:*']", "write CHANNEL:ID"),
        ("[people.ada]\nids = ['Web:x']", "a channel's name has small letters"),
        ("[people.ada]\nids = ['telegram:@ada']", "has '@ada', which is no id"),
        ("[people.ada]\nids = ['web:admin.a\\u200b']".replace("'", '"'), "which is no id"),
        (
            "[people.ada]\nids = ['telegram:1']",
            "people.ada.ids has \"telegram:1\", but there is no channel 'telegram': there are",
        ),
        (
            f"{CHANNELS}[people.ada]\nids = ['telegram:ada']",
            'people.ada.ids has "telegram:ada", which is no person there: ids have the form -?',
        ),
        (
            "[people.ada]\nids = ['web:ada']",
            "which is no person there: write web:admin.ada or web:user.ada.",
        ),
        (
            "[people.ada]\nids = ['cli:admin.ada']",
            'who writes with `send` is "web:admin.ada", so write that.',
        ),
        (
            f"{PEOPLE}[people.bob]\nids = ['telegram:1']",
            'people.ada and people.bob both have "telegram:1": an id belongs to one person.',
        ),
        ("[people.'a:b']\nids = ['web:user.a']", "has the name 'a:b': use letters, digits"),
        (
            "[people.ada]\nids = ['web:user.a']\nlanguage = 'German, formal'",
            "must be a language tag such as de or pt-BR",
        ),
        ("[people.ada]\nids = ['web:user.a']\nlang = 'de'", "did you mean 'language'?"),
    ],
)
def test_a_mistake_in_people_is_a_sentence(home: Home, text: str, why: str) -> None:
    assert why in refusal(home, text)


CODEX = "[agents.main]\nruntime = 'codex'\nmodel = 'gpt-5'\n"


@for_each(
    ("text", "why"),
    [
        ("[budgets]\nof = 'all'", "write each budget as [[budgets]], in double brackets"),
        (budget("all") + budget("everyone"), "[budgets number 2] of is not valid: must be all,"),
        (budget("agent:"), "must be all, agent:NAME"),
        (budget("person:telegram:"), "write CHANNEL:ID"),
        (budget("all", ""), "budgets number 1 is not valid: for 'all' has no limit: set usd, "),
        (budget("all", per=""), 'for \'all\' has no per: set per = "day" or per = "month"'),
        (budget("tree"), "for 'tree' has per, but counts from a conversation's begin"),
        (budget("all", per="week"), "[budgets number 1] per is not valid"),
        (budget("all", "tokens = 0"), "[budgets number 1] tokens is not valid"),
        (budget("all", "usd = -1"), "[budgets number 1] usd is not valid"),
        (budget("all", "usd = nan"), "[budgets number 1] usd is not valid"),
        (budget("all", "usdd = 1"), "[budgets number 1] has no key 'usdd'; did you mean 'usd'?"),
        (budget("all", "at_limit = 'shout'"), "at_limit is not valid"),
        (
            budget("agent:man"),
            "budgets number 1 is of the agent 'man', which doesn't exist; did you mean 'main'?",
        ),
        (budget("agent:xyz"), "which doesn't exist; there are 'main'."),
        (PEOPLE + budget("person:adda"), "who doesn't exist; did you mean 'ada'?"),
        (budget("person:bob"), "name one with [people.NAME], or write person:CHANNEL:ID."),
        (budget("person:slack:U1"), "but there is no channel 'slack': there are 'web'."),
        (CHANNELS + budget("person:telegram:ada"), "which is no person there"),
        (
            budget("all") + budget("all", "minutes = 3"),
            'budgets number 2 is of "all" for the same day, as number 1 is: keep one of them.',
        ),
        (budget("tree", per="") + budget("tree", "usd = 1", per=""), "as number 1 is"),
        (PEOPLE + budget("person:ada") + budget("person:telegram:1"), "as number 1 is"),
        (
            budget("all", "usd = 1"),
            "budgets number 1 has usd, but agents.main has no runtime, and not every CLI reports "
            'its cost: set it, for example to "claude", or limit tokens.',
        ),
        (
            "[agents.main]\nruntime = 'gemini'\n" + budget("tree", "usd = 1", per=""),
            "gemini of agents.main reports no cost: set its model and [prices.MODEL], or limit",
        ),
        (
            CODEX + budget("agent:main", "usd = 1"),
            'codex of agents.main reports no cost: set [prices."gpt-5"], or limit tokens.',
        ),
        (
            CODEX
            + "task_model = 'small'\n[prices.gpt-5]\ninput = 1\noutput = 1\n"
            + budget("all", "usd = 1"),
            'codex of agents.main reports no cost: set [prices."small"], or limit tokens.',
        ),
        (
            CODEX
            + "fallbacks = ['mini']\n[prices.gpt-5]\ninput = 1\noutput = 1\n"
            + budget("all", "usd = 1"),
            'codex of agents.main reports no cost: set [prices."mini"], or limit tokens.',
        ),
        ("[prices.x]\ninput = 1", "[prices.x] output is missing."),
        ("[prices.x]\ninput = true\noutput = 1", "input is not valid: must be a number, not true."),
        (
            "[prices.gpt-5.1]\ninput = 1\noutput = 1",
            '[prices.gpt-5.1] needs quotes, because its name has a dot: write [prices."gpt-5.1"].',
        ),
        (
            "[prices.gpt-5]\ninput = 1\noutput = 1\n[prices.gpt-5.1.2]\ninput = 1\noutput = 1",
            'write [prices."gpt-5.1.2"].',
        ),
        ("[prices.x]\ninput = -1\noutput = 1", "[prices.x] input is not valid"),
        ("[fleet]\ntimezone = 'Berlin'", "must be a time zone such as Europe/Berlin"),
    ],
)
def test_a_mistake_in_budgets_or_prices_is_a_sentence(home: Home, text: str, why: str) -> None:
    assert why in refusal(home, text)


def test_dollars_are_accepted_where_they_can_be_counted(home: Home) -> None:
    price = "[prices.'gpt-5']\ninput = 1.25\ncached = 0.125\noutput = 10\n"
    claude = "[agents.main]\nruntime = 'claude'\n[agents.second]\nruntime = 'codex'\n"

    assert load(home, CODEX + price + budget("all", "usd = 1")).prices["gpt-5"].cached == 0.125
    assert load(home, claude + budget("agent:main", "usd = 1")).budgets[0].usd == 1


def test_the_runtimes_that_report_their_cost_are_known() -> None:
    reporting = [
        name for name in OWN_RUNTIMES if create_cli_runtime(name).capabilities.reports_cost
    ]

    assert sorted([*reporting, "demo"]) == sorted(TELL_COST)


def test_a_price_counts_what_is_read_written_and_read_from_a_cache() -> None:
    usage = AgentUsage(
        input_tokens=1000, output_tokens=200, cache_read_tokens=4000, cache_write_tokens=500
    )

    assert Price(input=2, cached=0.5, output=10).cost_usd(usage) == pytest.approx(0.007)
    assert Price(input=2, output=10).cost_usd(usage) == pytest.approx(0.013)


def test_a_mistake_is_reported_by_the_command_line(home: Home) -> None:
    home.config_file.write_text(budget("agent:man"))
    environment = {"REMOTECLAW_HOME": str(home.path)}

    for command in (["config", "validate"], ["up", "--no-chat"]):
        run = CliRunner().invoke(main, command, env=environment)

        assert run.exit_code != 0
        assert "budgets number 1 is of the agent 'man', which doesn't exist" in str(run.output)
        assert "Traceback" not in run.output


def refusal(home: Home, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(home, text)
    assert "\n" not in str(error.value)
    return str(error.value)
