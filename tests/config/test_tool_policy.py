"""The tools that an agent may use: every step narrows them, and an unknown name allows nothing."""

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
from remoteclaw.config.tool_policy import (
    UNLIMITED,
    SessionLimits,
    Subject,
    allowed_tools,
    approval_rule,
    is_owned_by,
    is_owner,
    listed_tools,
    rule_on_tools,
    subject_of,
)
from remoteclaw.errors import ConfigError
from remoteclaw.messages import Entry, SessionKey
from remoteclaw.profiles import CHANNELS, Channel, profile_of
from remoteclaw.protocols import ChannelProfile
from remoteclaw.tools import catalog
from tests.support.agents import ROOT
from tests.support.promised import PROMISED
from tests.support.rows import for_each
from tests.support.stack import message

TOOLS = tuple(catalog.TOOLS.values())
#: All tools of an agent without a memory.
ALL = frozenset(catalog.TOOLS) - {"memory_write"}
CRON = {name for name in ALL if name.startswith("cron_")}
GATEWAY = {name for name in ALL if name.startswith("gateway_")}
MODERATES = {"message_delete", "message_pin"}
MESSAGING = {name for name in ALL if name.startswith("message_")}
SESSIONS = {name for name in ALL if name.startswith("session")} | {"subagents"}

#: An owner in a group chat, where every step applies.
TASK = SessionLimits(depth=1)
OWNER = Subject(agent="main", channel="telegram", chat_id="-100", is_group=True, senders=("4711",))
STRANGER = replace(OWNER, senders=("666",))


def configured(text: str) -> Config:
    config = Config.model_validate(tomllib.loads(f"channels.telegram.owners = ['4711']\n{text}"))
    check_tools(config)
    return config


def why(config: Config, subject: Subject, tool: str) -> str:
    """Return a ruling as `+ rule` or `- rule`."""
    ruling = next(each for each in rule_on_tools(config, subject, TOOLS) if each.tool == tool)
    return f"{'+' if ruling.allowed else '-'} {ruling.rule}"


# -- the tools ------------------------------------------------------------------------------------


def test_the_catalog_has_the_promised_tools_in_their_groups() -> None:
    def group(name: str) -> set[str]:
        return {tool.tool for tool in TOOLS if f"group:{name}" in tool.group_names}

    assert {row.tool for row in PROMISED.values() if row.tool} == ALL | {"memory_write"}
    assert group("remoteclaw") == ALL | {"memory_write"}
    assert group("memory") == {"memory_write"}
    assert group("cron") == CRON
    assert group("gateway") == GATEWAY
    assert group("automation") == CRON | GATEWAY
    assert group("messaging") == MESSAGING
    assert group("agents") == {"agents_list"}
    assert group("sessions") == SESSIONS
    assert {tool.tool for tool in TOOLS if tool.owner_only} == CRON | GATEWAY | {"memory_write"}


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

#: The key of every `tools` table that applies to `OWNER`, in the order of the steps.
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


def test_the_table_of_profiles_has_every_profile() -> None:
    assert set(PROFILES) == set(get_args(Profile))


@for_each("place", PLACES)
@for_each("profile", PROFILES)
def test_a_profile_limits_the_tools_in_every_table(profile: Profile, place: str) -> None:
    config = configured(at(place, profile=profile))

    assert allowed_tools(config, OWNER, TOOLS) == PROFILES[profile]
    if profile != "full":
        assert why(config, OWNER, "cron_add") == f'- {place}.profile = "{profile}"'


@pytest.mark.parametrize("place", PLACES)
def test_a_denial_works_in_every_table(place: str) -> None:
    config = configured(at(place, deny=["Session_Status"]))

    assert allowed_tools(config, OWNER, TOOLS) == ALL - {"session_status"}
    assert why(config, OWNER, "session_status") == f'- {place}.deny has "Session_Status"'


