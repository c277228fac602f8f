"""Everything that is kept in Redis: streams, leases, outcomes, and the hints that wake workers.

Correctness depends on the Lua scripts in `scripts/`; `docs/architecture.md` explains them.
The rest of RemoteClaw reaches Redis through one `Fleet` object.
"""

from dataclasses import dataclass
from typing import Self

from remoteclaw.config.model.fleet import LEASE_S
from remoteclaw.fleet.accounts import Accounts
from remoteclaw.fleet.blobs import Blobs
from remoteclaw.fleet.budgets.budgets import Budgets
from remoteclaw.fleet.chats import Chats
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.fleet.drains import Drains
from remoteclaw.fleet.gateways import Gateways
from remoteclaw.fleet.identities import Identities
from remoteclaw.fleet.inbox import Inbox
from remoteclaw.fleet.memories import Memories
from remoteclaw.fleet.metrics import Metrics
from remoteclaw.fleet.pairings import Pairings
from remoteclaw.fleet.pools import Pools
from remoteclaw.fleet.processes import Processes
from remoteclaw.fleet.push_subscriptions import PushSubscriptions
from remoteclaw.fleet.replies.deadletters import DeadLetters
from remoteclaw.fleet.replies.history import History
from remoteclaw.fleet.replies.receipts import Receipts
from remoteclaw.fleet.replies.replies import Replies
from remoteclaw.fleet.replies.signs import Signs
from remoteclaw.fleet.requests.requests import Requests
from remoteclaw.fleet.restores import Restores
from remoteclaw.fleet.sessions.records import Records
from remoteclaw.fleet.sessions.sessions import Sessions
from remoteclaw.fleet.sessions.task_tree import TaskTrees
from remoteclaw.fleet.sessions.usage import UsageLedger
from remoteclaw.fleet.terminals.audit import Audit
from remoteclaw.fleet.terminals.guest_links import GuestLinks
from remoteclaw.fleet.terminals.terminals import Terminals
from remoteclaw.fleet.tokens import Logins, Tokens
from remoteclaw.fleet.turns.calls import ToolCalls
from remoteclaw.fleet.turns.edits import Edits
from remoteclaw.fleet.turns.failed import FailedTurns
from remoteclaw.fleet.turns.inbound import Inbound
from remoteclaw.fleet.turns.lease import Leases
from remoteclaw.fleet.turns.outcomes import Outcomes
from remoteclaw.fleet.turns.sweep import Sweeper
from remoteclaw.fleet.turns.wait_limit import WaitLimit
from remoteclaw.fleet.wake import Waker
from remoteclaw.fleet.web import WebChats
from remoteclaw.fleet.workers import Workers

__all__ = ["Fleet"]


@dataclass(frozen=True, slots=True)
class Fleet:
    """One connection pool to Redis, and the objects that read and write through it."""

    scripts: Scripts
    waker: Waker
    accounts: Accounts
    receipts: Receipts
    blobs: Blobs
    budgets: Budgets
    requests: Requests
    audit: Audit
    edits: Edits
    inbound: Inbound
    inbox: Inbox
    leases: Leases
    logins: Logins
    dead_letters: DeadLetters
    drains: Drains
    failed_turns: FailedTurns
    calls: ToolCalls
    chats: Chats
    gateways: Gateways
    guest_links: GuestLinks
    history: History
    identities: Identities
    memories: Memories
    metrics: Metrics
    outcomes: Outcomes
    pairings: Pairings
    pools: Pools
    processes: Processes
    push_subscriptions: PushSubscriptions
    records: Records
    replies: Replies
    restores: Restores
    sessions: Sessions
    signs: Signs
    sweeper: Sweeper
    task_trees: TaskTrees
    terminals: Terminals
    tokens: Tokens
    usage: UsageLedger
    wait_limit: WaitLimit
    web: WebChats
    workers: Workers

    @classmethod
    def open(
        cls,
        url: str,
        *,
        lease_s: float = LEASE_S,
        memory_limit: int = 0,
        scripts: Scripts | None = None,
    ) -> Self:
        """Return a fleet on the Redis at `url`. It connects at its first call.

        `lease_s` is the duration of the leases that it acquires; only workers acquire leases.
        `memory_limit` is the maximum memory of Redis, in bytes; 0 sets none. If the `maxmemory` of
        Redis is lower, that applies.
        """
        scripts = scripts or Scripts(
            open_redis(url), memory_limit=memory_limit, is_replicated="+sentinel:" in url
        )
        waker, workers, pools = Waker(scripts), Workers(scripts), Pools(scripts)
        blobs = Blobs(scripts)
        calls = ToolCalls(scripts, waker)
        memories = Memories(scripts, calls)
        requests = Requests(scripts, waker, blobs, memories)
        tokens, records = Tokens(scripts), Records(scripts)
        return cls(
            scripts=scripts,
            waker=waker,
            accounts=Accounts(scripts),
            receipts=Receipts(scripts),
            blobs=blobs,
            budgets=Budgets(scripts, waker),
            requests=requests,
            audit=Audit(scripts),
            edits=Edits(scripts, waker),
            inbound=Inbound(scripts, waker),
            inbox=Inbox(scripts),
            dead_letters=DeadLetters(scripts, waker),
            drains=Drains(scripts),
            failed_turns=FailedTurns(scripts),
            calls=calls,
            chats=Chats(scripts),
            gateways=Gateways(scripts),
            guest_links=GuestLinks(scripts),
            history=History(scripts),
            identities=Identities(scripts),
            memories=memories,
            metrics=Metrics(scripts),
            leases=Leases(scripts, waker, lease_s=lease_s),
            logins=Logins(scripts, tokens),
            outcomes=Outcomes(scripts),
            pairings=Pairings(scripts),
            pools=pools,
            processes=Processes(scripts),
            push_subscriptions=PushSubscriptions(scripts, tokens),
            records=records,
            replies=Replies(scripts),
            restores=Restores(scripts),
            sessions=Sessions(scripts, waker, records),
            signs=Signs(scripts),
            sweeper=Sweeper(scripts, waker, workers, requests),
            task_trees=TaskTrees(scripts),
            terminals=Terminals(scripts, waker),
            tokens=tokens,
            usage=UsageLedger(scripts),
            wait_limit=WaitLimit(scripts, workers, pools),
            web=WebChats(scripts),
            workers=workers,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self.scripts.client.aclose()
