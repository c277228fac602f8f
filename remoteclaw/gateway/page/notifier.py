"""Tells browsers by Web Push what comes in chats that their person doesn't look at.

It hears of each event of the page's chats, and sends to the browsers that have subscribed at this
gateway: a browser's push service takes nothing from another one.
"""

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Callable
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson

from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisRefused, RedisUnavailable, StateDirectoryError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.push_subscriptions import Browser
from remoteclaw.fleet.web import ChatEvent, of_chat
from remoteclaw.gateway.page.html import html_of
from remoteclaw.gateway.token_file import TokenFile
from remoteclaw.host.fetch import post
from remoteclaw.host.files import UnfitFile
from remoteclaw.host.logs import frames_of
from remoteclaw.host.terminal import one_line
from remoteclaw.host.tokens import digest

if TYPE_CHECKING:
    from remoteclaw.gateway.page.webpush import ServerKey

#: How many events of one person's chats wait to be told: the newest.
MAX_WAITING = 20
#: How much of a message is told, and of its conversation's name, in characters.
MAX_TEXT, MAX_NAME = 200, 80
#: How much of a message is looked at for it, in characters.
MAX_LOOKED_AT = 2000
#: How long a push service keeps a message for a browser that is away, in seconds.
KEPT_S = 24 * 3600
#: The tags within a word.
_INLINE = re.compile(r"</?(?:code|s|em|strong|a)\b[^>]*>")
_TAG = re.compile(r"<[^>]*>")

log = logging.getLogger(__name__)


def server_key(home: Home, *, is_made: bool) -> "ServerKey | None":
    """Return this host's key for Web Push; None if it has none, or the extra isn't installed.

    With `is_made`, it has one from now on. Raises `StateDirectoryError` if it can't be used.
    """
    file = TokenFile(home.path, "push")
    if not (is_made or file.path.exists()):
        return None
    try:
        from remoteclaw.gateway.page.webpush import ServerKey
    except ImportError:
        return None
    if is_made:
        file.create()
    return ServerKey(file.read())


class Notifier:
    """Notifies the browsers that have asked for it."""

    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        config: Callable[[], Config],
        is_seen: Callable[[str, str], bool],
    ) -> None:
        """`is_seen` returns whether a chat is in view where one is logged in with a token."""
        self._fleet = fleet
        self._home = home
        self._config = config
        self._is_seen = is_seen
        self._waiting: dict[str, deque[tuple[str, str]]] = {}

    def heard(self, tasks: asyncio.TaskGroup, chat: str, event_id: str) -> None:
        """Have an event told; a person's are in order, and nobody waits for another one's."""
        person, _ = of_chat(chat)
        if person in self._waiting:
            self._waiting[person].append((chat, event_id))
            return
        self._waiting[person] = deque([(chat, event_id)], maxlen=MAX_WAITING)
        tasks.create_task(self._serve(person))

    async def _serve(self, person: str) -> None:
        """Tell what waits for a person's browsers."""
        waiting = self._waiting[person]
        while waiting:
            chat, event_id = waiting.popleft()
            try:
                await self._tell(chat, event_id)
            except (RedisUnavailable, RedisRefused, StateDirectoryError) as error:
                log.warning("nobody is notified of a message on the page: %s", error)
            except Exception as error:  # noqa: BLE001 - any record may be in Redis
                log.error("nobody is notified of a message on the page: %s", frames_of(error))
        del self._waiting[person]

    async def _tell(self, chat: str, event_id: str) -> None:
        key = await asyncio.to_thread(server_key, self._home, is_made=False)  # it imports
        if key is None:
            return
        person, _ = of_chat(chat)
        browsers = [
            browser
            async for browser in self._fleet.pushes.of(person)
            if browser.server_key == key.public and not self._is_seen(chat, browser.token)
        ]
        event = await self._fleet.web.find(chat, event_id) if browsers else None
        if event is None or not event.about.get("notifies"):
            return
        content = orjson.dumps(await self._told(chat, event))
        async with asyncio.TaskGroup() as tasks:
            for browser in browsers:
                tasks.create_task(self._send(key, person, browser, chat, content))

    async def _told(self, chat: str, event: ChatEvent) -> dict[str, str]:
        """Return a notification, as the page's service worker shows it."""
        about, (_, conversation) = event.about, of_chat(chat)
        view = await self._fleet.sessions.view(about["sid"])
        agent = view.key.agent if view else "RemoteClaw"
        text = one_line(_plain(about["text"][:MAX_LOOKED_AT]))
        text = text or ", ".join(file["name"] for file in about["files"])
        return {
            "title": one_line((view and view.name) or agent, most=MAX_NAME),
            "body": one_line(text, most=MAX_TEXT),
            "place": f"#/c/{conversation}" if conversation else "#/",
        }

    async def _send(
        self, key: "ServerKey", person: str, browser: Browser, chat: str, content: bytes
    ) -> None:
        """Send to one browser, which is forgotten if its push service does not know it any more."""
        from remoteclaw.gateway.page.webpush import sealed

        hosts = self._config().gateway.hosts
        contact = f"https://{hosts[0] if hosts else 'localhost'}"
        headers = {
            "Authorization": key.authorization(
                browser.endpoint, contact=contact, now_s=time.time()
            ),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(KEPT_S),
            "Urgency": "high",  # else a phone that sleeps hears of it when it wakes by itself
            "Topic": digest(chat)[:32],  # of what waits for a browser, a chat's last is enough
        }
        try:
            status = await post(
                browser.endpoint, headers, sealed(content, browser.public_key, browser.auth)
            )
        except UnfitFile as problem:
            why = str(problem)
        else:
            if status in (404, 410):
                await self._fleet.pushes.remove(person, browser.token)
                return
            why = "" if 200 <= status < 300 else f"it answers with status {status}"
        if why:  # the address is a secret: whoever knows it can send there
            host = urlsplit(browser.endpoint).hostname
            log.warning("a notification was not sent by way of %s: %s", host, why)


def _plain(markdown: str) -> str:
    """Return a Markdown text without its marks."""
    return unescape(_TAG.sub(" ", _INLINE.sub("", html_of(markdown))))
