"""What has happened in all rooms since a position: `/sync`, with its gaps filled.

An event that can't be decrypted is kept in the account's state, and reported when its key comes.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from remoteclaw.channels.matrix.api import MALFORMED, Homeserver, MatrixRefused, json_of
from remoteclaw.channels.matrix.device import Event
from remoteclaw.channels.matrix.encryption import Encryption
from remoteclaw.channels.matrix.events import (
    KINDS,
    VERIFICATION,
    Where,
    own_membership,
    related_id,
    relation_of,
    report_of,
)
from remoteclaw.channels.matrix.room_keys import Undecryptable
from remoteclaw.channels.matrix.rooms import Rooms
from remoteclaw.channels.matrix.sender import Sender, hashed
from remoteclaw.clock import now_ms
from remoteclaw.errors import AccountRefused, LeaseLost, RemoteClawError
from remoteclaw.protocols import AdapterState, Incoming, PollResult

#: A poll waits this long for events, in seconds.
POLL_S = 25.0
FILTER = json.dumps(
    {
        "presence": {"types": []},
        "account_data": {"types": []},
        "room": {
            "timeline": {"limit": 100},
            "state": {"lazy_load_members": True},
            "ephemeral": {"types": []},
            "account_data": {"types": []},
        },
    }
)
#: A gap is read in pages of this many events, up to this many pages: more than a busy day has.
PAGE, MAX_PAGES = 500, 20
#: This many events are remembered, for what relates to them.
MAX_SEEN = 2000
#: Events of these types count in an encrypted room, although nobody encrypts them.
NEVER_ENCRYPTED = ("m.reaction", "m.room.redaction")
#: An id has at most this many characters.
MAX_ID = 255
#: An event whose key has not come is told of after this time, and at most once in the second one in
#: each room; it is forgotten after the third. In milliseconds.
TOLD_MS, AGAIN_MS, LOST_MS = 60_000, 3_600_000, 86_400_000
#: This many events wait for their keys.
MAX_WAITING = 100
#: They have this many bytes together.
MAX_WAITING_BYTES = 200_000
CANT_READ = (
    "it is encrypted, and {why}. Send it again; if that doesn't help, log out of your client and "
    "in again"
)

NOT_ENCRYPTED = (
    "it is not encrypted, and this account is set to read encrypted messages only; first turn on "
    "encryption in the settings of the room"
)

log = logging.getLogger(__name__)


class Sync:
    """Reads what happens in the rooms of an account."""

    def __init__(
        self,
        api: Homeserver,
        rooms: Rooms,
        encryption: Encryption,
        sender: Sender,
        state: AdapterState,
        me: str,
        *,
        requires_encryption: bool,
    ) -> None:
        self._api, self._rooms, self._encryption, self._state = api, rooms, encryption, state
        self._sender, self._me = sender, me
        self._requires_encryption = requires_encryption
        self._returned: str | None = ""
        """The position of the last result; empty if there is none, or a poll has failed since."""
        self._seen: dict[tuple[str, str], Event] = {}
        """The newest events, by room and id."""
        self._waiting: dict[str, Any] | None = None
        """The events whose keys have not come, and when each room was told of some."""

    async def poll(self, cursors: Mapping[str, str]) -> PollResult:
        """Wait for events after the position, and return what people did.

        The source is the account's id: after a login as somebody else, the position is another.
        """
        since = cursors.get(self._me)
        is_new = since != self._returned
        if is_new:  # another process may have had the account
            self._rooms.forget()
            self._seen, self._waiting = {}, None
        self._returned = ""  # until all is stored: a poll that fails may have changed what waits
        waiting = await self._loaded()
        await self._encryption.settled()
        wait_s = self._wait_s(waiting) if since else 0.0
        params = {"since": since} if since else {}
        answer = await self._api.get(
            "sync", wait_s=wait_s, timeout=int(wait_s * 1000), filter=FILTER, **params
        )
        came = await self._encryption.take(answer)
        rooms = answer.get("rooms", {})
        found = await self._memberships(rooms, since or "")
        before = json.dumps(waiting)
        if since:
            for room, joined in rooms.get("join", {}).items():
                found += await self._joined(room, joined, since)
        done, reports = await self._decrypted_late(None if is_new else came)
        found += [*reports, *await self._told()]
        if json.dumps(waiting) != before:
            await self._keep()
        self._returned = answer["next_batch"]
        moved = {**dict.fromkeys(cursors), self._me: answer["next_batch"]}
        return PollResult(tuple(found), moved, self._forgetting(done) if done else None)

    # -- rooms ---------------------------------------------------------------------------------

    async def _memberships(self, rooms: Mapping[str, Any], since: str) -> list[Incoming]:
        """Return the invitations, which have no ids, and the removals."""
        found = []
        for kind, state, invitation in (
            ("invite", "invite_state", "invited"),
            ("leave", "timeline", "removed"),
        ):
            for room, about in rooms.get(kind, {}).items():
                event = own_membership(about.get(state, {}).get("events", ()), self._me)
                if event is None or event.get("sender") == self._me:
                    continue
                if invitation == "invited" and await self._rooms.is_awaited(room):
                    await self._join(room, str(event["sender"]))
                    continue
                incoming: dict[str, Any] = {
                    "id": event.get("event_id") or f"invitation {room} {since}",
                    "chat": await self._rooms.first(room),
                    "sender": str(event["sender"]),
                    "at_ms": event.get("origin_server_ts") or now_ms(),
                    "is_group": not event["content"].get("is_direct"),
                    "invitation": invitation,
                }
                found.append(Incoming(**incoming))
        return found

    async def _join(self, room: str, through: str) -> bool:
        """Join the room that replaces another one; return whether the account is there.

        No failure may hold up the other rooms: the room's server can be slow for ever.
        """
        try:
            await self._api.join(room, through=through)
        except AccountRefused:
            raise
        except RemoteClawError as error:
            log.warning("%s, which replaces a room, can't be joined: %s", room, error)
            return False
        return True

    async def _joined(self, room: str, joined: Mapping[str, Any], since: str) -> list[Incoming]:
        """Return what people did in a room, oldest first."""
        timeline = joined.get("timeline", {})
        events: list[Event] = list(timeline.get("events", ()))
        state = [*joined.get("state", {}).get("events", ()), *events]
        # The complete state has just come; else it only has the members who have written.
        is_new = any(each.get("type") == "m.room.create" for each in state)
        began = next(filter(self._is_beginning, state if is_new else events), None)
        if timeline.get("limited"):
            self._rooms.forget(room)
            events = [*await self._missed(room, timeline.get("prev_batch"), since, began), *events]
        elif began is not None:
            events = [*await self._missed(room, timeline.get("prev_batch"), None, began), *events]
        await self._rooms.apply(room, state)
        if began is not None:
            events = self._since_invitation(events)
            await self._note_move(room, state)
        return [each for event in events for each in await self._reports(room, event)]

    def _is_beginning(self, event: Event) -> bool:
        """Whether the account has just joined with this event."""
        if (event.get("type"), event.get("state_key")) != ("m.room.member", self._me):
            return False
        before = (event.get("unsigned") or {}).get("prev_content") or {}
        content = event.get("content") or {}
        return bool(content.get("membership") == "join" != before.get("membership"))

    def _since_invitation(self, events: Sequence[Event]) -> list[Event]:
        """Return the events after the one that invited the account, or else after its joining."""
        for membership in ("invite", "join"):
            for index in range(len(events) - 1, -1, -1):
                event = events[index]
                if (event.get("type"), event.get("state_key")) == ("m.room.member", self._me) and (
                    event["content"].get("membership") == membership
                ):
                    return list(events[index + 1 :])
        return []

    async def _missed(
        self, room: str, before: str | None, since: str | None, began: Event | None
    ) -> list[Event]:
        """Return the events of a gap, oldest first; after joining, those since the invitation."""
        missed: list[Event] = []
        wants = "invite" in str((began or {}).get("unsigned", {}).get("prev_content"))
        for _ in range(MAX_PAGES):
            if before is None or (began is not None and not wants):
                break
            params: dict[str, Any] = {"from": before}
            params |= {"to": since} if since and began is None else {}
            page = await self._api.get("rooms", room, "messages", dir="b", limit=PAGE, **params)
            chunk = page.get("chunk", [])
            missed = [*reversed(chunk), *missed]
            before = page.get("end")
            if not chunk or (began is not None and self._since_invitation(missed)):
                break
        return missed

    # -- events --------------------------------------------------------------------------------

    async def _reports(self, room: str, event: Event) -> list[Incoming]:
        """Return the report of an event, unless nobody expects anything of it.

        A malformed event, or one of a room that the account has left meanwhile, has none.
        """
        try:
            return await self._reports_of(room, event)
        except MALFORMED as error:
            log.warning("an event in %s is malformed: %s", room, type(error).__name__)
        except MatrixRefused as refusal:
            log.warning("an event in %s is not read: %s", room, refusal)
        return []

    async def _reports_of(self, room: str, event: Event) -> list[Incoming]:
        if event["type"] == "m.room.tombstone" and event.get("state_key") == "":
            await self._follow(room, event)
        is_encrypted = event["type"] == "m.room.encrypted"
        if is_encrypted:
            try:
                event = await self._encryption.decrypted(room, event)
            except Undecryptable as error:
                if event["sender"] != self._me:
                    await self._wait_for_key(room, event, error)
                return []
        if event["type"] not in KINDS or "state_key" in event:
            return []
        related = await self.event(room, related_id(event))
        self._remember(room, event if is_encrypted else self._shown(event))
        if event["sender"] == self._me or not event["content"]:  # it is removed
            return []
        names = await self._rooms.members(room)
        first = await self._rooms.first(room)
        where = Where(first, await self._rooms.is_group(room), self._me, names)
        if event["content"].get("msgtype") == VERIFICATION:
            return await self._decline(event, where)
        report = report_of(event, where, related)
        if report is None or (report.sender == self._me):
            return []
        if event["type"] in NEVER_ENCRYPTED:
            is_encrypted = await self._rooms.encryption(room) is not None
        if self._requires_encryption and not is_encrypted:
            return [_problem(event, where, "", NOT_ENCRYPTED)] if report.is_for_us else []
        return [report]

    async def _decline(self, event: Event, where: Where) -> list[Incoming]:
        """Decline a verification in a room; return the report that says why."""
        if event["content"].get("to") != self._me:
            return []
        why = self._encryption.about_verification
        relation = {"rel_type": "m.reference", "event_id": event["event_id"]}
        content = {"code": "m.user", "reason": why, "m.relates_to": relation}
        try:
            kind, txn = "m.key.verification.cancel", hashed("cancel", event["event_id"])
            await self._sender.put(where.room, kind, content, txn)
        except LeaseLost:
            raise
        except RemoteClawError as error:
            log.warning("a verification in %s is not declined: %s", where.room, error)
        return [_problem(event, where, "", why)]

    def _remember(self, room: str, event: Event) -> None:
        self._seen[room, event["event_id"]] = event
        while len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]

    async def event(self, room: str, id_: str | None) -> Event | None:
        """Return an event, decrypted; None if the homeserver doesn't have it."""
        if id_ is None:
            return None
        if (room, id_) not in self._seen:
            try:
                found = await self._api.get("rooms", room, "event", id_)
                self._remember(room, await self.read(room, found))
            except MatrixRefused:
                return None
        return self._seen[room, id_]

    async def read(self, room: str, event: Event) -> Event:
        """Return an event decrypted, or as it is if its key is not there."""
        if event["type"] != "m.room.encrypted":
            return self._shown(event)
        try:
            return await self._encryption.decrypted(room, event)
        except Undecryptable:
            return event

    def _shown(self, event: Event) -> Event:
        """Return an event that is not encrypted, without what this account refuses to read."""
        is_refused = self._requires_encryption and event["sender"] != self._me
        is_refused &= event["type"] in KINDS and event["type"] not in NEVER_ENCRYPTED
        return {**event, "content": {}} if is_refused else event

    async def _follow(self, room: str, event: Event) -> None:
        """Join the room that replaces a room, now or once the account is invited there."""
        successor = event["content"].get("replacement_room")
        if not isinstance(successor, str) or not 0 < len(successor) <= MAX_ID:
            return
        if not await self._join(successor, event["sender"]):  # its members are invited afterwards
            await self._rooms.await_invitation(successor, instead_of=room)

    async def _note_move(self, room: str, state: Sequence[Event]) -> None:
        """Record that `room` replaces another one, if both say so."""
        created = next((each for each in state if each.get("type") == "m.room.create"), {})
        earlier = (created.get("content") or {}).get("predecessor")
        before = earlier.get("room_id") if isinstance(earlier, dict) else None
        if not isinstance(before, str) or not before.isprintable() or len(before) > MAX_ID:
            return
        try:
            end = await self._api.get("rooms", before, "state", "m.room.tombstone")
        except MatrixRefused:  # the account was not there
            return
        if end.get("replacement_room") == room:
            await self._rooms.move(before, room)
            log.warning("the room %s has moved to %s; its first id stays in use", before, room)

    # -- events whose keys have not come -------------------------------------------------------

    async def _loaded(self) -> dict[str, Any]:
        if self._waiting is None:
            stored = await self._state.read("undecrypted")
            self._waiting = json.loads(stored) if stored else {"events": {}, "told": {}}
        return self._waiting

    async def _keep(self) -> None:
        waiting = await self._loaded()
        value = json_of(waiting) if waiting["events"] else None
        await self._state.write("undecrypted", value)

    async def _wait_for_key(self, room: str, event: Event, error: Undecryptable) -> None:
        waiting = await self._loaded()
        kept = {"room": room, "event": event, "since": now_ms(), "why": str(error)}
        events = waiting["events"]
        if event["event_id"] in events:
            return
        events[event["event_id"]] = kept | {"session": error.session, "is_told": False}
        try:
            await self._encryption.ask_for_key(room, event)
        except RemoteClawError as refusal:
            log.warning("no key is asked for: %s", refusal)

    async def _decrypted_late(
        self, came: Collection[str] | None
    ) -> tuple[list[str], list[Incoming]]:
        """Return the events whose keys have come, and their reports; None: try all events."""
        done, reports = [], []
        for id_, each in (await self._loaded())["events"].items():
            if came is not None and each["session"] not in came:
                continue
            try:
                await self._encryption.decrypted(each["room"], each["event"])
            except Undecryptable:
                continue
            done.append(id_)
            reports += await self._reports(each["room"], each["event"])
        return done, reports

    def _forgetting(self, done: Sequence[str]) -> Callable[[], Awaitable[None]]:
        """Return what forgets events once their reports are stored."""

        async def forget() -> None:
            waiting = await self._loaded()
            for id_ in done:
                waiting["events"].pop(id_, None)
            await self._keep()

        return forget

    async def _told(self) -> list[Incoming]:
        """Return reports that say in a room that a message can't be read."""
        waiting, now = await self._loaded(), now_ms()
        events, told = waiting["events"], waiting["told"]
        reports, size = [], len(json_of(events))
        for id_, each in list(events.items()):
            is_too_many = len(events) > MAX_WAITING or size > MAX_WAITING_BYTES
            if not each["is_told"] and (is_too_many or now - each["since"] >= TOLD_MS):
                each["is_told"] = True
                if now - told.get(each["room"], 0) >= AGAIN_MS:
                    told[each["room"]] = now
                    reports += await self._unread(each)
            if is_too_many or now - each["since"] > LOST_MS:
                size -= len(json_of(events.pop(id_)))
        return reports

    async def _unread(self, waiting: Mapping[str, Any]) -> list[Incoming]:
        try:
            is_group = await self._rooms.is_group(waiting["room"])
        except MatrixRefused:  # the account has left the room
            return []
        where = Where(await self._rooms.first(waiting["room"]), is_group, self._me, {})
        why = CANT_READ.format(why=waiting["why"])
        return [_problem(waiting["event"], where, ":undecryptable", why)]

    @staticmethod
    def _wait_s(waiting: Mapping[str, Any]) -> float:
        """Return how long a poll waits: not beyond the time at which a room is told."""
        due = [each["since"] for each in waiting["events"].values() if not each["is_told"]]
        left_s = (min(due) + TOLD_MS - now_ms()) / 1000 if due else POLL_S
        return max(0.0, min(POLL_S, left_s))


def _problem(event: Event, where: Where, more: str, problem: str) -> Incoming:
    relation = relation_of(event)
    thread = relation.get("event_id") if relation.get("rel_type") == "m.thread" else None
    about: dict[str, Any] = {"id": f"{event['event_id']}{more}", "sender": event["sender"]}
    return Incoming(
        **about,
        chat=where.room,
        thread=thread if isinstance(thread, str) else None,
        is_group=where.is_group,
        at_ms=event.get("origin_server_ts", 0),
        problem=problem,
    )
