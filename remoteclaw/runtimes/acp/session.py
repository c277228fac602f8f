"""Sessions over ACP: the models and modes that a session offers, and the requests that choose them.

`session_info` is the agent's result of the request that began, loaded or forked the session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoteclaw.messages import McpServerConfig
from remoteclaw.runtimes.base import server_environment
from remoteclaw.runtimes.wire import mapping, mappings, text

#: A method and its parameters.
Request = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class SessionModel:
    """The model of a session, and the way to set it."""

    current: str = ""
    """The model; empty if the agent does not report it."""
    option: str = ""
    """The id of the config option that sets it; empty if there is none."""

    @classmethod
    def of(cls, session_info: Mapping[str, Any]) -> "SessionModel":
        """Return the model of a session that was begun, loaded or forked."""
        if option := _option(session_info, "model"):
            return cls(text(option.get("currentValue")), text(option.get("id")))
        return cls(text(mapping(session_info.get("models")).get("currentModelId")))

    def request(self, session: str, model: str) -> Request | None:
        """Return the request that sets the model of a session; None if it is set already.

        A needless request would do harm: some agents save the chosen model for all sessions.
        """
        if model == self.current:
            return None
        if self.option:
            return _set_option(session, self.option, model)
        return "session/set_model", {"sessionId": session, "modelId": model}


def mode_request(
    session: str, modes: Sequence[str], session_info: Mapping[str, Any]
) -> Request | None:
    """Return the request that sets the first of `modes` that is offered; None if none is."""
    if option := _option(session_info, "mode"):
        offered = {text(value.get("value")) for value in mappings(option.get("options"))}
    else:
        available = mappings(mapping(session_info.get("modes")).get("availableModes"))
        offered = {text(mode.get("id")) for mode in available}
    for mode in modes:
        if mode in offered and option:
            return _set_option(session, text(option.get("id")), mode)
        if mode in offered:
            return "session/set_mode", {"sessionId": session, "modeId": mode}
    return None


def _option(session_info: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the config option `name`, which newer agents offer instead of `models` and `modes`."""
    for option in mappings(session_info.get("configOptions")):
        if name in (option.get("category"), option.get("id")):
            return option
    return {}


def _set_option(session: str, option: str, value: str) -> Request:
    choice = {"configId": option, "value": value}
    return "session/set_config_option", {"sessionId": session, **choice}


def server_description(name: str, server: McpServerConfig, run_dir: Path) -> dict[str, Any]:
    """Return the description of an MCP server in ACP's format."""
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
