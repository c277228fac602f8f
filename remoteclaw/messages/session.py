"""The key of a session: its names in text, in Redis and for agents; and its work for another."""

import functools
import hashlib
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import quote, unquote

from remoteclaw.messages.chat import ChannelMessage, channel_name

__all__ = ["DEFAULT_ACCOUNT", "EVERYONE", "ChatPlace", "SessionKey", "Work"]

#: The user of a session that all people of its chat share. It is no one's id, so no one's rights.
EVERYONE = "*"


#: The account of a channel without a name of its own: its settings are the channel's own table.
DEFAULT_ACCOUNT = "default"


@dataclass(frozen=True, slots=True)
class ChatPlace:
    """A chat, or a thread of it, of an account."""

    provider: str
    account: str
    chat: str
    thread: str | None = None

    @classmethod
    def parse(cls, text: str, thread: str | None = None) -> Self:
        """Return the place that people call CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT.

        Raises ValueError for anything else.
        """
        name, _, chat = text.partition(":")
        provider, slash, account = name.partition("/")
        if not chat or (slash and not account):
            raise ValueError(f"is {text!r}: write CHANNEL:CHAT or CHANNEL/ACCOUNT:CHAT")
        return cls(channel_name(provider), account or DEFAULT_ACCOUNT, chat, thread)

    def __str__(self) -> str:
        """Return the place as people call it."""
        account = "" if self.account == DEFAULT_ACCOUNT else f"/{self.account}"
        thread = "" if self.thread is None else f", thread {self.thread}"
        return f"{self.provider}{account}:{self.chat}{thread}"


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The key of one session: a person or a task, a place, and an agent.

    Its text ends with the `channel:user:thread` that agents see, scoped by agent, provider and
    account. A session that another one has started for a task has a fourth part, which no message
    of a chat can have.
    """

    agent: str
    provider: str
    account: str
    channel_id: str
    user: str
    thread: str | None = None
    task: str | None = None
    """The name of the task that it was started for, in the place of the session that started it."""

    @classmethod
    def of(cls, message: ChannelMessage, *, agent: str, is_shared: bool = False) -> Self:
        """Return the key of the conversation that a message belongs to.

        That is its sender's in its chat and thread, or the one that all of them share.
        """
        return cls(
            agent=agent,
            provider=message.provider,
            account=message.account,
            channel_id=message.channel_id,
            user=EVERYONE if is_shared else message.from_,
            thread=message.thread_id,
        )

    @property
    def place(self) -> ChatPlace:
        """Where its conversation is."""
        return ChatPlace(self.provider, self.account, self.channel_id, self.thread)

    @property
    def is_shared(self) -> bool:
        """Whether all people of the chat have this conversation together."""
        return self.user == EVERYONE

    def message(self, **fields: Any) -> ChannelMessage:
        """Return a message of this session's chat: its user's, unless `from_` is another sender.

        `fields` are the others of `ChannelMessage`. Raises `MessageRefused`.
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
        """Return the key whose `str()` is `text`; raises ValueError on anything else."""
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
        """Return the key as text; `parse()` reads it."""
        return _written(self)

    @property
    def conversation(self) -> str:
        """`channel:user:thread`, with `_` for no thread; behind it the task, if it has one."""
        thread = "_" if self.thread is None else _encode(self.thread)
        task = "" if self.task is None else f":{_encode(self.task)}"
        return f"{_encode(self.channel_id)}:{_encode(self.user)}:{thread}{task}"

    @property
    def sid(self) -> str:
        """128 bits of hash as 32 hexadecimal digits: the session's name in keys, paths and logs."""
        return hashlib.sha256(str(self).encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=1024)  # a turn asks for it two dozen times
def _written(key: SessionKey) -> str:
    scope = "/".join(_encode(part) for part in (key.agent, key.provider, key.account))
    return f"{scope}/{key.conversation}"


def _encode(part: str) -> str:
    # "_" alone means "no thread", so a thread that is really called "_" is written %5F.
    return "%5F" if part == "_" else quote(part, safe=EVERYONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A session that works for another one, at one moment. Times are Redis' (ms)."""

    session: SessionKey
    parent: str
    """The id of the session that has started it."""
    run: str
    """The name of its task, as the tools for tasks take it."""
    kind: Literal["task", "branch"]
    label: str | None = None
    state: str
    """running or waiting; else how it ended: done, failed, stopped or dead."""
    since_ms: int
    """When it was started."""
    age_ms: int
    """How long ago that was, or how long it took."""
    host: str | None = None
    """The host that has its agent, if that is another one than that of the session it works for."""
    tool: str = ""
    """The tool that its turn has used last."""
    argument: str = ""
    """The argument of it that tells most, without secrets."""
    said: str = ""
    """The end of what its turn has said last, without secrets."""
    progress: str = ""
    """How far it is, in its agent's own words."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state not in ("running", "waiting")
