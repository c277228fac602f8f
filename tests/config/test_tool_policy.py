"""Which tools an agent may use: every step narrows, and what isn't understood allows nothing."""

import json
import re
import tomllib
from dataclasses import replace
from typing import Any, get_args

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.cli import main
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.model import Config, Profile
from remoteclaw.config.tool_lists import check_tools
from remoteclaw.config.tool_policy import Subject, allowed, is_owner, listed, rule
from remoteclaw.errors import ConfigError
from remoteclaw.messages import SessionKey
from remoteclaw.profiles import CHANNELS, Channel, profile_of
from remoteclaw.protocols import ChannelProfile
from remoteclaw.tools import catalog
from tests.support.agents import ROOT
from tests.support.promised import PROMISED
from tests.support.rows import for_each

TOOLS = tuple(catalog.TOOLS.values())
ALL = frozenset(catalog.TOOLS)
CRON = {name for name in ALL if name.startswith("cron_")}
GATEWAY = {name for name in ALL if name.startswith("gateway_")}
MODERATES = {"message_delete", "message_pin"}
MESSAGING = {name for name in ALL if name.startswith("message_")}
SESSIONS = {name for name in ALL if name.startswith("session")} | {"subagents"}

#: An owner in a group chat, where every step has something to say.
OWNER = Subject(agent="main", channel="telegram", chat_id="-100", is_group=True, senders=("4711",))
STRANGER = replace(OWNER, senders=("666",))


def configured(text: str) -> Config:
    config = Config.model_validate(tomllib.loads(f"channels.telegram.owners = ['4711']\n{text}"))
    check_tools(config)
    return config


def why(config: Config, subject: Subject, tool: str) -> str:
    """Return a ruling as `+ rule` or `- rule`."""
    ruling = next(one for one in rule(config, subject, TOOLS) if one.tool == tool)
    return f"{'+' if ruling.allowed else '-'} {ruling.rule}"


# -- the tools ------------------------------------------------------------------------------------


def test_the_tools_are_those_that_are_promised_in_their_groups() -> None:
    def group(name: str) -> set[str]:
        return {tool.tool for tool in TOOLS if f"group:{name}" in tool.group_names}

    assert {row.tool for row in PROMISED.values() if row.tool} == ALL
    assert group("remoteclaw") == ALL
    assert group("cron") == CRON
    assert group("gateway") == GATEWAY
    assert group("automation") == CRON | GATEWAY
    assert group("messaging") == MESSAGING
    assert group("agents") == {"agents_list"}
    assert group("sessions") == SESSIONS
    assert {tool.tool for tool in TOOLS if tool.owner_only} == CRON | GATEWAY


# -- profiles and steps ---------------------------------------------------------------------------

PROFILES: dict[Profile, set[str]] = {
    "full": set(ALL),
    "messaging": {
        *MESSAGING,
        "sessions_list",
        "sessions_history",
        "sessions_send",
        "session_status",
    },
    "limited": {
        "session_status",
        "agents_list",
        "sessions_list",
        "sessions_history",
        "message_reply",
        "message_thread_reply",
        "message_react",
        "message_read",
    },
    "minimal": {"session_status"},
}

#: Every place of a `tools` table that concerns `OWNER`, as its key, in the order of the steps.
PLACES = (
    "tools",
    "agents.main.tools",
    "channels.telegram.tools",
    'channels.telegram.groups."-100".senders."4711".tools',
    'channels.telegram.groups."-100".tools',
    'channels.telegram.senders."4711".tools',
)


def at(place: str, **table: Any) -> str:
    return "".join(f"{place}.{key} = {json.dumps(value)}\n" for key, value in table.items())


def test_every_profile_is_tried() -> None:
    assert set(PROFILES) == set(get_args(Profile))


@for_each("place", PLACES)
@for_each("profile", PROFILES)
def test_a_profile_wherever_it_stands(profile: Profile, place: str) -> None:
    config = configured(at(place, profile=profile))

    assert allowed(config, OWNER, TOOLS) == PROFILES[profile]
    if profile != "full":
        assert why(config, OWNER, "cron_add") == f'- {place}.profile = "{profile}"'


