"""The declaration of a method: its parameters, result, scope and effect."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from remoteclaw.described import DescribedModel

#: What an operator's token may do; each includes those before it. `terminal` is a shell: who types
#: into an agent's own program may have it run any command.
Scope = Literal["read", "write", "terminal", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
#: What a call changes: nothing, what is sent to a chat, something in a chat, a session, a cron job,
#: or RemoteClaw itself.
Effect = Literal["none", "message", "operation", "session", "job", "system"]

#: The longest text of one message, in characters.
MAX_TEXT_CHARS = 100_000


def check_characters(value: Any) -> Any:
    """Refuse control characters and lone surrogates in an id."""
    if isinstance(value, str) and not value.isprintable():
        raise ValueError("contains a character that no id may contain")
    return value


Id = Annotated[str, BeforeValidator(check_characters), Field(min_length=1, max_length=512)]
MessageId = Annotated[Id, Field(description="The message's id in the chat.")]
ChatId = Annotated[Id, Field(description="The id of a chat.")]
Target = Annotated[
    Id,
    Field(description="A chat's id here, or CHANNEL:CHAT, such as telegram:12345."),
]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]
Limit = Annotated[int, Field(ge=1, le=1000)]


class Params(DescribedModel):
    """The parameters of a method, in camel case; unknown names are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,
        alias_generator=to_camel,
        # A person's words don't belong in errors and logs.
        hide_input_in_errors=True,
    )


class NoParams(Params):
    """No parameters."""


class Result(DescribedModel):
    """What a method returns, in camel case."""

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
        """Return a result with a source's attributes of the same names, but for those in `more`."""
        names = cls.model_fields.keys() - more.keys()
        return cls(**{name: getattr(source, name) for name in names}, **more)

    def told(self) -> dict[str, Any]:
        """Return it as JSON, without absent values; a required value that is null stays."""
        told = self.model_dump(mode="json", exclude_none=True)
        for name, field in type(self).model_fields.items():
            if field.is_required():
                told.setdefault(field.serialization_alias or name, None)
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One thing that can be asked of the gateway, through any of its doors."""

    name: str
    """Its name over WebSocket."""
    description: str
    """What it does, for models and for people."""
    params: type[Params]
    result: type[Result]
    scope: Scope
    """What an operator's token needs."""
    effect: Effect = "none"
    tool: str | None = None
    """Its name as a tool of agents; None for operators' methods. Tools are declared as `Tool`."""
    destroys: bool = False
    """Whether it removes or overwrites something."""
    is_about_session: bool = False
    """Whether it is about the session of the call, which operators have to name."""

    def __post_init__(self) -> None:
        """Raise `TypeError` for a declaration that lacks what decides who may call it."""
        if self.tool is not None and not isinstance(self, Tool):
            raise TypeError(
                f"{self.tool} is a tool: declare it as a Tool, which says its groups, whether it "
                "is for owners only, and whether it can wait for approval."
            )
        if self.scope not in get_args(Scope):
            raise TypeError(f"{self.name} has no scope: declare {', '.join(get_args(Scope))}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Method):
    """A method that agents have as a tool, with everything that policy knows of it."""

    tool: str
    title: str
    """The tool's name for people."""
    effect: Effect
    """What it changes: a branch may use only what changes nothing."""
    groups: tuple[str, ...]
    """Names by which a policy means it with others: `cron` is `group:cron` there. `remoteclaw`, the
    group of all tools, is implied."""
    owner_only: bool
    """Whether an agent may use it for owners alone."""
    approvable: bool
    """Whether its calls can be kept until a person approves them."""

    def __post_init__(self) -> None:
        """Raise `TypeError` for a tool that is in no group."""
        super(Tool, self).__post_init__()
        if not self.groups:
            raise TypeError(f"{self.tool} is in no group: declare at least one.")

    @property
    def names(self) -> frozenset[str]:
        """What a policy's entry may be to mean it: its own name, and its groups'."""
        return self.group_names | {self.tool}

    @property
    def group_names(self) -> frozenset[str]:
        """Its groups, as a policy's entries name them."""
        return frozenset(f"group:{name}" for name in (*self.groups, "remoteclaw"))
