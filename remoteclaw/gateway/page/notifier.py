"""Notifies browsers by Web Push of messages and waiting terminals that their user doesn't see.

Each gateway receives all events of the page's chats, and notifies the browsers that have subscribed
at this gateway: a browser's push service accepts messages only from the server that it subscribed
to. When a terminal waits for a person, the gateway that shows it notifies the user who has opened
it, and the user of its chat on the page; what that chat gets about it is then not notified again.
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

from remoteclaw.channels.web.profile import CHANNEL, person_id
from remoteclaw.config.home import Home
from remoteclaw.config.model import Config
from remoteclaw.errors import RedisRefused, RedisUnavailable, StateDirectoryError
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.push_subscriptions import PushSubscription
from remoteclaw.fleet.terminals.state import TerminalRecord
from remoteclaw.fleet.web import ChatEvent, parse_chat_name
from remoteclaw.gateway.auth.token_file import TokenFile
from remoteclaw.gateway.conversations import Conversations
from remoteclaw.gateway.feeds import EventReceiver
from remoteclaw.gateway.page.html import html_of
from remoteclaw.gateway.terminals.host_terminals import HostTerminals
from remoteclaw.host.fetch import post
from remoteclaw.host.files import UnfitFile
from remoteclaw.host.logs import frames_of
from remoteclaw.host.terminal import one_line
from remoteclaw.host.tokens import digest
from remoteclaw.tty.handover import needs_person_notice

if TYPE_CHECKING:
    from remoteclaw.gateway.page.webpush import ServerKey

#: How many events are queued for each person; older ones are dropped.
MAX_QUEUED = 20
#: The longest text and title of a notification, in characters.
MAX_TEXT_CHARS, MAX_TITLE_CHARS = 200, 80
#: How many characters of a message are converted to obtain the text.
MAX_SOURCE_CHARS = 2000
#: How long a push service keeps a message for a browser that is not reachable, in seconds.
KEPT_S = 24 * 3600
#: The tags that do not separate words.
_INLINE = re.compile(r"</?(?:code|s|em|strong|a)\b[^>]*>")
_TAG = re.compile(r"<[^>]*>")

log = logging.getLogger(__name__)


def server_key(home: Home, *, create: bool) -> "ServerKey | None":
    """Return this host's key for Web Push; None if it has none, or the extra isn't installed.

    With `create`, a missing key is created. Raises `StateDirectoryError` if it can't be used.
    """
    file = TokenFile(home.path, "push")
    if not (create or file.path.exists()):
        return None
    try:
        from remoteclaw.gateway.page.webpush import ServerKey
    except ImportError:
        return None
    if create:
        file.create()
    return ServerKey(file.read())


class Notifier:
    """Notifies the browsers that have subscribed."""

    def __init__(
        self,
        fleet: Fleet,
        home: Home,
        config: Callable[[], Config],
        is_seen: Callable[[str, str], bool],
        terminals: HostTerminals,
        is_watching: Callable[[EventReceiver, str], bool],
    ) -> None:
        """`is_seen(chat, token)` returns whether a chat is in view in the browser with a token.

        `is_watching(connection, token)` returns whether a connection is that of this browser, and
        its page is in view.
        """
        self._fleet = fleet
        self._home = home
        self._config = config
        self._is_seen = is_seen
        self._terminals = terminals
        self._is_watching = is_watching
        self._activities: dict[str, str] = {}
        """What each terminal that this gateway shows did last, as far as it is known."""
        self._waits: dict[str, str] = {}
        """The notice of each terminal's last wait for a person."""
        self._queues: dict[str, deque[tuple[str, str]]] = {}
        """The chats and ids of each person's queued events."""

    def enqueue(self, tasks: asyncio.TaskGroup, chat: str, event_id: str) -> None:
        """Queue an event. Each person's events are handled in order, in a task per person."""
        person, _ = parse_chat_name(chat)
        if person in self._queues:
            self._queues[person].append((chat, event_id))
            return
        self._queues[person] = deque([(chat, event_id)], maxlen=MAX_QUEUED)
        tasks.create_task(self._handle_queue(person))

    async def _handle_queue(self, person: str) -> None:
        """Notify a person's browsers of the queued events."""
        queue = self._queues[person]
        while queue:
            chat, event_id = queue.popleft()
            try:
                await self._notify(chat, event_id)
            except (RedisUnavailable, RedisRefused, StateDirectoryError) as error:
                log.warning("no browser is notified of a message on the page: %s", error)
            except Exception as error:  # noqa: BLE001 - any record may be in Redis
                log.error("no browser is notified of a message on the page: %s", frames_of(error))
        del self._queues[person]

    def note_terminal(self, tasks: asyncio.TaskGroup, sid: str) -> None:
        """Notify once of a terminal that has begun to wait for a person, in a task."""
        record = self._terminals.held_record(sid)
        if record is None:
            self._activities.pop(sid, None)
            self._waits.pop(sid, None)
            return
        before = self._activities.get(sid)
        if record.activity == "unknown" and before:  # does not mean that the dialog is closed
            return
        self._activities[sid] = record.activity
        if record.activity == "waiting":
            self._waits[sid] = needs_person_notice(record.waiting_for)
        # A gateway that begins with a waiting terminal may follow one that has notified already.
        if record.activity == "waiting" and before not in (None, "waiting"):
            tasks.create_task(self._notify_of_terminal(record))

    async def _notify_of_terminal(self, record: TerminalRecord) -> None:
        people = {person_id(record.by, is_admin=is_admin) for is_admin in (True, False)}
        if record.key.provider == CHANNEL:
            people.add(record.key.user)
        place = f"#/s/{record.sid}/terminal"
        try:
            key = await asyncio.to_thread(server_key, self._home, create=False)
            if key is None:
                return
            view = await self._fleet.sessions.view(record.sid)
            text = needs_person_notice(record.waiting_for)
            content = _content((view and view.name) or record.agent, text, place)
            watching = self._terminals.connections_of(record.sid)
            for person in people:
                async for browser in self._fleet.push_subscriptions.of(person):
                    is_watched = any(self._is_watching(one, browser.token) for one in watching)
                    is_for = record.agent in (browser.agents or (record.agent,))
                    if browser.server_key == key.public and is_for and not is_watched:
                        await self._send(key, person, browser, place, content)
        except (RedisUnavailable, RedisRefused, StateDirectoryError) as error:
            log.warning("no browser is notified of a waiting terminal: %s", error)
        except Exception as error:  # noqa: BLE001 - any record may be in Redis
            log.error("no browser is notified of a waiting terminal: %s", frames_of(error))

    def _is_of_waiting_terminal(self, event: ChatEvent) -> bool:
        """Whether an event is of a session whose terminal waits here, which was notified of.

        The wait may be over when its notice is handled.
        """
        sid = event.about["sid"]
        record = self._terminals.held_record(sid)
        is_waiting = record is not None and record.activity == "waiting"
        return is_waiting or event.about["text"] == self._waits.get(sid)

    async def _notify(self, chat: str, event_id: str) -> None:
        key = await asyncio.to_thread(server_key, self._home, create=False)  # imports are slow
        if key is None:
            return
        person, conversation = parse_chat_name(chat)
        browsers = [
            browser
            async for browser in self._fleet.push_subscriptions.of(person)
            if browser.server_key == key.public and not self._is_seen(chat, browser.token)
        ]
        event = await self._fleet.web.find(chat, event_id) if browsers else None
        if event is None or not event.about.get("notifies"):
            return
        if self._is_of_waiting_terminal(event):
            return
        agent = await Conversations(self._fleet.web, person, self._config()).agent_of(conversation)
        content = await self._notification_of(chat, event)
        async with asyncio.TaskGroup() as tasks:
            for browser in (each for each in browsers if agent in (each.agents or (agent,))):
                tasks.create_task(self._send(key, person, browser, chat, content))

    async def _notification_of(self, chat: str, event: ChatEvent) -> bytes:
        """Return the notification of an event, for the page's service worker."""
        about, (_, conversation) = event.about, parse_chat_name(chat)
        view = await self._fleet.sessions.view(about["sid"])
        agent = view.key.agent if view else "RemoteClaw"
        text = one_line(_plain(about["text"][:MAX_SOURCE_CHARS]))
        text = text or ", ".join(file["name"] for file in about["files"])
        place = f"#/c/{conversation}" if conversation else "#/"
        return _content((view and view.name) or agent, text, place)

    async def _send(
        self, key: "ServerKey", person: str, browser: PushSubscription, about: str, content: bytes
    ) -> None:
        """Send to one browser; remove its subscription if the push service does not know it.

        A message replaces an undelivered one that is `about` the same.
        """
        from remoteclaw.gateway.page.webpush import encrypt_message

        hosts = self._config().gateway.hosts
        contact = f"https://{hosts[0] if hosts else 'localhost'}"
        headers = {
            "Authorization": key.authorization(
                browser.endpoint, contact=contact, now_s=time.time()
            ),
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(KEPT_S),
            "Urgency": "high",  # otherwise a sleeping phone is notified when it wakes next
            "Topic": digest(about)[:32],
        }
        try:
            message = encrypt_message(content, browser.public_key, browser.auth)
            status = await post(browser.endpoint, headers, message)
        except UnfitFile as error:
            problem = str(error)
        else:
            if status in (404, 410):
                await self._fleet.push_subscriptions.remove(person, browser.token)
                return
            problem = "" if 200 <= status < 300 else f"it answers with status {status}"
        if problem:  # the whole address is secret: anyone who knows it can send to the browser
            host = urlsplit(browser.endpoint).hostname
            log.warning("a notification was not sent through %s: %s", host, problem)


def _content(title: str, text: str, place: str) -> bytes:
    """Return a notification for the page's service worker; a tap opens `place`."""
    return orjson.dumps(
        {
            "title": one_line(title, max_chars=MAX_TITLE_CHARS),
            "body": one_line(text, max_chars=MAX_TEXT_CHARS),
            "place": place,
        }
    )


def _plain(markdown: str) -> str:
    """Return a Markdown text as plain text."""
    return unescape(_TAG.sub(" ", _INLINE.sub("", html_of(markdown))))