@pytest.mark.parametrize("place", PLACES)
def test_a_denial_wherever_it_stands(place: str) -> None:
    config = configured(at(place, deny=["Session_Status"]))

    assert allowed(config, OWNER, TOOLS) == ALL - {"session_status"}
    assert why(config, OWNER, "session_status") == f'- {place}.deny has "Session_Status"'


@for_each("place", PLACES)
@for_each("profile", PROFILES)
def test_an_allow_list_wherever_it_stands(profile: Profile, place: str) -> None:
    listed = at(place, allow=["group:MESSAGING", "session*", "cron_add"])
    config = configured(at("tools", profile=profile) + listed)
    named = MESSAGING | {"cron_add"} | {name for name in ALL if name.startswith("session")}

    assert allowed(config, OWNER, TOOLS) == PROFILES[profile] & named
    assert why(config, OWNER, "session_status") == f'+ {place}.allow has "session*"'
    if profile == "full":
        assert why(config, OWNER, "subagents") == f"- {place}.allow doesn't have it"


@for_each("place", PLACES)
@for_each("profile", PROFILES)
def test_a_denial_wins_over_its_own_table(profile: Profile, place: str) -> None:
    table = at(place, profile=profile, allow=["*"], also_allow=["*"], deny=["group:remoteclaw"])

    assert allowed(configured(table), OWNER, TOOLS) == set()


@for_each("place", PLACES)
@for_each("profile", PROFILES)
def test_also_allow_adds_to_the_profile_of_its_own_table(profile: Profile, place: str) -> None:
    config = configured(at(place, profile=profile, also_allow=["cron_*"]))

    assert allowed(config, OWNER, TOOLS) == PROFILES[profile] | CRON
    assert allowed(config, STRANGER, TOOLS).isdisjoint(CRON)


@for_each("place", PLACES[1:])
@for_each("profile", PROFILES)
def test_also_allow_adds_nothing_beyond_an_earlier_step(profile: Profile, place: str) -> None:
    outer = at("tools", profile=profile, deny=["message_send"])
    config = configured(outer + at(place, profile="minimal", also_allow=["*"]))

    assert allowed(config, OWNER, TOOLS) == PROFILES[profile] - {"message_send"}


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_for_owners_alone(profile: Profile) -> None:
    config = configured(at("tools", profile=profile, also_allow=["cron_add"]))

    assert allowed(config, STRANGER, TOOLS) == PROFILES[profile] - CRON - GATEWAY - MODERATES
    assert why(config, STRANGER, "cron_add") == "- owner only"
    assert why(config, OWNER, "cron_add") == '+ channels.telegram.owners has "4711"'


NO_SUBAGENT = CRON | GATEWAY | {"agents_list", "session_status", "sessions_send"}
NO_LEAF = NO_SUBAGENT | {"sessions_list", "sessions_history", "sessions_spawn", "subagents"}


@for_each(
    ("depth", "max_depth", "denied"),
    [(0, 1, set()), (1, 1, NO_LEAF), (1, 2, NO_SUBAGENT), (2, 2, NO_LEAF), (9, 2, NO_LEAF)],
)
@for_each("profile", PROFILES)
def test_what_subagents_may_not(
    profile: Profile, depth: int, max_depth: int, denied: set[str]
) -> None:
    config = configured(at("tools", profile=profile) + at("sessions", max_depth=max_depth))
    subject = replace(OWNER, depth=depth)

    assert allowed(config, subject, TOOLS) == PROFILES[profile] - denied


