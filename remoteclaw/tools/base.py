"""The declaration of a method or a tool: its parameters, result, scope and effect."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from remoteclaw.described import DescribedModel

#: The rights of an operator's token; each scope includes those before it. `terminal` amounts to a
#: shell, because typing into an agent's own program can run any command.
Scope = Literal["read", "write", "terminal", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
#: What a call changes: nothing; it sends a message; it changes something in a chat (`operation`), a
#: session, a cron job, or RemoteClaw itself (`system`).
Effect = Literal["none", "message", "operation", "session", "job", "system"]

#: The maximum length of a message's text, in characters.
MAX_TEXT_CHARS = 100_000


def check_characters(value: Any) -> Any:
    """Return `value`; raise ValueError if it is an id with control or invisible characters."""
    if isinstance(value, str) and not value.isprintable():
        raise ValueError("contains a character that no id may contain")
    return value


Id = Annotated[str, BeforeValidator(check_characters), Field(min_length=1, max_length=512)]
MessageId = Annotated[Id, Field(description="The message's id in the chat.")]
ChatId = Annotated[Id, Field(description="The id of a chat.")]
Target = Annotated[
    Id,
    Field(description="A chat's id on this channel, or CHANNEL:CHAT, such as telegram:12345."),
]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
Limit = Annotated[int, Field(ge=1, le=1000)]
#: A person's message. Its maximum length, in characters, is the number of
#: `messages.MAX_TEXT_BYTES`, which refuses a longer text with its own message.
MessageText = Annotated[str, Field(max_length=1024 * 1024)]
Blob = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Params(DescribedModel):
    """The base class of parameters: camel case on the wire, and unknown names are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,
        alias_generator=to_camel,
        # People's messages must not appear in errors and logs.
        hide_input_in_errors=True,
    )


class NoParams(Params):
    """No parameters."""


class SentFile(Params):
    name: str
    mime_type: str
    size: int
    blob: Blob


class Result(DescribedModel):
    """The base class of results, in camel case on the wire."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=False,
        serialize_by_alias=True,
    )

    @classmethod
    def of(cls, source: object, **more: Any) -> Self:
        """Return a result whose fields are in `more`, or else attributes of `source`."""
        names = cls.model_fields.keys() - more.keys()
        return cls(**{name: getattr(source, name) for name in names}, **more)

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object, in which a null optional field is left out."""
        values = self.model_dump(mode="json", exclude_none=True)
        for name, field in type(self).model_fields.items():
            if field.is_required():
                values.setdefault(field.serialization_alias or name, None)
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A method of the gateway, which clients can call through any of its doors."""

    name: str
    """The method's name over WebSocket."""
    description: str
    """What the method does, for models and for people."""
    params: type[Params]
    result: type[Result]
    scope: Scope
    """The scope that an operator's token needs."""
    effect: Effect = "none"
    tool: str | None = None
    """The method's name as a tool of agents; None if only operators have it. A method with a tool
    is declared as `Tool`."""
    destroys: bool = False
    """Whether a call removes or overwrites something."""
    is_about_session: bool = False
    """Whether a call is about the caller's session, which operators have to name."""

    def __post_init__(self) -> None:
        """Raise `TypeError` for a declaration that doesn't say who may call the method."""
        if self.tool is not None and not isinstance(self, Tool):
            raise TypeError(
                f"{self.tool} is a tool: declare it as a Tool, which says its groups, whether it "
                "is for owners only, and whether it can wait for approval."
            )
        if self.scope not in get_args(Scope):
            raise TypeError(f"{self.name} has no scope: declare {', '.join(get_args(Scope))}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Method):
    """A method that agents have as a tool, with what the tool policy needs to know about it."""

    tool: str
    """The tool's name for models."""
    title: str
    """The tool's name for people."""
    effect: Effect
    """What a call changes; a branch may use only tools that change nothing."""
    groups: tuple[str, ...]
    """The groups of the tool, without the prefix that they have in a policy: `cron` is `group:cron`
    there. Each tool is also in the group `remoteclaw`."""
    owner_only: bool
    """Whether an agent may use the tool only on behalf of owners."""
    approvable: bool
    """Whether a call can wait until a person approves it."""
    agent_params: type[Params] | None = None
    """The parameters that agents have, if `params`, a subclass of it, has more for operators."""

    def __post_init__(self) -> None:
        """Raise `TypeError` for a tool without a group."""
        super(Tool, self).__post_init__()
        if not self.groups:
            raise TypeError(f"{self.tool} is in no group: declare at least one.")

    @property
    def listed_params(self) -> type[Params]:
        """The parameters that agents have."""
        return self.agent_params or self.params

    @property
    def names(self) -> frozenset[str]:
        """The entries of a policy that match the tool: its own name and those of its groups."""
        return self.group_names | {self.tool}

    @property
    def group_names(self) -> frozenset[str]:
        """The tool's groups, with the prefix that they have in a policy."""
        return frozenset(f"group:{name}" for name in (*self.groups, "remoteclaw"))
