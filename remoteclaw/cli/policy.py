"""The commands `policy`: which tools the configuration allows."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from remoteclaw.cli.access import load, on_fleet
from remoteclaw.cli.output import echo, echo_json, json_option, print_table
from remoteclaw.errors import ConfigError, RedisUnavailable

if TYPE_CHECKING:
    from remoteclaw.config.chats import ChatFacts
    from remoteclaw.config.model import Config
    from remoteclaw.messages import ChatPlace


@click.group()
def policy() -> None:
    """Explain what agents may do."""


@policy.command()
@click.option("--agent", default=None, help="Agent. [default: the one that answers in the chat]")
@click.option("--channel", default="web", show_default=True, help="Kind of channel.")
@click.option("--account", default="default", show_default=True, help="Account of the channel.")
@click.option(
    "--from",
    "senders",
    multiple=True,
    help="Sender's id; repeat it for a turn with several senders. [default: you]",
)
@click.option("--chat", default=None, help="Chat's id. [default: the sender's]")
@click.option("--group", "is_group", is_flag=True, help="The chat is a group; --chat names it.")
@click.option(
    "--depth",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="0 for a person's session, 1 for its tasks, 2 for their tasks.",
)
@json_option
def explain(
    agent: str | None,
    channel: str,
    account: str,
    senders: tuple[str, ...],
    chat: str | None,
    is_group: bool,
    depth: int,
    as_json: bool,
) -> None:
    """Show which tools an agent may use for a person, and why.

    RULE is the deciding rule: the first one that denies the tool, else the last one that allows it.
    """
    from remoteclaw.channels.web.profile import person_id
    from remoteclaw.channels.web.settings import own_name
    from remoteclaw.config.chats import NO_FACTS, agent_of
    from remoteclaw.config.requests import request_settings
    from remoteclaw.config.tool_policy import SessionLimits, Subject, is_owner, rule_on_tools
    from remoteclaw.messages import ChatPlace, SessionKey
    from remoteclaw.tools.catalog import TOOLS

    if is_group and chat is None:
        raise click.UsageError("--group needs --chat with the group's id.")
    _, config = load()
    _require_channel(config, channel)
    senders = senders or (person_id(own_name(config), is_admin=True),)
    place = ChatPlace(channel, account, senders[0] if chat is None else chat)
    facts = _facts(place) if is_group else NO_FACTS
    config = config.knowing(place, facts.within)
    subject = Subject(
        agent=config.agent(agent or agent_of(config, place, facts, is_group=is_group))[0],
        channel=channel,
        chat_id=place.chat,
        is_group=is_group,
        senders=senders,
        limits=SessionLimits(depth=depth),
    )
    user = senders[0] if is_group else subject.chat_id
    requests = request_settings(
        config, SessionKey(subject.agent, channel, account, subject.chat_id, user)
    )
    rulings = rule_on_tools(config, subject, TOOLS.values())
    if as_json:
        echo_json(
            {
                "subject": {
                    "agent": subject.agent,
                    "channel": channel,
                    "chatId": subject.chat_id,
                    "isGroup": is_group,
                    "senders": senders,
                    "depth": depth,
                },
                "isOwner": is_owner(config, subject),
                "requests": {
                    "who": requests.who,
                    "chat": requests.chat and str(requests.chat),
                },
                "tools": [asdict(ruling) for ruling in rulings],
            }
        )
        return
    rows = []
    for ruling in rulings:
        approval = f"; a person approves each call: {ruling.approval}" if ruling.approval else ""
        rows.append((ruling.tool, "yes" if ruling.allowed else "no", ruling.rule + approval))
    print_table(("TOOL", "ALLOWED", "RULE"), rows)
    echo("")
    echo(f"Requests to people: {requests}.")


def _facts(group: "ChatPlace") -> "ChatFacts":
    """Return what is known of a group; nothing while RemoteClaw isn't running."""
    from remoteclaw.config.chats import NO_FACTS

    try:
        facts: ChatFacts = on_fleet(lambda fleet: fleet.chats.facts(group, is_group=True))
    except RedisUnavailable:
        echo(
            "What `/pair` said about the group is not known while RemoteClaw isn't running.",
            err=True,
        )
        return NO_FACTS
    return facts


def _require_channel(config: "Config", name: str) -> None:
    from remoteclaw.profiles import CHANNELS

    known = dict.fromkeys((*CHANNELS, *config.channels))
    if name not in known:
        names = ", ".join(map(repr, known))
        raise ConfigError(f"There is no channel {name!r}: there are {names}.")