def test_an_agents_own_table_gives_back_what_subagents_are_denied() -> None:
    text = at("agents.main.tools", also_allow=["sessions_*", "cron_add"])
    config = configured(text + at("channels.telegram.tools", deny=["sessions_send"]))
    back = {"sessions_list", "sessions_history", "sessions_spawn"}
    owner, stranger = replace(OWNER, depth=1), replace(STRANGER, depth=1)

    assert allowed(config, owner, TOOLS) == (ALL - NO_LEAF) | back | {"cron_add"}
    assert allowed(config, stranger, TOOLS) == ((ALL - NO_LEAF) | back) - MODERATES
    assert why(config, owner, "sessions_list") == '+ agents.main.tools.also_allow has "sessions_*"'
    assert (
        why(config, owner, "sessions_send") == '- channels.telegram.tools.deny has "sessions_send"'
    )
    assert why(config, owner, "subagents") == "- not for subagents that can have none"
    assert why(config, owner, "session_status") == "- not for subagents"


@pytest.mark.parametrize("place", [place for place in PLACES if place != "agents.main.tools"])
def test_no_other_table_gives_it_back(place: str) -> None:
    config = configured(at(place, also_allow=["*"], allow=["*"]))

    assert allowed(config, replace(OWNER, depth=1), TOOLS) == ALL - NO_LEAF


def test_the_first_step_that_denies_is_named() -> None:
    denials = [at(place, deny=["message_send"]) for place in PLACES]

    for number, place in enumerate(PLACES):
        config = configured("".join(denials[number:]))
        assert why(config, OWNER, "message_send") == f'- {place}.deny has "message_send"'


def test_without_any_setting_the_profile_is_named() -> None:
    assert why(configured(""), STRANGER, "message_send") == '+ tools.profile = "full"'


def test_an_allow_list_of_what_no_tool_is_allows_nothing() -> None:
    """Where it couldn't be checked: the tools are the caller's."""
    config = Config.model_validate({"tools": {"allow": ["group:fs", "web_search"]}})

    assert allowed(config, OWNER, TOOLS) == set()


def test_an_agent_that_is_not_there_may_nothing() -> None:
    with pytest.raises(ConfigError, match="There is no agent 'other'"):
        rule(configured(""), replace(OWNER, agent="other"), TOOLS)


# -- groups and senders ---------------------------------------------------------------------------


@pytest.mark.parametrize("chat", ["-100", "*"])
@pytest.mark.parametrize("sender", ["4711", "*"])
def test_a_groups_tables_are_for_group_chats(chat: str, sender: str) -> None:
    group = f'channels.telegram.groups."{chat}"'
    config = configured(
        at(f'{group}.senders."{sender}".tools', deny=["message_pin"])
        + at(f"{group}.tools", deny=["message_send"])
    )

    assert allowed(config, OWNER, TOOLS) == ALL - {"message_pin", "message_send"}
    assert allowed(config, replace(OWNER, is_group=False), TOOLS) == ALL


@pytest.mark.parametrize("subject", [OWNER, replace(OWNER, is_group=False, chat_id="4711")])
def test_a_senders_table_holds_in_direct_chats_and_groups(subject: Subject) -> None:
    config = configured(at('channels.telegram.senders."4711".tools', deny=["message_pin"]))

    assert allowed(config, subject, TOOLS) == ALL - {"message_pin"}


def test_everybodys_table_is_for_who_has_none() -> None:
    config = configured(
        at('channels.telegram.senders."*".tools', profile="minimal")
        + at('channels.telegram.senders."4711".tools', deny=["message_pin"])
    )

    assert allowed(config, OWNER, TOOLS) == ALL - {"message_pin"}
    assert allowed(config, STRANGER, TOOLS) == {"session_status"}
    assert why(config, STRANGER, "message_pin") == (
        '- channels.telegram.senders."*".tools.profile = "minimal"'
    )


def test_a_group_with_a_table_has_nothing_of_the_others_table() -> None:
    config = configured(
        at('channels.telegram.groups."*".tools', profile="minimal")
        + at('channels.telegram.groups."*".senders."4711".tools', deny=["*"])
        + at('channels.telegram.groups."-100".tools', deny=["message_pin"])
    )

    assert allowed(config, OWNER, TOOLS) == ALL - {"message_pin"}
    assert allowed(config, replace(OWNER, chat_id="-200"), TOOLS) == set()