@for_each("place", PLACES)
@for_each("profile", PROFILES)
def test_an_allow_list_limits_the_tools_in_every_table(profile: Profile, place: str) -> None:
    listed = at(place, allow=["group:MESSAGING", "session*", "cron_add"])
    config = configured(at("tools", profile=profile) + listed)
    named = MESSAGING | {"cron_add"} | {name for name in ALL if name.startswith("session")}

    assert allowed_tools(config, OWNER, TOOLS) == PROFILES[profile] & named
    assert why(config, OWNER, "session_status") == f'+ {place}.allow has "session*"'
    if profile == "full":
        assert why(config, OWNER, "subagents") == f"- {place}.allow doesn't have it"


@for_each("place", PLACES)
@for_each("profile", PROFILES)
def test_a_denial_wins_over_its_own_table(profile: Profile, place: str) -> None:
    table = at(place, profile=profile, allow=["*"], also_allow=["*"], deny=["group:remoteclaw"])

    assert allowed_tools(configured(table), OWNER, TOOLS) == set()


@for_each("place", PLACES)
@for_each("profile", PROFILES)
def test_also_allow_adds_to_the_profile_of_its_own_table(profile: Profile, place: str) -> None:
    config = configured(at(place, profile=profile, also_allow=["cron_*"]))

    assert allowed_tools(config, OWNER, TOOLS) == PROFILES[profile] | CRON
    assert allowed_tools(config, STRANGER, TOOLS).isdisjoint(CRON)


@for_each("place", PLACES[1:])
@for_each("profile", PROFILES)
def test_also_allow_adds_nothing_beyond_an_earlier_step(profile: Profile, place: str) -> None:
    outer = at("tools", profile=profile, deny=["message_send"])
    config = configured(outer + at(place, profile="minimal", also_allow=["*"]))

    assert allowed_tools(config, OWNER, TOOLS) == PROFILES[profile] - {"message_send"}


@pytest.mark.parametrize("profile", PROFILES)
def test_owner_only_tools_are_denied_to_others(profile: Profile) -> None:
    config = configured(at("tools", profile=profile, also_allow=["cron_add"]))

    assert allowed_tools(config, STRANGER, TOOLS) == PROFILES[profile] - CRON - GATEWAY - MODERATES
    assert why(config, STRANGER, "cron_add") == "- owner only"
    assert why(config, OWNER, "cron_add") == '+ channels.telegram.owners has "4711"'


DENIED_TO_TASKS = CRON | GATEWAY | {"agents_list", "session_status", "sessions_send"}
DENIED_TO_LEAVES = DENIED_TO_TASKS | {
    "sessions_list",
    "sessions_history",
    "sessions_spawn",
    "subagents",
}


@for_each(
    ("depth", "max_depth", "denied"),
    [
        (0, 1, set()),
        (1, 1, DENIED_TO_LEAVES),
        (1, 2, DENIED_TO_TASKS),
        (2, 2, DENIED_TO_LEAVES),
        (9, 2, DENIED_TO_LEAVES),
    ],
)
@for_each("profile", PROFILES)
def test_subagents_are_denied_some_tools_by_depth(
    profile: Profile, depth: int, max_depth: int, denied: set[str]
) -> None:
    config = configured(at("tools", profile=profile) + at("sessions", max_depth=max_depth))
    subject = replace(OWNER, limits=SessionLimits(depth=depth))

    assert allowed_tools(config, subject, TOOLS) == PROFILES[profile] - denied


def test_an_agents_own_table_gives_back_what_subagents_are_denied() -> None:
    text = at("agents.main.tools", also_allow=["sessions_*", "cron_add"])
    config = configured(text + at("channels.telegram.tools", deny=["sessions_send"]))
    tools = (ALL - DENIED_TO_LEAVES) | {"sessions_list", "sessions_history", "sessions_spawn"}
    owner, stranger = (
        replace(OWNER, limits=TASK),
        replace(STRANGER, limits=TASK),
    )

    assert allowed_tools(config, owner, TOOLS) == tools | {"cron_add"}
    assert allowed_tools(config, stranger, TOOLS) == tools - MODERATES
    assert why(config, owner, "sessions_list") == '+ agents.main.tools.also_allow has "sessions_*"'
    assert (
        why(config, owner, "sessions_send") == '- channels.telegram.tools.deny has "sessions_send"'
    )
    assert why(config, owner, "subagents") == "- not for subagents that can start none"
    assert why(config, owner, "session_status") == "- not for subagents"


