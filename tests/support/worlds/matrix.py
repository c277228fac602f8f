"""Matrix with people on it."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import pytest

from remoteclaw.fleet import keys
from remoteclaw.protocols import CHOICE_EMOJI
from tests.support.matrix import Faults, Homeserver, Person
from tests.support.stack import Stack
from tests.support.waiting import eventually
from tests.support.worlds.world import MEGABYTE, NO_FILES, OWNER, World


class MatrixWorld(World):
    """A real homeserver. The owner wrote there before the account was set up."""

    provider = "matrix"
    most = 12_000
    large = 21 * MEGABYTE
    has_threads = True

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self._server: Homeserver = request.getfixturevalue("homeserver")
        self._stack = stack
        self.settings: dict[str, Any] = {}
        self._people: dict[int, Person] = {}
        self._rooms: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._position = ""

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as exits:
            bot = await exits.enter_async_context(Person.registered(self._server, "bot"))
            self._bot = bot.id
            for number in (OWNER, 8, 9):
                entered = Person.registered(self._server, f"person{number}")
                self._people[number] = person = await exits.enter_async_context(entered)
                self._rooms[number] = room = await person.create(bot.id)
                await bot.join(room)
            owner = self._people[OWNER]
            others = [self._people[number].id for number in (8, 9)]
            self.group = await owner.create(bot.id, *others, is_direct=False)
            for each in (bot, *self._people.values()):
                if each is not owner:
                    await each.join(self.group)
            await self.say("said before the first start")
            following = [asyncio.create_task(each.follow()) for each in self._people.values()]
            self._faults = await exits.enter_async_context(Faults.before(self._server.url))
            self.settings = {"api_url": self._faults.url, "token": bot.login.token}
            yield
            for task in following:
                task.cancel()
            await asyncio.wait(following)

    def person(self, number: int) -> str:
        return self._people[number].id

    def chat(self, number: int) -> str:
        return self._rooms[number]

    def called(self, number: int) -> str:
        id_ = self.person(number)
        return f"{id_[1:].partition(':')[0]} ({id_})"

    async def say(
        self,
        text: str,
        *,
        by: int = OWNER,
        name: str = "Ann",
        edits: str = "",
        files: Mapping[str, bytes] = NO_FILES,
        **more: Any,
    ) -> str:
        person, room = self._people[by], more.pop("chat", self._rooms[by])
        if self._names.get(by, "Ann") != name:
            await person.call(
                "PUT", "profile", person.id, "displayname", body={"displayname": name[:256]}
            )
            self._names[by] = name
        self._position = await self._newest()
        content: dict[str, Any] = {"edits": edits or None}
        if more.pop("is_for_us", False):
            content["mentions"] = (self._bot,)
        if more.pop("is_bot", False):
            content["msgtype"] = "m.notice"
        if (at_ms := more.pop("at_ms", None)) is not None:
            content["at_ms"] = at_ms
        for title, what in files.items():
            content |= {"msgtype": "m.file", "filename": title, "info": {"size": len(what)}}
            content["url"] = await person.upload(title, what[:1000])  # larger ones are not fetched
        return await person.say(room, text, **content, **more)

    async def _newest(self) -> str:
        client: Any = self._stack.fleet.scripts.client
        position = await client.hget(keys.cursors("matrix", "default"), self._bot)
        return position.decode() if position else ""

    async def delete(self, message: str) -> None:
        await self._people[OWNER].redact(self._rooms[OWNER], message)

    async def repeat(self) -> None:
        """Ask the homeserver again for what comes after an earlier position."""
        await self.leave()
        client: Any = self._stack.fleet.scripts.client
        await client.hset(keys.cursors("matrix", "default"), self._bot, self._position)
        await self.come_back()

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        if by != OWNER:
            await self.say(f"/allow {request}", by=by)
            await eventually(lambda: self.texts(by))
            return
        shown = [id_ for id_, text in self._shown(OWNER).items() if "asks to use" in text]
        await self._people[OWNER].react(self._rooms[OWNER], shown[-1], CHOICE_EMOJI["once"])

    def _shown(self, chat: int) -> dict[str, str]:
        """Return the texts of the bot that a chat shows, by the ids of their messages."""
        shown: dict[str, str] = {}
        for each in self._ours(self._people[chat], self._rooms[chat]):
            content, relation = each["content"], each["content"].get("m.relates_to", {})
            if each["type"] == "m.room.redaction":
                shown.pop(str(each.get("redacts") or content.get("redacts")), None)
            elif relation.get("rel_type") == "m.replace":
                shown[relation["event_id"]] = content["m.new_content"]["body"]
            elif each["type"] == "m.room.message" and "url" not in content:
                shown[each["event_id"]] = content.get("body", "")
        return shown

    def _ours(self, person: Person, room: str) -> list[dict[str, Any]]:
        return [each for each in person.events.get(room, ()) if each["sender"] == self._bot]

    def texts(self, chat: int = OWNER) -> list[str]:
        return [text for text in self._shown(chat).values() if text]

    def threads(self) -> list[str | None]:
        said = self._ours(self._people[OWNER], self.group)
        relations = [
            each["content"].get("m.relates_to", {})
            for each in said
            if each["type"] == "m.room.message"
        ]
        return [
            each["event_id"] if each.get("rel_type") == "m.thread" else None
            for each in relations
            if each.get("rel_type") != "m.replace"
        ]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        found = {}
        for each in self._ours(self._people[chat], self._rooms[chat]):
            if "url" in each["content"]:
                found[each["content"]["filename"]] = self._people[chat].downloaded(
                    each["content"]["url"]
                )
        return found

    def mention(self, number: int | None) -> str:
        return "@room" if number is None else self.person(number)

    def mentioned(self, chat: int = OWNER) -> list[str]:
        found = []
        for each in self._ours(self._people[chat], self._rooms[chat]):
            content = each["content"].get("m.new_content", each["content"])
            found += content.get("m.mentions", {}).get("user_ids", ())
            found += re.findall(r"@(?:room\b|[\w.-]+:localhost)", content.get("body", ""))
        return found

    async def is_seen(self) -> None:
        for number, person in self._people.items():
            newest = (await person.timeline(self._rooms[number]))[-1]["event_id"]

            def has_seen(person: Person, room: str, newest: str) -> bool:
                return newest in [each["event_id"] for each in person.events.get(room, ())]

            await eventually(partial(has_seen, person, self._rooms[number], newest))

    def is_busy(self, after_s: int) -> None:
        path = f"PUT .*{re.escape(self._rooms[OWNER])}/send/"
        self._faults.refuse(path, 429, after_s=after_s)

    def forgets(self) -> None:
        self._faults.lose("PUT .*/send/")

    def is_away(self) -> None:
        self._faults.refuse("", 502, times=10**6)

    def holds_files(self) -> None:
        self._faults.hold("GET .*/media/download/")

    def is_back(self) -> None:
        self._faults.end()