def test_another_channels_tables_do_not_count() -> None:
    config = configured(at("channels.slack.tools", deny=["*"]))

    assert allowed(config, OWNER, TOOLS) == ALL


# -- owners ---------------------------------------------------------------------------------------


def test_who_writes_on_the_console_is_its_owner() -> None:
    subject = Subject("main", "console", "console", is_group=False, senders=("ada",))

    assert allowed(Config(), subject, TOOLS) == ALL
    assert why(Config(), subject, "cron_add") == "+ the console is its owner's"
    assert not allowed(Config(), replace(subject, channel="cli"), TOOLS) & (CRON | GATEWAY)


@pytest.mark.parametrize(("owners", "is_theirs"), [(["ada"], True), (["bob"], False), ([], False)])
def test_the_consoles_owners_can_be_named(owners: list[str], is_theirs: bool) -> None:
    config = configured(at("channels.console", owners=owners))
    subject = Subject("main", "console", "console", is_group=False, senders=("ada",))

    assert is_owner(config, subject) is is_theirs
    assert allowed(config, subject, TOOLS) == (ALL if is_theirs else ALL - CRON - GATEWAY)


@pytest.mark.parametrize("channel", ["telegram", "console"])
def test_a_turn_of_nobody_is_no_owners(channel: str) -> None:
    config = configured(at(f'channels.{channel}.senders."*".tools', deny=["message_send"]))
    subject = replace(OWNER, channel=channel, senders=())

    assert not is_owner(config, subject)
    assert allowed(config, subject, TOOLS) == ALL - CRON - GATEWAY - MODERATES - {"message_send"}


#: What a sender might be called to be taken for U012é, or for everybody.
DISGUISES = [
    "u012é",
    "U012e\u0301",
    "U012é ",
    " U012é",
    "Ｕ012é",
    "U012é\u200b",
    "0U012é",
    "*",
    "U*",
]


@for_each("disguise", DISGUISES)
def test_ids_are_compared_as_they_are(disguise: str) -> None:
    config = configured(
        at("channels.slack", owners=["U012é"])
        + at('channels.slack.senders."U012é".tools', deny=["message_send"])
        + at('channels.slack.groups."U012é".tools', deny=["message_pin"])
    )
    real = Subject("main", "slack", "U012é", is_group=True, senders=("U012é",))

    assert allowed(config, real, TOOLS) == ALL - {"message_send", "message_pin"}
    assert not is_owner(config, replace(real, senders=(disguise,)))
    assert "message_send" in allowed(config, replace(real, senders=(disguise,)), TOOLS)
    assert "message_pin" in allowed(config, replace(real, chat_id=disguise), TOOLS)


# -- what holds for every configuration -----------------------------------------------------------

entries = st.lists(
    st.sampled_from(
        [*sorted(ALL), "group:cron", "group:sessions", "*", "message_*", "*_list", "x"]
    ),
    max_size=4,
)
tables = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(get_args(Profile)),
        "allow": entries,
        "deny": entries,
        "also_allow": entries,
    },
)
#: Ids of senders, some of which have a table of their own and some are owners.
IDS = ("4711", "4712", "666")
ids = st.sampled_from(IDS)
places = st.dictionaries(
    st.sampled_from(
        [
            ("tools",),
            ("agents", "main", "tools"),
            ("channels", "telegram", "tools"),
            *(
                ("channels", "telegram", *where, "tools")
                for who in ("4711", "4712", "*")
                for where in (
                    ("senders", who),
                    ("groups", "-100", "senders", who),
                    ("groups", "*", "senders", who),
                )
            ),
            ("channels", "telegram", "groups", "-100", "tools"),
            ("channels", "telegram", "groups", "*", "tools"),
        ]
    ),
    tables,
    min_size=1,
)
owners = st.lists(ids, max_size=2)
subjects = st.builds(
    Subject,
    agent=st.just("main"),
    channel=st.just("telegram"),
    chat_id=st.sampled_from(["-100", "-200"]),
    is_group=st.booleans(),
    senders=st.lists(ids, max_size=4).map(tuple),
    depth=st.integers(0, 2),
)


