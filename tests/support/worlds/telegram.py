"""Telegram with people on it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.support.stack import Stack
from tests.support.telegram import TelegramBot, file, mentions_in
from tests.support.worlds.world import DELETED, MEGABYTE, NO_FILES, OPENED, OWNER, World


class TelegramWorld(World):
    """Telegram."""

    provider = "telegram"
    group = "-100"
    lacks = MappingProxyType(
        {
            DELETED: "Telegram reports no deletions.",
            OPENED: "Telegram's topics exist before their messages.",
        }
    )
    most = 4096
    large = 21 * MEGABYTE

    def __init__(self, stack: Stack, request: pytest.FixtureRequest) -> None:
        self._bot: TelegramBot = request.getfixturevalue("bot")
        self.settings: dict[str, Any] = {"token": self._bot.token, "api_url": self._bot.api_url}
        for chat in (OWNER, 8, int(self.group)):
            self._bot.chat(chat)

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
        sent = [
            file(name, content[:100], size=len(content)) for name, content in files.items()
        ]  # larger files are not requested
        more |= {"edits": int(edits)} if edits else {}
        if more.pop("is_for_us", False):
            text = f"@{self._bot.username} {text}"
        about = {"chat": by, **more, "by": by, "name": name, "files": sent}
        return str(self._bot.say(text, **about))

    async def repeat(self) -> None:
        self._bot.tell({"message": self._bot.chat(OWNER)[-1]})

    async def allow(self, request: str, *, by: int = OWNER) -> None:
        (shown,) = [one for one in self._bot.chat(OWNER) if "reply_markup" in one]
        self._bot.press("Allow once", chat=OWNER, message=shown["message_id"], by=by)

    def texts(self, chat: int = OWNER) -> list[str]:
        return [text for text in self._bot.texts(chat) if text]

    def files(self, chat: int = OWNER) -> Mapping[str, bytes]:
        return self._bot.files(chat)

    def mention(self, number: int | None) -> str:
        return "@everybody" if number is None else f"@person{number}"  # the bot knows no names

    def mentioned(self, chat: int = OWNER) -> list[str]:
        ours = (one for one in self._bot.chat(chat) if one["from"]["id"] == self._bot.id)
        return [name for one in ours for name in mentions_in(one)]

    def previewed(self) -> list[str]:
        calls = self._bot.calls("sendMessage", "editMessageText")
        off = '{"is_disabled": true}'
        return [call["text"] for call in calls if call.get("link_preview_options") != off]

    def is_busy(self, after_s: int) -> None:
        self._bot.fault("sendMessage", "busy", chat=OWNER, retry_after=after_s)

    def forgets(self) -> None:
        self._bot.fault("sendMessage", "lost")

    def is_away(self) -> None:
        self._bot.fault("*", "page", code=502, times=10**6)

    def holds_files(self) -> None:
        self._bot.fault("getFile", "held")

    def is_back(self) -> None:
        self._bot.release()
