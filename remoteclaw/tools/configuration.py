"""Methods about the configuration, and the restart that some of its changes need."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import NoParams, Params, Result, Tool


class ConfigGetParams(Params):
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")] | None = None
    """A part of it, such as agents.main.model; else all of it."""


class ConfigResult(Result):
    config: Any
    """The configuration, without what is secret; null for a key that is not set."""
    hash: str | None = None
    """Changes with the file; absent if it can't be used."""
    problem: str | None = None
    """What is wrong with the file, if it is not what holds."""


class SchemaResult(Result):
    schema_: Annotated[dict[str, Any], Field(serialization_alias="schema")]
    """The JSON schema of the configuration."""


Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ApplyParams(Params):
    config: dict[str, Any]
    """All of it; what gateway_config_get shows as *** and is left so stays."""
    base_hash: Hash
    """The hash from gateway_config_get; refused if the file has changed since."""


class PatchParams(Params):
    patches: dict[str, Any]
    """A JSON merge patch: null removes a key, a list replaces the one before."""
    base_hash: Hash | None = None
    """The hash from gateway_config_get; refused if the file has changed since."""


class Changed(Result):
    status: Literal["applied", "approved", "unchanged", "needs_approval"]
    """What is approved is made in a moment, by the gateway of the file's host."""
    hash: str
    """What the file's hash is now, or then."""
    changed: tuple[str, ...] = ()
    """The keys that are, or would be, changed."""
    needs_restart: tuple[str, ...] = ()
    """Those of them that hold after a restart, each with what has to be restarted; all others hold
    with the next call or turn."""
    overridden_by: tuple[str, ...] = ()
    """Variables of the gateway's environment that hide what was changed."""
    approval_id: str | None = None
    """Under which a person approves it, if they have to."""
    detail: str | None = None


class Restarted(Result):
    status: Literal["restarting"]
    detail: str


#: A tool for the gateway; it is for owners.
_tool = partial(Tool, groups=("gateway", "automation"), owner_only=True)

METHODS = (
    _tool(
        name="gateway.restart",
        tool="gateway_restart",
        title="Restart the gateway",
        approvable=False,
        description="Restart the gateway of this host, which answers these tools, and nothing"
        " else. Use it when `needsRestart` of a change names it. Tools work again"
        " a moment later.",
        params=NoParams,
        result=Restarted,
        scope="admin",
        effect="system",
    ),
    _tool(
        name="config.get",
        tool="gateway_config_get",
        title="Read the configuration",
        approvable=False,
        description="Read RemoteClaw's configuration, without secrets, with the `hash` for a "
        "change. Use it before a change, or to say how something is set. Example:"
        ' {"key": "queue.mode"}.',
        params=ConfigGetParams,
        result=ConfigResult,
        scope="read",
        effect="none",
    ),
    _tool(
        name="config.apply",
        tool="gateway_config_apply",
        title="Replace the configuration",
        approvable=True,
        description="Replace the whole configuration. For some settings, gateway_config_patch"
        " is simpler; what it says of agents and results holds here too.",
        params=ApplyParams,
        result=Changed,
        scope="admin",
        effect="system",
        destroys=True,
    ),
    _tool(
        name="config.patch",
        tool="gateway_config_patch",
        title="Change the configuration",
        approvable=True,
        description="Change settings of RemoteClaw ('use another model'). Agents may change "
        "only what gateway_config_schema marks with agentsMayChange. Returns what"
        " changed, what needs a restart, and whether a person must approve it. "
        'Example: {"patches": {"queue": {"mode": "steer"}}}.',
        params=PatchParams,
        result=Changed,
        scope="admin",
        effect="system",
        destroys=True,
    ),
    _tool(
        name="config.schema",
        tool="gateway_config_schema",
        title="Show all settings",
        approvable=False,
        description="Show all that can be configured, as a JSON schema with descriptions. Use"
        " it to find a setting's name and values before a change. It is long.",
        params=NoParams,
        result=SchemaResult,
        scope="read",
        effect="none",
    ),
)
