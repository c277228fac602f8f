"""The common parts of the APIs: what a request asks, and what it is answered with."""

import base64
import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.support.model_server.charge import Charge

#: After how long a plan's limit ends, unless a directive says otherwise.
LIMIT_S = 7200


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a request offers; parameters is its JSON schema."""

    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    #: Where codex keeps the tools of an MCP server.
    namespace: str = ""
    #: The tool that runs code, where this one is used from code alone.
    runner: "Tool | None" = None

    @property
    def full_name(self) -> str:
        """The name by which claude would offer it."""
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model uses."""

    tool: Tool
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that came with a message."""

    kind: str
    size: int

    @classmethod
    def of_base64(cls, kind: str, data: str) -> "Picture":
        return cls(kind, len(base64.b64decode(data)))

    @classmethod
    def of_url(cls, url: str) -> "Picture":
        """Read a data: URL, as OpenAI's APIs have them."""
        about, _, data = url.removeprefix("data:").partition(",")
        return cls.of_base64(about.partition(";")[0], data)


@dataclass(slots=True)
class Conversation:
    """What a request asks, whichever API it came by."""

    model: str
    streams: bool
    system: str
    tools: list[Tool]
    #: The JSON schema that the answer must fit: a CLI asks so for itself, never for its user.
    schema: dict[str, Any] | None = None
    #: The user's messages, each the texts that it has.
    users: list[list[str]] = field(default_factory=list)
    #: The results of tools since the user's last message.
    results: list[str] = field(default_factory=list)
    #: The pictures of the user's last message.
    pictures: list[Picture] = field(default_factory=list)

    @property
    def last(self) -> str:
        return self.users[-1][-1] if self.users else ""

    def hear(self, texts: Iterable[str], pictures: Iterable[Picture] = ()) -> None:
        """Take in a message from the user; one without text is none."""
        if said := [text.strip() for text in texts if text.strip()]:
            self.users.append(said)
            self.results = []
            self.pictures = list(pictures)


@dataclass(slots=True)
class Plan:
    """What one request is answered with."""

    texts: list[str] = field(default_factory=list)
    thinking: str = ""
    call: Call | None = None
    #: Anything else is a failure, which for some is about something that has a name.
    status: int = 200
    about: str = ""
    retry_after_s: str = ""
    sleep_s: float = 0
    #: What the request costs, which tells a CLI how long its conversation is.
    charge: Charge = field(default_factory=Charge.fixed)
    drip_s: float = 0
    #: What is sent before the connection is cut: "half" of the words, all "words", or all but the
    #: "end" of the stream; empty if it isn't cut.
    cut: str = ""
    #: Whether the failure comes within the stream, behind its beginning.
    fails_in_stream: bool = False

    @property
    def text(self) -> str:
        return "\n\n".join(self.texts)

    @property
    def resets_at(self) -> int:
        """When a plan's limit ends, in seconds since 1970."""
        return int(time.time() + float(self.retry_after_s or LIMIT_S))

    @property
    def retry_after(self) -> dict[str, str]:
        """The header that every API has."""
        return {"retry-after": self.retry_after_s} if self.retry_after_s else {}

    @property
    def pieces(self) -> list[str]:
        """The text in the pieces that it is streamed in: for a cut, those before it."""
        if self.drip_s > 0:
            pieces = re.findall(r"\S+\s*", self.text)
        else:
            size = 24 if len(self.text) < 4000 else 120
            pieces = [self.text[at : at + size] for at in range(0, len(self.text), size)]
        if self.cut == "half":
            # A model that is asked again never says quite the same.
            return [*pieces[: len(pieces) // 2], " or rather"]
        return pieces


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream; is_text where it carries one of the plan's pieces."""

    data: dict[str, Any] | str
    is_text: bool = False

    def encoded(self) -> bytes:
        """Return it as it is sent; APIs that give events a type repeat it as their name."""
        if isinstance(self.data, str):
            return f"data: {self.data}\n\n".encode()
        name = f"event: {self.data['type']}\n" if "type" in self.data else ""
        return f"{name}data: {json.dumps(self.data)}\n\n".encode()


class Dialect(Protocol):
    """One API: how it asks, answers and fails."""

    name: str
    paths: tuple[str, ...]

    def read(self, body: dict[str, Any], path: str) -> Conversation:
        """Return what a request to this path asks.

        Whatever CLIs put into the user's messages themselves is left out.
        """

    def whole(self, plan: Plan, model: str) -> dict[str, Any]:
        """Return the answer in one piece."""

    def stream(self, plan: Plan, model: str) -> Iterator[Event]:
        """Return the answer as events, with one for each piece of its text."""

    def error(self, plan: Plan) -> tuple[int, dict[str, Any]]:
        """Return the status and the body of a failure."""

    def headers(self, plan: Plan) -> dict[str, str]:
        """Return what a failure says in its headers."""

    def broken(self, plan: Plan) -> Iterator[Event]:
        """Return an answer that fails right behind its beginning."""


def as_tags(*names: str) -> re.Pattern[str]:
    """Return what finds the blocks that CLIs wrap their own words in."""
    return re.compile(rf"<({'|'.join(names)})(?: [^>]*)?>.*?</\1>", re.DOTALL)


def new_id(prefix: str) -> str:
    return prefix + uuid.uuid4().hex[:20]
