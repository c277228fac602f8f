"""Handler of the gateway's restart."""

from remoteclaw.config.edit import ConfigFile
from remoteclaw.errors import CallRefused
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.methods.configuration import config_in
from remoteclaw.tools.base import NoParams
from remoteclaw.tools.configuration import Restarted

__all__ = ["HANDLERS"]


async def _restart(call: Call, params: NoParams) -> Restarted:
    assert call.restart is not None, "only a gateway has this method"
    if await call.fleet.calls.made(call.caller, call.id) is None:
        await _check_start(call)
        note = {"type": "gateway_restarted", "tool": call.method.tool}
        await call.fleet.calls.change(call.caller, call.id, "restarting", note=note)
        call.restart.set()
    return Restarted(
        status="restarting",
        detail=(
            f"The gateway of {call.home.host_id} restarts in a moment, and nothing else: workers, "
            "agents and their turns go on, and calls wait meanwhile."
        ),
    )


async def _check_start(call: Call) -> None:
    """Refuse the restart of a gateway that could not start again, or not as part of the rest."""
    file = ConfigFile(call.home.config_file)
    config = await config_in(call, file, file.read())
    if config is None:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would not come back as it is: the "
            "configuration file is gone, empty or has a mistake in it; `remoteclaw config "
            "validate` names it.",
        )
    if (current := call.watched_config) and config.redis != current.at_start.redis:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would use another Redis than the rest: "
            "[redis] has changed, which needs a restart of everything.",
        )


HANDLERS: dict[str, Handler] = {"gateway.restart": _restart}