def config_of(tables: dict[tuple[str, ...], dict[str, Any]], owners: list[str]) -> Config:
    tree: dict[str, Any] = {"agents": {"main": {}}, "channels": {"telegram": {"owners": owners}}}
    for path, table in tables.items():
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch |= table
    return Config.model_validate(tree)


@given(places, owners, subjects, entries, st.data())
def test_a_further_denial_never_adds_a_tool(
    tables: dict[tuple[str, ...], dict[str, Any]],
    owners: list[str],
    subject: Subject,
    denied: list[str],
    data: st.DataObject,
) -> None:
    place = data.draw(st.sampled_from(sorted(tables)))
    more = {**tables[place], "deny": [*tables[place].get("deny", []), *denied]}

    before = allowed(config_of(tables, owners), subject, TOOLS)
    after = allowed(config_of(tables | {place: more}, owners), subject, TOOLS)

    assert after <= before


@given(places, owners, subjects, st.data())
def test_a_further_step_never_adds_a_tool(
    tables: dict[tuple[str, ...], dict[str, Any]],
    owners: list[str],
    subject: Subject,
    data: st.DataObject,
) -> None:
    """Apart from those that are made to: `also_allow` for subagents, and for moderating a group."""
    place = data.draw(st.sampled_from(sorted(tables)))
    if place[0] == "agents":
        subject = replace(subject, depth=0)

    without = allowed(config_of(tables | {place: {}}, owners), subject, TOOLS)

    assert allowed(config_of(tables, owners), subject, TOOLS) - {*MODERATES} <= without


@given(places, owners, subjects)
def test_subagents_may_no_more(
    tables: dict[tuple[str, ...], dict[str, Any]], owners: list[str], subject: Subject
) -> None:
    config = config_of(tables, owners)
    deeper = allowed(config, replace(subject, depth=subject.depth + 1), TOOLS)

    assert deeper <= allowed(config, subject, TOOLS)


@given(places, owners, subjects)
def test_a_batch_has_what_each_of_its_senders_has(
    tables: dict[tuple[str, ...], dict[str, Any]], owners: list[str], subject: Subject
) -> None:
    config = config_of(tables, owners)
    alone = [replace(subject, senders=(sender,)) for sender in subject.senders or ("unknown",)]

    assert allowed(config, subject, TOOLS) == frozenset.intersection(
        *(allowed(config, one, TOOLS) for one in alone)
    )
    assert is_owner(config, subject) == all(is_owner(config, one) for one in alone)


@given(places, owners, subjects, st.text())
def test_an_unknown_sender_is_never_an_owner(
    tables: dict[tuple[str, ...], dict[str, Any]], owners: list[str], subject: Subject, sender: str
) -> None:
    config = config_of(tables, [one for one in owners if one != sender])
    joined = replace(subject, senders=(*subject.senders, sender))

    assert not is_owner(config, joined)
    assert not allowed(config, joined, TOOLS) & (CRON | GATEWAY)


# -- mistakes in the configuration ----------------------------------------------------------------


@for_each("place", PLACES)
@for_each("name", ["allow", "deny", "also_allow"])
def test_an_entry_that_no_tool_is_names_the_nearest(place: str, name: str) -> None:
    with pytest.raises(ConfigError) as error:
        configured(at(place, **{name: ["message_send", "corn_add"]}))

    key = place.replace("'", '"')
    assert str(error.value) == (
        f"{key}.{name} has 'corn_add', which no tool is; did you mean 'cron_add'?"
    )


def test_where_none_is_near_the_groups_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no tool is; the groups are group:agents, group:auto"):
        configured(at("tools", deny=["xyz*"]))


