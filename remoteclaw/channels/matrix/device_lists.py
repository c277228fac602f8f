"""The devices of other people: those that get the keys of what this account writes."""

from collections.abc import Collection, Mapping
from typing import Any

from remoteclaw.channels.matrix.api import MALFORMED, Homeserver
from remoteclaw.channels.matrix.device import MEGOLM, OtherDevice, is_signed

#: This many people's devices are asked for at once.
MAX_USERS = 250


class DeviceLists:
    """The devices of people, asked for once until the homeserver says that they have changed."""

    def __init__(self, api: Homeserver) -> None:
        self._api = api
        self._known: dict[str, tuple[OtherDevice, ...]] = {}

    def forget(self, users: Collection[str] | None = None) -> None:
        """Ask again for the devices of people, or of all people."""
        for user in list(self._known) if users is None else users:
            self._known.pop(user, None)

    async def of(self, users: Collection[str]) -> list[OtherDevice]:
        """Return the devices of people that can read encrypted messages."""
        missing = sorted(user for user in users if user not in self._known)
        for start in range(0, len(missing), MAX_USERS):
            some = missing[start : start + MAX_USERS]
            answer = await self._api.post(
                "keys", "query", body={"device_keys": {user: [] for user in some}}
            )
            unreached = answer.get("failures", {})
            for user in some:
                if user.partition(":")[2] in unreached:  # ask again with the next message
                    continue
                found = answer.get("device_keys", {}).get(user, {})
                self._known[user] = tuple(filter(None, map(_device, *_repeat(user, found))))
        return [device for user in users for device in self._known.get(user, ())]


def _repeat(user: str, found: Mapping[str, Any]) -> tuple[list[str], list[str], list[Any]]:
    return [user] * len(found), list(found), list(found.values())


def _device(user: str, id_: str, keys: Any) -> OtherDevice | None:
    """Return a device by the keys that it has published; None if they are not signed by it."""
    try:
        device = OtherDevice(
            user, id_, keys["keys"][f"curve25519:{id_}"], keys["keys"][f"ed25519:{id_}"]
        )
        is_itself = (keys["user_id"], keys["device_id"]) == (user, id_)
        reads = MEGOLM in keys["algorithms"]
        is_named = isinstance(device.curve25519, str) and isinstance(device.ed25519, str)
        is_usable = is_itself and reads and is_named and is_signed(keys, user, id_, device)
        return device if is_usable else None
    except MALFORMED:
        return None