@pytest.mark.parametrize("place", [place for place in PLACES if place != "agents.main.tools"])
def test_only_the_agent_s_own_table_can_give_tools_back_to_subagents(place: str) -> None:
    config = configured(at(place, also_allow=["*"], allow=["*"]))

    assert allowed_tools(config, replace(OWNER, limits=TASK), TOOLS) == ALL - DENIED_TO_LEAVES


def test_the_first_step_that_denies_is_named() -> None:
    denials = [at(place, deny=["message_send"]) for place in PLACES]

    for number, place in enumerate(PLACES):
        config = configured("".join(denials[number:]))
        assert why(config, OWNER, "message_send") == f'- {place}.deny has "message_send"'


def test_without_any_setting_the_profile_is_named() -> None:
    assert why(configured(""), STRANGER, "message_send") == '+ tools.profile = "full"'


def test_an_allow_list_of_unknown_tools_allows_nothing() -> None:
    """This configuration has not been checked against the tools."""
    config = Config.model_validate({"tools": {"allow": ["group:fs", "web_search"]}})

    assert allowed_tools(config, OWNER, TOOLS) == set()


def test_an_unknown_agent_has_no_tools() -> None:
    with pytest.raises(ConfigError, match="There is no agent 'other'"):
        rule_on_tools(configured(""), replace(OWNER, agent="other"), TOOLS)


# -- groups and senders ---------------------------------------------------------------------------


@pytest.mark.parametrize("chat", ["-100", "*"])
@pytest.mark.parametrize("sender", ["4711", "*"])
def test_group_tables_apply_only_in_group_chats(chat: str, sender: str) -> None:
    group = f'channels.telegram.groups."{chat}"'
    config = configured(
        at(f'{group}.senders."{sender}".tools', deny=["message_pin"])
        + at(f"{group}.tools", deny=["message_send"])
    )

    assert allowed_tools(config, OWNER, TOOLS) == ALL - {"message_pin", "message_send"}
    assert allowed_tools(config, replace(OWNER, is_group=False), TOOLS) == ALL


@pytest.mark.parametrize("subject", [OWNER, replace(OWNER, is_group=False, chat_id="4711")])
def test_a_sender_table_applies_in_direct_chats_and_groups(subject: Subject) -> None:
    config = configured(at('channels.telegram.senders."4711".tools', deny=["message_pin"]))

    assert allowed_tools(config, subject, TOOLS) == ALL - {"message_pin"}


def test_the_star_table_applies_to_senders_without_a_table() -> None:
    config = configured(
        at('channels.telegram.senders."*".tools', profile="minimal")
        + at('channels.telegram.senders."4711".tools', deny=["message_pin"])
    )

    assert allowed_tools(config, OWNER, TOOLS) == ALL - {"message_pin"}
    assert allowed_tools(config, STRANGER, TOOLS) == {"session_status"}
    assert why(config, STRANGER, "message_pin") == (
        '- channels.telegram.senders."*".tools.profile = "minimal"'
    )


def test_the_star_table_does_not_apply_to_a_group_with_a_table() -> None:
    config = configured(
        at('channels.telegram.groups."*".tools', profile="minimal")
        + at('channels.telegram.groups."*".senders."4711".tools', deny=["*"])
        + at('channels.telegram.groups."-100".tools', deny=["message_pin"])
    )

    assert allowed_tools(config, OWNER, TOOLS) == ALL - {"message_pin"}
    assert allowed_tools(config, replace(OWNER, chat_id="-200"), TOOLS) == set()


def test_tables_of_other_channels_do_not_apply() -> None:
    config = configured(at("channels.irc.tools", deny=["*"]))

    assert allowed_tools(config, OWNER, TOOLS) == ALL


# -- owners ---------------------------------------------------------------------------------------


def test_an_administrator_is_an_owner_in_their_chat() -> None:
    subject = Subject("main", "web", "admin.ada", is_group=False, senders=("admin.ada",))

    assert allowed_tools(Config(), subject, TOOLS) == ALL
    assert why(Config(), subject, "cron_add") == "+ the web is its owner's"
    assert not allowed_tools(Config(), replace(subject, channel="irc"), TOOLS) & (CRON | GATEWAY)


