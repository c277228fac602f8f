"""What can be asked about RemoteClaw itself: its configuration."""

import asyncio
from typing import Any

from remoteclaw.config.edit import ConfigFile, Version
from remoteclaw.config.model import Config
from remoteclaw.config.redact import part, redacted
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.gateway.dispatch import Call, Handler
from remoteclaw.tools import system as contract
from remoteclaw.tools.base import NoParams

__all__ = ["HANDLERS"]


async def _get(call: Call, params: contract.ConfigGetParams) -> contract.ConfigResult:
    version, config = await _read(call)
    shown: Any = redacted(config or call.config)
    if params.key is not None:
        try:
            shown = part(shown, params.key)
        except ConfigError as error:
            raise CallRefused("NOT_FOUND", str(error)) from None
    if config is None:
        return contract.ConfigResult(
            config=shown,
            problem="The configuration file can't be used now, or is gone or empty: this is what "
            "holds nevertheless. A person has to put the file right before it can be changed.",
        )
    return contract.ConfigResult(config=shown, hash=version.hash)


async def _read(call: Call) -> tuple[Version, Config | None]:
    """Return what the file has, and what that means; None if it is not what holds.

    Both are of one reading: a hash of something newer would have that replaced unseen.
    """
    file = ConfigFile(call.home.config_file)
    try:
        version = await asyncio.to_thread(file.read)
    except ConfigError:
        return Version(b""), None
    if call.has_lost(version.content):
        return version, None
    return version, (await asyncio.to_thread(file.usable, version))[0]


async def _schema(call: Call, params: NoParams) -> contract.SchemaResult:
    return contract.SchemaResult(schema_=Config.model_json_schema())


HANDLERS: dict[str, Handler] = {
    "config.get": _get,
    "config.schema": _schema,
}
