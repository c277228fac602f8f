"""Links with which guests watch one terminal, and nothing else.

They are kept apart from the operators' tokens, so nothing that looks up a token finds one. Only the
digests of their secrets are stored.
"""

import logging
from dataclasses import asdict, dataclass

import orjson
from pydantic import TypeAdapter, ValidationError

from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.fleet.connection import Scripts
from remoteclaw.host.tokens import digest, is_same, link_id_of, new_guest_token

#: The most links of one terminal at a time: one for each circle of guests.
MAX_LINKS = 20

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestLink:
    """A link to a terminal."""

    id: str
    digest: str
    """SHA-256 of the guest's token."""
    sid: str
    entry: str
    """The id of the entry that opened the terminal: the link ends with this terminal."""
    by: str
    """The name of the user who shares the terminal."""
    credential: str
    """That user's token, as in `Operator.credential`: the link ends with it."""
    created_ms: int
    expires_ms: int


class GuestLinks:
    """Creates, reads and revokes links."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def create(
        self, sid: str, entry: str, *, by: str, credential: str, valid_ms: int
    ) -> tuple[str, GuestLink]:
        """Return the token of a new link, which can't be read again, and the link.

        Raises `CallRefused` if the terminal has `MAX_LINKS` links already.
        """
        links, now = await self._all(), await self._scripts.now_ms()
        if expired := [each.id for each in links if each.expires_ms <= now]:
            await self._scripts.call(self._scripts.client.hdel, keys.GUEST_LINKS, *expired)
        if sum(each.entry == entry for each in links if each.expires_ms > now) >= MAX_LINKS:
            raise CallRefused(
                "UNAVAILABLE",
                f"This terminal has {MAX_LINKS} links already, which is the maximum: revoke one.",
            )
        link_id, token = new_guest_token()
        link = GuestLink(
            id=link_id,
            digest=digest(token),
            sid=sid,
            entry=entry,
            by=by,
            credential=credential,
            created_ms=now,
            expires_ms=now + valid_ms,
        )
        client = self._scripts.client
        await self._scripts.call(client.hset, keys.GUEST_LINKS, link_id, orjson.dumps(asdict(link)))
        return token, link

    async def of(self, entry: str) -> list[GuestLink]:
        """Return the valid links of the terminal that an entry has opened, oldest first."""
        now = await self._scripts.now_ms()
        links = [each for each in await self._all() if each.entry == entry]
        return sorted(
            (each for each in links if each.expires_ms > now), key=lambda link: link.created_ms
        )

    async def find(self, token: str) -> GuestLink | None:
        """Return the link of a guest's token; None if it is invalid, revoked or expired."""
        link_id = link_id_of(token)
        link = await self.read(link_id) if link_id else None
        return link if link and is_same(link.digest, digest(token)) else None

    async def read(self, link_id: str) -> GuestLink | None:
        """Return the link with an id; None if it is revoked or expired."""
        data = await self._scripts.call(self._scripts.client.hget, keys.GUEST_LINKS, link_id)
        link = _decoded(data) if data else None
        return link if link and link.expires_ms > await self._scripts.now_ms() else None

    async def revoke(self, *link_ids: str) -> int:
        """Revoke links; return how many of them there were."""
        if not link_ids:
            return 0
        revoked = await self._scripts.call(self._scripts.client.hdel, keys.GUEST_LINKS, *link_ids)
        return int(revoked)

    async def _all(self) -> list[GuestLink]:
        stored = await self._scripts.call(self._scripts.client.hvals, keys.GUEST_LINKS)
        return [link for link in map(_decoded, stored) if link]


def _decoded(data: bytes) -> GuestLink | None:
    """Return a link from its stored form; None if that is damaged."""
    try:
        return TypeAdapter(GuestLink).validate_json(data)
    except ValidationError as error:
        log.error("the record of a link is damaged: %s", type(error).__name__)
        return None