@pytest.mark.parametrize(
    ("owners", "is_theirs"), [(["admin.ada"], True), (["admin.bob"], False), ([], False)]
)
def test_the_owners_of_peoples_chats_can_be_configured(owners: list[str], is_theirs: bool) -> None:
    config = configured(at("channels.web", owners=owners))
    subject = Subject("main", "web", "admin.ada", is_group=False, senders=("admin.ada",))

    assert is_owner(config, subject) is is_theirs
    assert allowed_tools(config, subject, TOOLS) == (ALL if is_theirs else ALL - CRON - GATEWAY)


@pytest.mark.parametrize("channel", ["telegram", "web"])
def test_a_turn_without_senders_has_no_owner_tools(channel: str) -> None:
    config = configured(at(f'channels.{channel}.senders."*".tools', deny=["message_send"]))
    subject = replace(OWNER, channel=channel, senders=())

    assert not is_owner(config, subject)
    assert allowed_tools(config, subject, TOOLS) == ALL - CRON - GATEWAY - MODERATES - {
        "message_send"
    }


#: Ids that could be confused with U012é, or with everybody.
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
def test_ids_are_compared_exactly(disguise: str) -> None:
    config = configured(
        at("channels.irc", owners=["U012é"])
        + at('channels.irc.senders."U012é".tools', deny=["message_send"])
        + at('channels.irc.groups."U012é".tools', deny=["message_pin"])
    )
    real = Subject("main", "irc", "U012é", is_group=True, senders=("U012é",))

    assert allowed_tools(config, real, TOOLS) == ALL - {"message_send", "message_pin"}
    assert not is_owner(config, replace(real, senders=(disguise,)))
    assert "message_send" in allowed_tools(config, replace(real, senders=(disguise,)), TOOLS)
    assert "message_pin" in allowed_tools(config, replace(real, chat_id=disguise), TOOLS)


# -- properties of every configuration ------------------------------------------------------------

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
#: Ids of senders; some of them have a table, and some are owners.
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
    limits=st.builds(SessionLimits, depth=st.integers(0, 2)),
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

    before = allowed_tools(config_of(tables, owners), subject, TOOLS)
    after = allowed_tools(config_of(tables | {place: more}, owners), subject, TOOLS)

    assert after <= before


@given(places, owners, subjects, st.data())
def test_a_further_step_never_adds_a_tool(
    tables: dict[tuple[str, ...], dict[str, Any]],
    owners: list[str],
    subject: Subject,
    data: st.DataObject,
) -> None:
    """Exceptions are `also_allow` for subagents and the tools for moderating a group."""
    place = data.draw(st.sampled_from(sorted(tables)))
    if place[0] == "agents":
        subject = replace(subject, limits=UNLIMITED)

    without = allowed_tools(config_of(tables | {place: {}}, owners), subject, TOOLS)

    assert allowed_tools(config_of(tables, owners), subject, TOOLS) - {*MODERATES} <= without


@given(places, owners, subjects)
def test_a_subagent_never_has_more_tools_than_its_parent(
    tables: dict[tuple[str, ...], dict[str, Any]], owners: list[str], subject: Subject
) -> None:
    config = config_of(tables, owners)
    deeper = allowed_tools(config, replace(subject, limits=subject.limits.of_task), TOOLS)

    assert deeper <= allowed_tools(config, subject, TOOLS)


@given(places, owners, subjects)
def test_a_batch_has_only_the_tools_that_all_its_senders_have(
    tables: dict[tuple[str, ...], dict[str, Any]], owners: list[str], subject: Subject
) -> None:
    config = config_of(tables, owners)
    alone = [replace(subject, senders=(sender,)) for sender in subject.senders or ("unknown",)]

    assert allowed_tools(config, subject, TOOLS) == frozenset.intersection(
        *(allowed_tools(config, each, TOOLS) for each in alone)
    )
    assert is_owner(config, subject) == all(is_owner(config, each) for each in alone)


@given(places, owners, subjects, st.text())
def test_an_unknown_sender_is_never_an_owner(
    tables: dict[tuple[str, ...], dict[str, Any]], owners: list[str], subject: Subject, sender: str
) -> None:
    config = config_of(tables, [owner for owner in owners if owner != sender])
    joined = replace(subject, senders=(*subject.senders, sender))

    assert not is_owner(config, joined)
    assert not allowed_tools(config, joined, TOOLS) & (CRON | GATEWAY)


