"""What can be asked about RemoteClaw itself: its configuration."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

from remoteclaw.config import Config
from remoteclaw.contract import system as contract
from remoteclaw.contract.base import NoParams
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.gateway.dispatch import Call, Handler
from remoteclaw.redaction import part, redacted

__all__ = ["HANDLERS"]


async def _get(call: Call, params: contract.ConfigGetParams) -> contract.ConfigResult:
    shown: Any = redacted(call.config)
    if params.key is not None:
        try:
            shown = part(shown, params.key)
        except ConfigError as error:
            raise CallRefused("NOT_FOUND", str(error)) from None
    digest = await asyncio.to_thread(_hash, call.home.config_file)
    return contract.ConfigResult(config=shown, hash=digest)


def _hash(file: Path) -> str:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise CallRefused("UNAVAILABLE", f"{file} can't be read: {error.strerror}.") from None
    return hashlib.sha256(content).hexdigest()


async def _schema(call: Call, params: NoParams) -> contract.SchemaResult:
    return contract.SchemaResult(schema_=Config.model_json_schema())


HANDLERS: dict[str, Handler] = {
    "config.get": _get,
    "config.schema": _schema,
}
