"""The command /pair: an owner lets in who has a code, or the group in which it is written."""

from remoteclaw.clock import in_words, now_ms
from remoteclaw.commands.call import Answer, Asked
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.pairings import PairingRequest
from remoteclaw.messages import ChatPlace, person

WELCOME = "You were let in: write to me. /help shows what I know."
UNKNOWN = "There is no such code, or it is older than an hour: have them write again for another."


async def pair(asked: Asked) -> Answer:
    """Let in who has a code, or the group; else list who asks."""
    session, pairings = asked.session, asked.fleet.pairings
    by = person(session.provider, asked.sender)
    if asked.rest:
        request = await approve(asked.fleet, asked.rest, by=by)
        if request is None:
            return Answer(UNKNOWN)
        return Answer(f"`{_plain(request.name)}` (`{request.id}`) may write from now on.")
    if asked.is_group:
        place = (session.provider, session.account, session.channel_id)
        await pairings.add(*place, name="a group", by=by)
        return Answer(
            "Everybody in this group may write to me now, where they mention me or answer me."
        )
    requests = await pairings.requests()
    if not requests:
        return Answer("Nobody asks to be let in. `/pair CODE` lets in who was told that code.")
    lines = [
        f"- `{one.code}`: `{_plain(one.name)}` (`{one.id}`) on {one.provider}/{one.account}, "
        f"{in_words(now_ms() - one.at_ms)} ago"
        for one in requests
    ]
    return Answer("\n".join([*lines, "", "`/pair CODE` lets one in. Ask them for the code first."]))


async def approve(fleet: Fleet, code: str, *, by: str) -> PairingRequest | None:
    """Let in whom a code stands for, and tell them; None if the code is not known."""
    request = await fleet.pairings.approve(code, by=by)
    if request is None:
        return None
    place = ChatPlace(request.provider, request.account, request.chat)
    name = f"paired\0{request.provider}\0{request.account}\0{request.id}\0{request.message}"
    await fleet.calls.say(place, WELCOME, name=name)
    return request


def _plain(name: str) -> str:
    return name.replace("`", "'") or "no name"
