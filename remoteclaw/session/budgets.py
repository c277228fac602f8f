"""Budgets of a session: its turns wait at a limit, and a running turn ends there."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remoteclaw.clock import local_day, local_time
from remoteclaw.config.budgets import AppliedBudget, budgets_of, person_names
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisRefused, RedisUnavailable
from remoteclaw.fleet.budgets import words
from remoteclaw.fleet.budgets.budgets import Asked, Budgets
from remoteclaw.fleet.budgets.standing import Refused, Standing, end_ms, end_of
from remoteclaw.fleet.sessions.usage import UsageLedger, usual_price
from remoteclaw.fleet.turns.commands import command_of
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.fleet.turns.turn import BudgetWait
from remoteclaw.messages import (
    AgentDeliveryResult,
    ChatPlace,
    Entry,
    Turn,
    payers_of,
    people_of,
    place_of,
)
from remoteclaw.session.notices import end_early
from remoteclaw.session.queue import may_be_postponed
from remoteclaw.session.reply import TurnReply

#: How often a turn is checked while its agent reports nothing, if its minutes are limited, in
#: seconds.
CHECK_S = 5.0


@dataclass(frozen=True, slots=True)
class AtLimit:
    """A budget whose limit is reached, and the entries that it keeps from their turn."""

    standing: Standing
    entries: Sequence[Entry]


class SessionBudgets:
    """The budgets of one session, whose lease this process has."""

    def __init__(self, lease: Lease, config: Config, zone: str | None) -> None:
        """`zone` is that of the times for people."""
        self._lease = lease
        self._config = config
        self._zone = zone
        self._budgets = Budgets(lease.scripts, lease.waker)

    async def of(
        self, entries: Sequence[Entry], *, agent: str | None = None
    ) -> Sequence[AppliedBudget]:
        """Return the budgets that limit a turn of `entries`; by default of the agent that works."""
        if not self._config.budgets:
            return ()
        root = await self._lease.progress.root()
        return budgets_of(
            self._config,
            agent=agent or self._lease.working_agent,
            people=payers_of(entries),
            root=root.sid,
            day=self._day,
        )

    async def of_new(
        self, planned: Sequence[Entry], *, begins_anew: bool = False
    ) -> Sequence[AppliedBudget]:
        """Return the budgets that may refuse a new turn of `planned`.

        None refuses a command or a terminal's turn; and the old conversation's none that
        `begins_anew`.
        """
        if any(map(_is_never_refused, planned)):
            return ()
        limits = await self.of(planned)
        return [each for each in limits if each.period or not begins_anew]

    def divide(
        self, standing: Standing, planned: Sequence[Entry], waiting: Sequence[Entry]
    ) -> tuple[Sequence[Entry], Sequence[Entry]]:
        """Return those of `planned` that a budget limits, and the `waiting` that it does not."""
        kind, _, person = standing.applied.scope.partition(" ")
        if kind != "person":
            return planned, ()

        def is_limited(entry: Entry) -> bool:
            return person in person_names(self._config, payers_of([entry]))

        others = [entry for entry in waiting if not is_limited(entry)]
        return [entry for entry in planned if is_limited(entry)], others

    async def wait(self, reached: Sequence[AtLimit], waiting: Sequence[Entry]) -> Refused | None:
        """Release the lease of a session of which nothing can begin, and ask owners for more.

        Return a refusal if entries don't wait: if the conversation ends behind them, or nobody is
        asked. If the session has changed, the lease is kept.
        """
        for each in reached:
            behind = [entry for entry in waiting if entry not in each.entries]
            if not (each.standing.asks and may_be_postponed(behind)):
                return self._refusal(each)
        root = await self._lease.progress.root()
        asked = [await self._budgets.ask(self._config, each.standing, root) for each in reached]
        if all(each.status != "decided" for each in asked):
            wait = self._wait_of(reached, asked, waiting)
            limits = [each.standing.applied for each in reached]
            newest = self._lease.newest_read
            await self._lease.turns.wait_for_budget(wait, limits, newest=newest)
        return None

    async def tell(self, standings: Sequence[Standing]) -> None:
        """Warn owners of budgets that are almost spent."""
        for standing in standings:
            if standing.is_due_for_warning:
                root = await self._lease.progress.root()
                await self._budgets.warn(self._config, standing, root)

    async def reached(self, applied: Sequence[AppliedBudget]) -> Standing | None:
        """Return the first of these budgets whose limit is reached."""
        return await self._budgets.reached(applied)

    async def stop_text(self, standing: Standing) -> str:
        """Return the notice behind the answer of a turn that a limit has ended; ask owners."""
        next_ = ""
        if standing.asks:
            root = await self._lease.progress.root()
            asked = await self._budgets.ask(self._config, standing, root)
            next_ = words.ASKED if asked.chat and asked.request else ""
        return words.STOPPED_HERE.format(name=words.name_of(standing.applied), next=next_)

    @property
    def _day(self) -> str:
        return local_day(self._lease.now_ms, self._config.fleet.timezone).isoformat()

    def _wait_of(
        self, reached: Sequence[AtLimit], asked: Sequence[Asked], waiting: Sequence[Entry]
    ) -> BudgetWait:
        entries = [entry for each in reached for entry in each.entries]
        before = (self._lease.state.budget_told or "").splitlines()
        told = [f"{each.standing.id} {each.standing.halves}" for each in reached]
        place, zone = place_of(entries), self._config.fleet.timezone
        at = self._end_text(reached[0].standing, entries[-1], " until")
        name = " and ".join(words.name_of(each.standing.applied) for each in reached)
        texts = [
            self._notice(each, answer, place)
            for each, answer, line in zip(reached, asked, told, strict=True)
            if line not in before
            and (answer.status, answer.chat) != ("asked", place)  # the request itself says it
        ]
        turn = Turn(session=self._lease.session, entries=tuple(entries))
        reply = TurnReply(self._lease, turn)
        return BudgetWait(
            budgets=[each.standing.id for each in reached],
            name=name,
            until_ms=min(end_ms(each.standing.applied, zone) for each in reached),
            detail=f"because {name} is used up{at}",
            entries=[entry.id for entry in waiting],
            told="\n".join(dict.fromkeys((*before, *told))),
            place=place,
            notice=reply.notice_payload("\n\n".join(texts)) if texts else None,
        )

    def _notice(self, at_limit: AtLimit, asked: Asked, place: ChatPlace) -> str:
        """Return the notice that messages wait."""
        at = self._end_text(at_limit.standing, at_limit.entries[-1], " from")
        name = words.capital(words.name_of(at_limit.standing.applied))
        if asked.chat:
            text = words.WAITS_HERE if asked.chat == place else words.WAITS
            return text.format(Name=name, or_later=f", or{at} on" if at else "")
        return words.WAITS_UNASKED.format(
            Name=name,
            and_later=f", and I answer it{at} on" if at else "",
            command=words.ALLOW.format(id=asked.request) if asked.request else "",
        )

    def _refusal(self, at_limit: AtLimit) -> Refused:
        standing, entries = at_limit.standing, at_limit.entries
        has_end = end_of(standing.applied, self._config.fleet.timezone) is not None
        notice = words.REFUSED.format(
            Name=words.capital(words.name_of(standing.applied)),
            until=self._end_text(standing, entries[-1], " until"),
            then=words.AGAIN_THEN if has_end else words.NEW_CONVERSATION,
        )
        is_answered = all(each.deliver == "channel" and not each.waits for each in entries)
        return Refused(
            standing,
            entries,
            notice="" if standing.asks else notice,
            day=self._day,
            people=people_of(entries) if is_answered else (),
        )

    def _end_text(self, standing: Standing, entry: Entry, before: str) -> str:
        """Return the end of the period in the time zone of the person who wrote `entry`."""
        if (end := end_of(standing.applied, self._config.fleet.timezone)) is None:
            return ""
        zone = entry.message.timezone or self._zone
        at = local_time(int(end.timestamp() * 1000), zone) if zone else end
        return words.time_text(at, before)


class TurnBudgets:
    """The budgets of a running turn: what it spends counts at once, and the limit ends it."""

    def __init__(
        self,
        budgets: SessionBudgets,
        lease: Lease,
        reply: TurnReply,
        *,
        entries: Callable[[], Sequence[Entry]],
        stop: Callable[[], None],
    ) -> None:
        """`entries` returns those of the turn, with those that have joined it; `stop` ends it."""
        self._budgets = budgets
        self._lease = lease
        self._reply = reply
        self._entries = entries
        self._stop = stop
        self._has_spent = asyncio.Event()
        self.reached: Standing | None = None
        """The budget whose limit has ended the turn."""

    async def applied(self) -> Sequence[AppliedBudget]:
        """Return the budgets that limit the turn now: a fallback works at its own agent's."""
        return await self._budgets.of(self._entries())

    async def is_at_limit(self, entry: Entry) -> bool:
        """Whether a limit keeps an entry from the turn: one of the turn, or of its sender."""
        limits = await self._budgets.of((*self._entries(), entry))
        return bool(self.reached or await self._budgets.reached(limits))

    async def is_used_up(self, agent: str) -> bool:
        """Whether a budget keeps a fallback, another agent, from this turn."""
        limits = await self._budgets.of(self._entries(), agent=agent)
        return await self._budgets.reached(limits) is not None

    def note(self) -> None:
        """Note that the agent has used tokens, or asks for a tool."""
        self._has_spent.set()

    async def check(self) -> bool:
        """Count what the turn has spent; end it at a limit. Return whether it goes on."""
        with contextlib.suppress(RedisUnavailable, RedisRefused):
            applied = await self.applied()
            if self._reply.price is None and any(each.budget.usd for each in applied):
                # The CLI tells what a turn has cost at its end only.
                sums = UsageLedger(self._lease.scripts)
                self._reply.price = usual_price(await sums.agent(self._lease.working_agent))
            spent = self._reply.spent_now
            reached, standings = await self._lease.turns.count_spent(spent, applied)
            if reached and self.reached is None:
                self.reached = reached
                self._stop()
            elif not reached:
                await self._budgets.tell(standings)
        return self.reached is None

    async def keep_checking(self) -> None:
        """Check after each note, until the limit is reached, or until cancelled."""
        counts_time = any(each.budget.minutes for each in await self.applied())
        while self.reached is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S if counts_time else None):
                    await self._has_spent.wait()
            self._has_spent.clear()
            await self.check()

    async def settle(self, result: AgentDeliveryResult) -> AgentDeliveryResult:
        """Return the result of the turn; if a limit has ended it, as done, with a notice."""
        if self.reached is None:
            return result
        return end_early(result, await self._budgets.stop_text(self.reached))


def _is_never_refused(entry: Entry) -> bool:
    command = command_of(entry)
    is_command = command is not None and (command.name == "stop" or command.is_alone)
    return is_command or entry.origin == "operator" or bool(entry.terminal)
