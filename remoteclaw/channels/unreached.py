"""Notices to people whose answer a platform refuses, in a place that still takes messages.

A notice goes to one place after the other: to the next one only if the platform refuses it there,
too. Each time fewer places are left, so it ends.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from remoteclaw.config.chats import ChatFacts, agent_of
from remoteclaw.config.model import Config
from remoteclaw.config.requests import request_settings
from remoteclaw.fleet import keys
from remoteclaw.fleet.replies.reader import DeliveryFailure
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.turns.caller import call_name
from remoteclaw.messages import EVERYONE, ChatPlace, SessionKey
from remoteclaw.profiles import profile_of
from remoteclaw.protocols import Refusal, Reply

NOTICE = "A message of mine was {fate} {where}: {why}"
KEPT = "Whoever runs me finds it with `remoteclaw deadletters list`."
#: The fate of a message by the category of its failure.
FATES = {"refused": "refused", "unknown": "perhaps lost"}


def notice_of(
    config: Config, facts: ChatFacts, place: ChatPlace, reply: Reply, failure: DeliveryFailure
) -> tuple[ChatPlace, Mapping[str, Any]] | None:
    """Return the place and the payload of the notice about a failed reply; None for no notice.

    `place` is the reply's, and `facts` are those of its chat. A tool's message has no notice,
    because its caller learns of the failure, and neither has a request, whose conversation is told.
    """
    if reply.refusal:  # the reply is such a notice itself
        refusal, is_next = reply.refusal, failure.category == "refused"
    else:
        is_awaited = reply.asked_by is not None or (reply.turn and reply.call is None)
        is_next = bool(is_awaited and not reply.card and failure.category in FATES)
        why = " ".join((failure.why.rstrip(".") + ".", KEPT if reply.call is None else "")).rstrip()
        places = tuple(dict.fromkeys(_places(config, facts, place, reply)))
        refusal = Refusal(place, FATES.get(failure.category, ""), why, places)
    if not is_next or not refusal.places:
        return None
    to, *others = refusal.places
    where = "here" if to == refusal.of else f"in {refusal.of}"
    payload = reply_payload(
        to,
        NOTICE.format(fate=refusal.fate, where=where, why=refusal.why),
        sid=keys.OPERATOR,
        call=call_name(None, "\0".join(("unreached", reply.key, str(to)))),
        refusal=replace(refusal, places=tuple(others)),
    )
    return to, payload


def _places(
    config: Config, facts: ChatFacts, place: ChatPlace, reply: Reply
) -> Iterator[ChatPlace]:
    """Yield the places for the notice about a failed reply, in order.

    They are the chat itself, which may have refused this message only; the chat outside of the
    topic; the direct chat of the person who asked; the chat for requests; owners' direct chats.
    """
    yield place
    yield replace(place, thread=None)
    yield from _direct_chats(place, [reply.asked_by] if reply.asked_by else [])
    agent = agent_of(config, place, facts, is_group=reply.asked_by != place.chat)
    session = SessionKey(agent, place.provider, place.account, place.chat, EVERYONE, place.thread)
    if requests := request_settings(config, session).chat:
        yield requests
    yield from _direct_chats(place, config.channel(place.provider).owners or ())


def _direct_chats(place: ChatPlace, people: Iterable[str]) -> Iterator[ChatPlace]:
    form = profile_of(place.provider).direct_chat_form
    for person in people:
        if form and re.fullmatch(form, person):
            yield replace(place, chat=person, thread=None)
