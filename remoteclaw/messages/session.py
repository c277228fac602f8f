"""The key of a session, in its forms for text, Redis and agents; and the status of a task."""

import functools
import hashlib
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import quote, unquote

from remoteclaw.messages.chat import ChannelMessage, ChatPlace, person

__all__ = ["EVERYONE", "SessionKey", "TaskStatus", "key_part"]

#: The user of a session that all people of its chat share. It is nobody's id, so it has no rights.
EVERYONE = "*"


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The key of one session: an agent, a place, and a person or a task.

    Its text is AGENT/PROVIDER/ACCOUNT/CHANNEL:USER:THREAD; agents see the part after the last
    slash. A task's session has the task's name as a fourth part after the last slash, which no
    message of a chat can have.
    """

    agent: str
    provider: str
    account: str
    channel_id: str
    user: str
    thread: str | None = None
    task: str | None = None
    """The name of the task for which another session started this one; None for other sessions."""

    @classmethod
    def of(
        cls,
        message: ChannelMessage,
        *,
        agent: str,
        is_shared: bool = False,
        of_thread: bool = True,
    ) -> Self:
        """Return the key of the session to which a message belongs.

        This is its sender's session in its chat and thread or, with `is_shared`, the session that
        all people of the chat share. Without `of_thread`, all threads of the chat belong to it.
        """
        return cls(
            agent=agent,
            provider=message.provider,
            account=message.account,
            channel_id=message.channel_id,
            user=EVERYONE if is_shared else message.from_,
            thread=message.thread_id if of_thread else None,
        )

    @property
    def place(self) -> ChatPlace:
        """The chat or thread that the key names; a turn is answered in `Turn.place`."""
        return ChatPlace(self.provider, self.account, self.channel_id, self.thread)

    @property
    def person(self) -> str:
        """The session's user, as CHANNEL:ID."""
        return person(self.provider, self.user)

    @property
    def is_shared(self) -> bool:
        """Whether all people of the chat share this session."""
        return self.user == EVERYONE

    def message(self, **fields: Any) -> ChannelMessage:
        """Return a message in this session's chat, from its user unless `fields` has a `from_`.

        `fields` are fields of `ChannelMessage`. Raises `MessageRefused`.
        """
        place = {
            "from_": self.user,
            "channel_id": self.channel_id,
            "provider": self.provider,
            "account": self.account,
            "thread_id": self.thread,
        }
        return ChannelMessage.checked(**place | fields)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the key whose `str()` is `text`; raise ValueError if there is no such key."""
        agent, provider, account, rest = text.split("/")
        channel_id, user, thread, *task = rest.split(":")
        if len(task) > 1 or task == [""]:
            raise ValueError("too many parts to unpack")
        return cls(
            agent=unquote(agent),
            provider=unquote(provider),
            account=unquote(account),
            channel_id=unquote(channel_id),
            user=unquote(user),
            thread=None if thread == "_" else unquote(thread),
            task=unquote(task[0]) if task else None,
        )

    def __str__(self) -> str:
        """Return the key in the notation that `parse()` reads."""
        return _text_of(self)

    @property
    def conversation(self) -> str:
        """`channel:user:thread`, with `_` for no thread, and `:task` for a task's session."""
        thread = "_" if self.thread is None else key_part(self.thread)
        task = "" if self.task is None else f":{key_part(self.task)}"
        return f"{key_part(self.channel_id)}:{key_part(self.user)}:{thread}{task}"

    @property
    def sid(self) -> str:
        """The session's name in Redis keys, paths and logs: 32 hexadecimal digits of a hash."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=1024)  # a turn calls this two dozen times
def _text_of(key: SessionKey) -> str:
    scope = "/".join(key_part(part) for part in (key.agent, key.provider, key.account))
    return f"{scope}/{key.conversation}"


def key_part(part: str) -> str:
    """Return a name as a part of a session's key."""
    # "_" alone means "no thread", so a thread with the name "_" is written as %5F.
    return "%5F" if part == "_" else quote(part, safe=EVERYONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """The status of a task or branch at one moment."""

    session: SessionKey
    """The session that works on the task."""
    parent: str
    """The id of the session that started the task."""
    run: str
    """The run id of the task, which the tools for tasks take."""
    kind: Literal["task", "branch"]
    label: str | None = None
    state: str
    """`running` or `waiting`; after its end `done`, `failed`, `stopped` or `dead`."""
    since_ms: int
    """The start of the task, in milliseconds since 1970 on Redis' clock."""
    age_ms: int
    """The time since the start; after the end of the task, its duration."""
    host: str | None = None
    """The host of the task's agent; None if it is the host of the session at the tree's root."""
    tool: str = ""
    """The last tool that the running turn used."""
    argument: str = ""
    """The most informative argument of that tool, without secrets."""
    last_text: str = ""
    """The end of the text that the running turn has produced, without secrets."""
    progress: str = ""
    """The progress that the agent reported, in its own words."""

    @property
    def is_over(self) -> bool:
        """Whether the task has ended."""
        return self.state not in ("running", "waiting")
