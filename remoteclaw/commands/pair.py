"""The command /pair: an owner approves a pairing code, or grants access to the current group."""

import re
from dataclasses import replace

from remoteclaw.clock import format_duration, now_ms
from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.config.chats import agent_of
from remoteclaw.config.tool_lists import quoted
from remoteclaw.fleet.pairings import A_GROUP, PairingRequest, Pairings
from remoteclaw.fleet.turns.calls import ToolCalls
from remoteclaw.messages import ChatPlace

#: How many pairing requests `/pair` shows, the newest ones.
MAX_SHOWN = 20
WELCOME = "You have access now: write to me. /help shows the commands."
#: The arguments with which `/pair` is about the current group.
HERE = re.compile(r"(?:here)?\s*(?:\bas\s+(?P<agent>\S+))?", re.IGNORECASE)
MAY_WRITE = "Everybody in this group may write to me now, by mentioning me or replying to me."
IS_READ = "The agent reads everything that is written in this group now."
ANSWERS = "The agent `{agent}` answers here."
HOW_TO_CHOOSE = "`/pair as NAME` chooses another one; `/agent` lists them."
STILL_ANSWERS = "`{agent}` still answers what was written before."
FOR_GROUPS = (
    "Only a group can be given to an agent: in direct chats, the account's agent answers "
    "(`agent` in `[channels.{channel}]`)."
)
FIXED = (
    "The configuration gives this group to the agent `{agent}`: change or remove `{key}` there "
    "first."
)
UNKNOWN = (
    "There is no such code, or it has expired: the person gets a new code by writing to me again."
)


async def pair(call: CommandCall) -> CommandReply:
    """Approve a pairing code, grant access to the group, or list the pairing requests."""
    pairings = call.fleet.pairings
    here = HERE.fullmatch(call.arguments)
    if here and call.is_group:
        return await _pair_group(call, here["agent"])
    if here and call.arguments:
        return CommandReply(FOR_GROUPS.format(channel=call.place.provider))
    if call.arguments:
        request = await approve(pairings, call.fleet.calls, call.arguments, by=call.person)
        if request is None:
            return CommandReply(UNKNOWN)
        return CommandReply(f"`{_plain(request.name)}` (`{request.id}`) may write from now on.")
    requests = await pairings.requests()
    if not requests:
        return CommandReply(
            "Nobody is waiting for access. `/pair CODE` gives access to the person with that code."
        )
    shown = requests[-MAX_SHOWN:]
    lines = [
        f"- `{each.code}`: `{_plain(each.name)}` (`{each.id}`) on {each.provider}/{each.account}, "
        f"{format_duration(now_ms() - each.at_ms)} ago"
        for each in shown
    ]
    if older := len(requests) - len(shown):
        lines.append(f"- and {older} older ones, which `remoteclaw pairing list` shows")
    return CommandReply(
        "\n".join(
            [
                *lines,
                "",
                "`/pair CODE` gives one of them access. Ask the person for the code first.",
            ]
        )
    )


async def _pair_group(call: CommandCall, named: str | None) -> CommandReply:
    """Grant access to the group, and give it to the agent `named`; None leaves its agent."""
    config, place, chats = call.config, call.place, call.fleet.chats
    facts = await chats.facts(place, is_group=True)
    if named is not None:
        by_name = {name.casefold(): name for name in config.agents}
        known = named if named in config.agents else by_name.get(named.casefold(), named)
        agent, _ = config.agent(known)
        table = config.channel(place.provider).groups.get(place.chat)
        if table and table.agent not in (None, agent):
            key = f"channels.{place.provider}.groups.{quoted(place.chat)}.agent"
            return CommandReply(FIXED.format(agent=table.agent, key=key))
        facts = replace(facts, agent=agent)
    await call.fleet.pairings.add(
        place.provider,
        place.account,
        place.chat,
        name=A_GROUP,
        by=call.person,
        agent=facts.agent,
    )
    group = config.channel(place.provider).group_of(place.chat)
    is_read = group is not None and group[1].require_mention is False
    sentences = [IS_READ if is_read else MAY_WRITE]
    answers = agent_of(config, place, facts, is_group=True)
    if named is not None or len(config.agents) > 1:
        sentences.append(ANSWERS.format(agent=answers))
    if named is None and len(config.agents) > 1:
        sentences.append(HOW_TO_CHOOSE)
    before = await call.fleet.sessions.view(call.session.sid)
    if answers != call.session.agent and before and before.waiting:
        sentences.append(STILL_ANSWERS.format(agent=call.session.agent))
    return CommandReply(" ".join(sentences))


async def approve(
    pairings: Pairings, calls: ToolCalls, code: str, *, by: str
) -> PairingRequest | None:
    """Grant access to the person with `code` on behalf of `by`, and notify that person.

    Return None if the code is unknown or has expired.
    """
    request = await pairings.approve(code, by=by)
    if request is None:
        return None
    place = ChatPlace(request.provider, request.account, request.chat)
    name = f"paired\0{request.provider}\0{request.account}\0{request.id}\0{request.message}"
    await calls.send_notice(place, WELCOME, name=name)
    return request


def _plain(name: str) -> str:
    """Return a display name without backquotes, for use in a code span."""
    return name.replace("`", "'") or "no name"
