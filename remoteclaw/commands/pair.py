"""The command /pair: an owner approves a pairing code, or grants access to the current group."""

from remoteclaw.clock import format_duration, now_ms
from remoteclaw.commands.call import CommandCall, CommandReply
from remoteclaw.fleet.pairings import PairingRequest, Pairings
from remoteclaw.fleet.turns.calls import ToolCalls
from remoteclaw.messages import ChatPlace

#: How many pairing requests `/pair` shows, the newest ones.
MAX_SHOWN = 20
WELCOME = "You have access now: write to me. /help shows the commands."
UNKNOWN = (
    "There is no such code, or it has expired: the person gets a new code by writing to me again."
)


async def pair(call: CommandCall) -> CommandReply:
    """Approve a pairing code, grant access to the group, or list the pairing requests."""
    place, pairings = call.place, call.fleet.pairings
    if call.arguments:
        request = await approve(pairings, call.fleet.calls, call.arguments, by=call.person)
        if request is None:
            return CommandReply(UNKNOWN)
        return CommandReply(f"`{_plain(request.name)}` (`{request.id}`) may write from now on.")
    if call.is_group:
        await pairings.add(
            place.provider, place.account, place.chat, name="a group", by=call.person
        )
        return CommandReply(
            "Everybody in this group may write to me now, by mentioning me or replying to me."
        )
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
