"""A turn for a message of Alice, with the test as its worker: live text, messages and end."""

from dataclasses import dataclass
from typing import Any, Self

from remoteclaw.fleet import Fleet, keys
from remoteclaw.fleet.replies.reply import reply_payload
from remoteclaw.fleet.turns.lease import Lease
from tests.support.leases import begun
from tests.support.waiting import eventually


@dataclass(frozen=True)
class ManualTurn:
    """A running turn."""

    lease: Lease
    entry_id: str
    chat: str

    @classmethod
    async def begin(
        cls,
        fleet: Fleet,
        text: str = "hello",
        *,
        provider: str = "test",
        chat: str = "chat-1",
        by: str = "alice",
    ) -> Self:
        """Append a message and begin its turn."""
        who: dict[str, Any] = {"provider": provider, "channel_id": chat, "from_": by}
        lease, accepted = await begun(fleet, text, **who)
        return cls(lease, accepted.entry_id, chat)

    async def show(self, text: str, index: int = 0, **more: Any) -> None:
        """Publish live text of a message."""
        told: dict[str, Any] = {
            "sid": self.lease.sid,
            "channel_id": self.chat,
            "thread_id": None,
            "turn": self.entry_id,
            "attempt": 1,
            "index": index,
            "text": text,
            "activity": [],
            "plan": [],
        }
        told |= more
        await self.lease.turns.publish_live_text(told, for_chat=told)

    async def say(self, text: str, index: int = 0) -> None:
        """Send a message before the end of the turn."""
        await self.lease.turns.publish(index, self._payload(text, index, is_last=False))

    async def end(self, text: str, index: int = 0, **more: Any) -> None:
        """End the turn with a last message; the session is idle afterwards."""
        last = self._payload(text, index, is_last=True, **more)
        await self.lease.turns.finish("done", reply=[], payloads=[last], first_index=index)
        await self.lease.close()

    def _payload(self, text: str, index: int, *, is_last: bool, **more: Any) -> dict[str, Any]:
        return reply_payload(
            self.lease.session.place,
            text,
            sid=self.lease.sid,
            turn=self.entry_id,
            attempt=1,
            index=index,
            entries=[self.entry_id] if is_last else [],
            **more,
        )


async def wait_for_live_text_listener(fleet: Fleet, provider: str = "test") -> None:
    """Wait until an adapter receives live text."""
    client: Any = fleet.scripts.client
    channel = keys.live_of(provider, "default")

    async def is_heard() -> bool:
        return bool((await client.pubsub_numsub(channel))[0][1])

    await eventually(is_heard)