@for_each(
    ("text", "problem"),
    [
        ("[tools]\nprofil = 'full'", "[tools] has no key 'profil'; did you mean 'profile'?"),
        ("[channels.a.senders.4711.tool]", "did you mean 'tools'?"),
        ("[tools]\nprofile = 'coding'", "profile is not valid: Input should be 'full', 'limited'"),
        ("[tools]\ndeny = ['cron_?']", "[tools] deny is not valid: has 'cron_?': write a tool"),
        ("[tools]\nallow = ['']", "allow is not valid: has ''"),
        (
            "[channels.a]\nowners = ['1', '*']",
            "owners is not valid: has '*', and then",
        ),
        ("[channels.a]\nowners = ['@ada']", "has '@ada', which is no id: write the one"),
        ("[channels.a]\nowners = ['']", "has '', which is no id"),
        ('[channels.a]\nowners = ["4711\\u200b"]', r"has '4711\u200b', which is no id"),
        ("[channels.a.senders.'@ada']", "senders is not valid: has '@ada', which is no id"),
        ("[channels.a.groups.'our group']", "groups is not valid: has 'our group', which is no id"),
        ("[channels.a.groups.1.senders.'@ada']", "senders is not valid: has '@ada'"),
    ],
)
def test_a_mistake_is_one_line(home: Home, text: str, problem: str) -> None:
    home.config_file.write_text(text)

    with pytest.raises(ConfigError) as error:
        load_config(home.config_file, {})

    assert problem in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "table", ["[channels.n]\nowners = ['ada']", "[channels.n.groups.-1.senders.ada]"]
)
def test_a_channel_that_has_a_form_for_ids_refuses_names(
    home: Home, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setitem(CHANNELS, "n", Channel(profile=ChannelProfile(id_form="-?[0-9]+")))
    home.config_file.write_text("[channels.n.senders.'*']\n[channels.n.groups.-1]")
    load_config(home.config_file, {})
    home.config_file.write_text(table)

    with pytest.raises(ConfigError, match="n has 'ada', which is no id there: ids have the form"):
        load_config(home.config_file, {})


def test_ids_that_look_like_names_and_tables_for_everybody(home: Home) -> None:
    home.config_file.write_text(
        "[channels.matrix]\nowners = ['@ada:example.org']\n"
        "[channels.telegram.senders.'*']\n[channels.telegram.groups.'*'.senders.'*']"
    )

    assert load_config(home.config_file, {}).channels["matrix"].owners == ("@ada:example.org",)


def test_a_variable_names_an_id_as_it_is(home: Home) -> None:
    """In small letters it would be another one's, and the denial nobody's."""
    name = "REMOTECLAW__CHANNELS__SLACK__SENDERS__U012__TOOLS__DENY"

    config = load_config(home.config_file, {name: '["message_send"]'})

    assert list(config.channels["slack"].senders) == ["U012"]


# -- the command ----------------------------------------------------------------------------------


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["policy", "explain", *arguments])


def test_each_tool_is_explained(home: Home) -> None:
    home.config_file.write_text('[channels.telegram.tools]\ndeny = ["message_*"]')

    lines = explain("--channel", "telegram", "--from", "4711").stdout.splitlines()

    assert lines[0].split() == ["TOOL", "ALLOWED", "RULE"]
    assert {line.split()[0] for line in lines[1 : lines.index("")]} == ALL
    assert any(
        line.split(maxsplit=2)
        == ["message_send", "no", 'channels.telegram.tools.deny has "message_*"']
        for line in lines
    )
    assert any(line.split(maxsplit=2) == ["cron_add", "no", "owner only"] for line in lines)
    assert any(line.split()[:2] == ["subagents", "yes"] for line in lines)


