"""Methods about the configuration, and the restart that some changes need."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import NoParams, Params, Result, Tool


class ConfigGetParams(Params):
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")] | None = None
    """The key of a part, such as agents.main.model; else all of it."""


class ConfigResult(Result):
    config: Any
    """The configuration, or the part at `key`, without secrets; null for a key that is not set."""
    hash: str | None = None
    """The hash of the file, for a change; absent while the file is invalid."""
    problem: str | None = None
    """Why the file isn't used; absent if it is used."""


class SchemaResult(Result):
    schema_: Annotated[dict[str, Any], Field(serialization_alias="schema")]
    """The JSON schema of the configuration, with descriptions."""


Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ApplyParams(Params):
    config: dict[str, Any]
    """All of it; a secret that is still *** stays as it is."""
    base_hash: Hash
    """The hash from gateway_config_get; refused if the file has changed since."""


class PatchParams(Params):
    patches: dict[str, Any]
    """A JSON merge patch: null removes a key, a list replaces the old one. A key may be dotted, as
    in gateway_config_get."""
    base_hash: Hash | None = None
    """The hash from gateway_config_get; refused if the file has changed since."""


class ConfigChanged(Result):
    status: Literal["applied", "approved", "unchanged", "requested"]
    """`applied`: the file is changed. `approved`: the gateway of the file's host is about to change
    it. `unchanged`: the file had these values already. `requested`: a person has to approve
    the change first."""
    hash: str
    """The hash of the file: after the change for `applied` and `approved`, else as it is now."""
    changed: tuple[str, ...] = ()
    """The keys that the change changes."""
    needs_restart: tuple[str, ...] = ()
    """The changed keys that need a restart, each with what has to be restarted; the next call or
    turn applies all others."""
    overridden_by: tuple[str, ...] = ()
    """Variables of the gateway's environment that override changed keys."""
    request_id: str | None = None
    """The id of the request with which a person approves the change."""
    detail: str | None = None
    """What happens next, in a sentence."""


class GatewayRestarting(Result):
    status: Literal["restarting"]
    detail: str
    """What happens next, in a sentence."""


#: A tool for the gateway, which is for owners.
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
        result=GatewayRestarting,
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
        description="Replace the whole configuration. To change a few settings,"
        " gateway_config_patch is simpler; its restrictions and results apply here too.",
        params=ApplyParams,
        result=ConfigChanged,
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
        result=ConfigChanged,
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