# -- mistakes in the configuration ----------------------------------------------------------------


@for_each("place", PLACES)
@for_each("name", ["allow", "deny", "also_allow"])
def test_an_unknown_tool_in_a_list_suggests_the_nearest_name(place: str, name: str) -> None:
    with pytest.raises(ConfigError) as error:
        configured(at(place, **{name: ["message_send", "corn_add"]}))

    key = place.replace("'", '"')
    assert str(error.value) == (
        f"{key}.{name} has 'corn_add', which no tool is; did you mean 'cron_add'?"
    )


def test_an_unknown_tool_without_a_near_name_lists_the_groups() -> None:
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
        ("[channels.a]\nowners = ['@ada']", "has '@ada', which is no id: write the id"),
        ("[channels.a]\nowners = ['']", "has '', which is no id"),
        ('[channels.a]\nowners = ["4711\\u200b"]', r"has '4711\u200b', which is no id"),
        ("[channels.a.senders.'@ada']", "senders is not valid: has '@ada', which is no id"),
        ("[channels.a.groups.'our group']", "groups is not valid: has 'our group', which is no id"),
        ("[channels.a.groups.1.senders.'@ada']", "senders is not valid: has '@ada'"),
    ],
)
def test_a_mistake_in_tool_settings_is_reported_in_one_line(
    home: Home, text: str, problem: str
) -> None:
    home.config_file.write_text(text)

    with pytest.raises(ConfigError) as error:
        load_config(home.config_file, {})

    assert problem in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "table", ["[channels.n]\nowners = ['ada']", "[channels.n.groups.-1.senders.ada]"]
)
def test_a_channel_with_an_id_form_refuses_other_ids(
    home: Home, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setitem(CHANNELS, "n", Channel(profile=ChannelProfile(id_form="-?[0-9]+")))
    home.config_file.write_text("[channels.n.senders.'*']\n[channels.n.groups.-1]")
    load_config(home.config_file, {})
    home.config_file.write_text(table)

    with pytest.raises(ConfigError, match="n has 'ada', which is no id there: ids have the form"):
        load_config(home.config_file, {})


def test_matrix_ids_and_star_tables_are_valid(home: Home) -> None:
    home.config_file.write_text(
        "[channels.matrix]\nowners = ['@ada:example.org']\n"
        "[channels.telegram.senders.'*']\n[channels.telegram.groups.'*'.senders.'*']"
    )

    assert load_config(home.config_file, {}).channels["matrix"].owners == ("@ada:example.org",)


def test_an_id_in_an_environment_variable_keeps_its_case(home: Home) -> None:
    """In lower case it would be another id, and the denial would apply to no sender."""
    name = "REMOTECLAW__CHANNELS__IRC__SENDERS__U012__TOOLS__DENY"

    config = load_config(home.config_file, {name: '["message_send"]'})

    assert list(config.channels["irc"].senders) == ["U012"]


# -- the command ----------------------------------------------------------------------------------


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["policy", "explain", *arguments])


def test_policy_explain_lists_each_tool_with_its_rule(home: Home) -> None:
    home.config_file.write_text('[channels.telegram.tools]\ndeny = ["message_*"]')

    lines = explain("--channel", "telegram", "--from", "4711").stdout.splitlines()

    assert lines[0].split() == ["TOOL", "ALLOWED", "RULE"]
    assert {line.split()[0] for line in lines[1 : lines.index("")]} == ALL | {"memory_write"}
    assert any(
        line.split(maxsplit=2)
        == ["message_send", "no", 'channels.telegram.tools.deny has "message_*"']
        for line in lines
    )
    assert any(line.split(maxsplit=2) == ["cron_add", "no", "owner only"] for line in lines)
    assert any(line.split()[:2] == ["subagents", "yes"] for line in lines)


