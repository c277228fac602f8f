"""Budgets at their limit: reads what is left, asks owners for more, and warns them before."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

from remoteclaw.clock import local_day, now_ms
from remoteclaw.config.budgets import AppliedBudget, budgets_of, current_budgets
from remoteclaw.config.model import Config
from remoteclaw.config.requests import owners_place
from remoteclaw.fleet import keys
from remoteclaw.fleet.budgets import words
from remoteclaw.fleet.budgets.standing import (
    Standing,
    end_ms,
    end_of,
    limit_args,
    of_reached,
    standings,
)
from remoteclaw.fleet.chats import Chats
from remoteclaw.fleet.connection import Scripts
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.requests.card import make_card, request_args
from remoteclaw.fleet.requests.request import Request, id_of
from remoteclaw.fleet.sessions.usage import Usage
from remoteclaw.fleet.wake import Waker
from remoteclaw.messages import ChatPlace, SessionKey

#: What is decided about a budget is kept for this long after its period, in milliseconds.
AFTER_MS = 24 * 3600 * 1000
#: The budgets of at most this many people are listed.
MAX_PEOPLE = 50


@dataclass(frozen=True, slots=True)
class Asked:
    """The result of a request to owners."""

    status: Literal["asked", "open", "decided", "full"]
    """`decided`: an owner has just answered; `full`: too many requests wait."""
    request: str | None
    """The id of the request that waits."""
    chat: ChatPlace | None
    """The chat in which an owner is asked; None if none is."""


class Budgets:
    """Reads the standings of budgets, and asks and warns owners."""

    def __init__(self, scripts: Scripts, waker: Waker) -> None:
        self._scripts = scripts
        self._waker = waker
        self._chats = Chats(scripts)

    async def reached(self, applied: Sequence[AppliedBudget]) -> Standing | None:
        """Return the first of these budgets whose limit is reached."""
        if not applied:
            return None
        checked = await self._scripts.run("check_budgets", **limit_args(applied))
        return of_reached(applied, checked.reached, checked.budgets)

    async def standings(self, applied: Sequence[AppliedBudget]) -> list[Standing]:
        """Return the standings of budgets."""
        if not applied:
            return []
        checked = await self._scripts.run("check_budgets", **limit_args(applied))
        return standings(applied, checked.budgets)

    async def current(self, config: Config) -> list[Standing]:
        """Return the standings of all budgets of this day and this month.

        Of `person:*`, those of the `MAX_PEOPLE` people who have used the most tokens this month.
        """
        if not config.budgets:
            return []
        client, day = self._scripts.client, await self._today(config)
        sums: dict[bytes, bytes] = await self._scripts.call(client.hgetall, keys.spent(day[:7]))
        used = {
            field.decode().removeprefix("person "): Usage.decode(numbers).new_tokens
            for field, numbers in sums.items()
            if field.startswith(b"person ")
        }
        names = sorted(used, key=lambda name: (-used[name], name))[:MAX_PEOPLE]
        return await self.standings(current_budgets(config, names=names, day=day))

    async def of_session(
        self, config: Config, session: SessionKey, root: SessionKey, people: Iterable[str]
    ) -> list[Standing]:
        """Return the standings of the budgets that limit what `people` ask in a session."""
        day = await self._today(config)
        return await self.standings(
            budgets_of(config, agent=session.agent, people=people, root=root.sid, day=day)
        )

    async def _today(self, config: Config) -> str:
        return local_day(await self._scripts.now_ms(), config.fleet.timezone).isoformat()

    async def refusal(
        self, config: Config, session: SessionKey, root: SessionKey, people: Iterable[str]
    ) -> str | None:
        """Return why nothing that costs may begin in `session` now; None if it may.

        `root` is the conversation's own session, which is above all its tasks; `people` are those
        for whom it would work. Owners are asked for more.
        """
        if not config.budgets:
            return None
        day = await self._today(config)
        applied = budgets_of(config, agent=session.agent, people=people, root=root.sid, day=day)
        reached = await self.reached(applied)
        if reached is None:
            return None
        if reached.asks:
            await self.ask(config, reached, root)
        return words.used_up(reached, end_of(reached.applied, config.fleet.timezone))

    async def wake_all(self) -> None:
        """Wake all sessions that wait for a budget, because limits have changed."""
        for woken in await self._scripts.run("wake_for_budgets"):
            await self._waker.try_hint(SessionKey.parse(woken.session_key), woken.queue)

    async def ask(self, config: Config, standing: Standing, session: SessionKey) -> Asked:
        """Ask owners for more, once for each limit that is reached.

        `session` has reached the limit, or is the conversation of the task that has.
        """
        applied, end = standing.applied, end_of(standing.applied, config.fleet.timezone)
        chat = owners_place(await self._chats.config_of(config, session), session)
        what = words.spent_text(standing, session)
        request = Request(
            id=id_of("budget", standing.id, str(standing.halves)),
            session=session,
            turn="",
            tool="budget",
            what=what,
            where=words.name_of(applied),
            deliver="channel" if chat else "caller",
            people=(),
            here=session.place,
            chat=None if chat == session.place else chat,
            choices=words.labels_of(applied),
            budget=standing.id,
        )
        or_later = words.time_text(end, ", or until")
        text = words.CARD.format(what=what, or_later=or_later)
        shown = make_card(request, attempt=0, text=text, is_told=True) if chat else None
        until_ms = end_ms(applied, config.fleet.timezone)
        asked = await self._scripts.run(
            "ask_budget",
            budget=keys.budget(standing.id),
            halves=standing.halves,
            until_ms=until_ms,
            budget_ms=until_ms - now_ms() + AFTER_MS,
            **request_args(request, shown, keep_ms=config.record.keep_ms),
        )
        return Asked(asked.status, asked.request_id, chat if asked.request_id else None)

    async def warn(self, config: Config, standing: Standing, session: SessionKey) -> None:
        """Tell owners that most of a budget is spent, once."""
        place = owners_place(await self._chats.config_of(config, session), session)
        if place is None:
            return
        text = words.WARNING.format(what=words.spent_text(standing, session))
        notice = reply_payload(
            place, text, sid=session.sid, call=f"budget:{standing.id}", is_notice=True
        )
        await self._scripts.run(
            "warn_budget",
            budget=keys.budget(standing.id),
            budget_ms=end_ms(standing.applied, config.fleet.timezone) - now_ms() + AFTER_MS,
            provider=place.provider,
            account=place.account,
            notice=orjson.dumps(notice),
        )