def test_an_explanation_for_programs(home: Home) -> None:
    home.config_file.write_text(
        "[channels.telegram]\nowners = ['1', '2']\ntoken = '1:x'\n"
        "[channels.telegram.groups.-100.tools]\ndeny = ['group:cron']\n"
        "[channels.telegram.groups.-100.approvals]\nwho = ['telegram:1']\n"
        "[approvals]\nchat = 'telegram:2'"
    )

    def told(*arguments: str) -> Any:
        arguments = ("--channel", "telegram", *arguments, "--json")
        answer = json.loads(explain(*arguments).stdout)
        return answer, {one["tool"] for one in answer["tools"] if one["allowed"]}

    group = ("--group", "--chat", "-100")
    assert told("--from", "1", "--depth", "1")[1] == ALL - NO_LEAF
    assert told("--from", "1", "--from", "2", *group)[1] == ALL - CRON
    answer, tools = told("--from", "1", "--from", "3", *group)
    assert tools == ALL - CRON - GATEWAY - MODERATES
    assert answer["is_owner"] is False
    assert answer["subject"]["senders"] == ["1", "3"]
    assert answer["approvals"] == {"who": ["telegram:1"], "chat": "telegram:2"}
    shown = explain("--channel", "telegram", "--from", "3").stdout
    assert shown.endswith("\n\nRequests to people: owners answer, asked in telegram:2.\n")
    assert answer["tools"][0].keys() == {"tool", "allowed", "rule", "approval"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--agent", "x"], "There is no agent 'x': the configuration has 'main'."),
        (
            ["--channel", "x"],
            "There is no channel 'x': there are 'console', 'cli', 'telegram', 'web', 'webhook', "
            "'slack'.",
        ),
    ],
)
def test_what_is_not_there_is_one_clear_line(
    home: Home, arguments: list[str], problem: str
) -> None:
    home.config_file.write_text("[channels.slack]")

    result = explain(*arguments)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"remoteclaw: {problem}\n"


def test_a_group_needs_its_id(home: Home) -> None:
    result = explain("--group")

    assert result.exit_code == 2
    assert "--group needs --chat" in result.stderr


# -- what is offered ------------------------------------------------------------------------------

#: What Telegram can do at all.
THERE = ALL - profile_of("telegram").lacks
#: A stranger's session in a group chat, and in a chat of their own.
IN_GROUP = SessionKey("main", "telegram", "default", "-100", "666")
DIRECT = SessionKey("main", "telegram", "default", "666", "666")


def test_what_is_offered_in_a_group_is_what_anybody_may_use_there() -> None:
    """Else each writer had another list, and the agent would be started again for each."""
    config = configured(
        "tools.deny = ['message_pin']\n"
        "channels.telegram.groups.'-100'.senders.'4711'.tools = {}\n"
        "channels.telegram.groups.'-100'.senders.'*'.tools.profile = 'minimal'"
    )

    assert listed(config, IN_GROUP, TOOLS) == THERE - {"message_pin"}
    assert listed(config, replace(IN_GROUP, user="4711"), TOOLS) == THERE - {"message_pin"}
    assert listed(config, replace(IN_GROUP, channel_id="-200"), TOOLS) == THERE - {"message_pin"}


def test_what_is_offered_in_a_direct_chat_is_what_its_person_may_use() -> None:
    config = configured("channels.telegram.senders.'666'.tools.deny = ['message_send']")
    owners = replace(DIRECT, channel_id="4711", user="4711")

    assert listed(config, DIRECT, TOOLS) == THERE - CRON - GATEWAY - {"message_send"}
    assert listed(config, owners, TOOLS) == THERE
    assert not listed(config, DIRECT, TOOLS, depth=1) & {"sessions_send", "session_status"}


# -- the page about it ----------------------------------------------------------------------------


def test_the_pages_tables_and_examples_are_right() -> None:
    text = (ROOT / "docs" / "tool-policy.md").read_text()
    rows = dict(re.findall(r"^\| `([\w:]+)` \| (.*) \|$", text, re.MULTILINE))

    for profile in ("messaging", "limited", "minimal"):
        named = re.findall(r"`([\w:]+)`", rows[profile])
        config = configured(at("tools", allow=named))
        assert allowed(config, OWNER, TOOLS) == PROFILES[profile]
    assert rows.keys() >= {name for tool in TOOLS for name in tool.group_names}
    for example in re.findall(r"```toml\n(.*?)```", text, re.DOTALL):
        check_tools(Config.model_validate(tomllib.loads(example)))