def test_policy_explain_prints_json(home: Home) -> None:
    home.config_file.write_text(
        "[channels.telegram]\nowners = ['1', '2']\ntoken = '1:x'\n"
        "[channels.telegram.groups.-100.tools]\ndeny = ['group:cron']\n"
        "[channels.telegram.groups.-100.requests]\nwho = ['telegram:1']\n"
        "[requests]\nchat = 'telegram:2'"
    )

    def explained(*arguments: str) -> Any:
        arguments = ("--channel", "telegram", *arguments, "--json")
        answer = json.loads(explain(*arguments).stdout)
        return answer, {each["tool"] for each in answer["tools"] if each["allowed"]}

    group = ("--group", "--chat", "-100")
    assert explained("--from", "1", "--depth", "1")[1] == ALL - DENIED_TO_LEAVES
    assert explained("--from", "1", "--from", "2", *group)[1] == ALL - CRON
    answer, tools = explained("--from", "1", "--from", "3", *group)
    assert tools == ALL - CRON - GATEWAY - MODERATES
    assert answer["isOwner"] is False
    assert answer["subject"]["senders"] == ["1", "3"]
    assert answer["requests"] == {"who": ["telegram:1"], "chat": "telegram:2"}
    shown = explain("--channel", "telegram", "--from", "3").stdout
    assert shown.endswith("\n\nRequests to people: owners answer, asked in telegram:2.\n")
    assert answer["tools"][0].keys() == {"tool", "allowed", "rule", "approval"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--agent", "x"], "There is no agent 'x': the configuration has 'main'."),
        (
            ["--channel", "x"],
            "There is no channel 'x': there are 'cli', 'matrix', 'slack', 'telegram', 'web', "
            "'webhook', 'irc'.",
        ),
    ],
)
def test_policy_explain_reports_an_unknown_agent_or_channel_in_one_line(
    home: Home, arguments: list[str], problem: str
) -> None:
    home.config_file.write_text("[channels.irc]")

    result = explain(*arguments)

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"remoteclaw: {problem}\n"


def test_policy_explain_needs_a_chat_for_a_group(home: Home) -> None:
    result = explain("--group")

    assert result.exit_code == 2
    assert "--group needs --chat" in result.stderr


# -- the tools that an agent is given -------------------------------------------------------------

#: The tools that work on Telegram.
ON_TELEGRAM = ALL - profile_of("telegram").lacks
#: A stranger's session in a group chat, and in a direct chat.
IN_GROUP = SessionKey("main", "telegram", "default", "-100", "666")
DIRECT = SessionKey("main", "telegram", "default", "666", "666")


def test_a_group_session_lists_the_tools_that_any_member_may_use() -> None:
    """Otherwise each sender had another list, and the agent would be restarted for each."""
    config = configured(
        "tools.deny = ['message_pin']\n"
        "channels.telegram.groups.'-100'.senders.'4711'.tools = {}\n"
        "channels.telegram.groups.'-100'.senders.'*'.tools.profile = 'minimal'"
    )

    assert listed_tools(config, IN_GROUP, TOOLS) == ON_TELEGRAM - {"message_pin"}
    assert listed_tools(config, replace(IN_GROUP, user="4711"), TOOLS) == ON_TELEGRAM - {
        "message_pin"
    }
    assert listed_tools(config, replace(IN_GROUP, channel_id="-200"), TOOLS) == ON_TELEGRAM - {
        "message_pin"
    }


def test_a_direct_session_lists_the_tools_that_its_user_may_use() -> None:
    config = configured("channels.telegram.senders.'666'.tools.deny = ['message_send']")
    owners = replace(DIRECT, channel_id="4711", user="4711")

    assert listed_tools(config, DIRECT, TOOLS) == ON_TELEGRAM - CRON - GATEWAY - {"message_send"}
    assert listed_tools(config, owners, TOOLS) == ON_TELEGRAM
    assert not listed_tools(config, DIRECT, TOOLS, TASK) & {
        "sessions_send",
        "session_status",
    }


# -- the document ---------------------------------------------------------------------------------


def test_the_tables_in_tool_policy_md_are_correct() -> None:
    text = (ROOT / "docs" / "tool-policy.md").read_text()
    rows = dict(re.findall(r"^\| `([\w:]+)` \| (.*) \|$", text, re.MULTILINE))

    for profile in ("messaging", "limited", "minimal"):
        named = re.findall(r"`([\w:]+)`", rows[profile])
        config = configured(at("tools", allow=named))
        assert allowed_tools(config, OWNER, TOOLS) == PROFILES[profile]
    assert rows.keys() >= {name for tool in TOOLS for name in tool.group_names}


