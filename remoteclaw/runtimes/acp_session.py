"""Sessions over ACP: what an agent offers with one, and the requests that choose from it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remoteclaw.messages import McpServerConfig
from remoteclaw.runtimes.base import server_environment
from remoteclaw.runtimes.wire import mapping, mappings, text

#: A method and its parameters.
Request = tuple[str, dict[str, Any]]


def model_of(begun: Mapping[str, Any]) -> str:
    """Return the model that a session has begun with."""
    option = _option(begun, "model")
    current = text(option.get("currentValue"))
    return current if option else text(mapping(begun.get("models")).get("currentModelId"))


def model_request(session: str, model: str, begun: Mapping[str, Any]) -> Request | None:
    """Return the request that chooses a model by its id; None where the session has it.

    Some agents write down what they are asked for, for all sessions.
    """
    if model == model_of(begun):
        return None
    if option := _option(begun, "model"):
        return _set_option(session, option, model)
    return "session/set_model", {"sessionId": session, "modelId": model}


def mode_request(session: str, modes: Sequence[str], begun: Mapping[str, Any]) -> Request | None:
    """Return the request that chooses the first of these modes; None where it is offered none."""
    if option := _option(begun, "mode"):
        offered = {text(value.get("value")) for value in mappings(option.get("options"))}
    else:
        available = mappings(mapping(begun.get("modes")).get("availableModes"))
        offered = {text(mode.get("id")) for mode in available}
    for mode in modes:
        if mode in offered and option:
            return _set_option(session, option, mode)
        if mode in offered:
            return "session/set_mode", {"sessionId": session, "modeId": mode}
    return None


def _option(begun: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the setting of a name: the protocol has two ways, and this is the newer one."""
    for option in mappings(begun.get("configOptions")):
        if name in (option.get("category"), option.get("id")):
            return option
    return {}


def _set_option(session: str, option: Mapping[str, Any], value: str) -> Request:
    choice = {"configId": text(option.get("id")), "value": value}
    return "session/set_config_option", {"sessionId": session, **choice}


def described(name: str, server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return an MCP server as ACP wants it described."""
    if server.url is not None:
        headers = [{"name": key, "value": value} for key, value in server.headers.items()]
        return {"type": "http", "name": name, "url": server.url, "headers": headers}
    env = server_environment(server, run_dir)
    return {
        "name": name,
        "command": server.command,
        "args": list(server.args),
        "env": [{"name": key, "value": value} for key, value in env.items()],
    }