# -- on whose behalf ------------------------------------------------------------------------------


def said_by(sender: str, number: int = 1) -> Entry:
    return Entry(f"{number}-0", message("hi", from_=sender, channel_id="4711", provider="telegram"))


def test_a_turn_is_on_behalf_of_its_senders_and_of_the_people_of_its_jobs() -> None:
    ada = said_by("4711")
    session = SessionKey.of(ada.message, agent="main")
    for_ada = replace(ada, origin="cron", people=("telegram:4711",))
    for_nobody = replace(ada, origin="session")
    subject = subject_of(session, [ada], limits=SessionLimits(depth=2))

    assert subject == Subject(
        "main",
        "telegram",
        "4711",
        False,
        ("4711",),
        user=session.user,
        limits=SessionLimits(depth=2),
    )
    both = subject_of(session, [ada, said_by("666", 2)])
    assert (both.is_group, both.senders, both.limits.depth) == (True, ("4711", "666"), 0)
    job = subject_of(session, [for_ada, for_ada])
    assert (job.is_group, job.senders, job.people) == (False, (), ("telegram:4711",))
    assert subject_of(session, [for_nobody]).senders == (None,)
    # a person's message is on behalf of the person, whatever else it names
    assert subject_of(session, [replace(ada, people=("telegram:666",))]).senders == ("4711",)


@for_each(
    ("senders", "people", "user", "expected"),
    [
        (("4711",), (), None, True),
        (("4711", "666"), (), None, False),
        (("4711", None), (), "4711", False),
        ((), ("telegram:4711",), "4711", True),
        ((), ("telegram:666",), "4711", False),
        ((), ("telegram:4711", "telegram:666"), "4711", False),
        ((), ("test:4711",), None, False),
        (("4711",), ("telegram:666",), None, False),
        ((), (), None, False),
    ],
)
def test_a_turn_is_an_owners_only_if_each_of_its_people_is_one(
    senders: tuple[str | None, ...], people: tuple[str, ...], user: str | None, expected: bool
) -> None:
    subject = replace(OWNER, senders=senders, people=people, user=user)

    assert is_owner(configured(""), subject) is expected
    assert is_owned_by(configured(""), "telegram", "4711")
    assert not is_owned_by(configured(""), "telegram", "666")


@for_each(
    ("senders", "people", "user", "expected"),
    [
        (("666",), (), None, False),
        ((), ("telegram:666",), None, False),
        ((), ("test:666",), None, True),
        ((), ("test:1",), "666", False),
        ((None,), (), "666", False),
        ((), (), "666", False),
        ((None,), (), None, True),
        (("1",), (), "666", True),
    ],
)
def test_the_denials_for_a_person_hold_for_jobs_and_messages_on_their_behalf(
    senders: tuple[str | None, ...], people: tuple[str, ...], user: str | None, expected: bool
) -> None:
    config = configured(at('channels.telegram.senders."666".tools', deny=["message_send"]))
    subject = replace(OWNER, senders=senders, people=people, user=user)

    assert ("message_send" in allowed_tools(config, subject, TOOLS)) is expected


def test_the_narrowest_table_decides_whether_a_person_has_to_approve_a_call() -> None:
    tool = next(tool for tool in TOOLS if tool.approvable)
    other = next(tool for tool in TOOLS if not tool.approvable)

    for place in PLACES:
        config = configured(at(place, approve=[tool.tool]))
        (ruling,) = rule_on_tools(config, OWNER, [tool])
        assert ruling.approval == f'{place}.approve has "{tool.tool}"'
        assert approval_rule(config, OWNER, other) is None
    for place in PLACES[1:]:
        both = configured(at("tools", approve=[tool.tool]) + at(place, approve=[]))
        assert approval_rule(both, OWNER, tool) is None
    denied = configured(at("tools", approve=[tool.tool], deny=[tool.tool]))
    assert rule_on_tools(denied, OWNER, [tool])[0].approval is None
