"""Handler of the gateway's restart."""

from remoteclaw.config.load import load_config
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.tools.base import NoParams
from remoteclaw.tools.configuration import Restarted

__all__ = ["HANDLERS"]

#: How long a gateway is not restarted again, in milliseconds.
RESTART_MS = 30_000


async def _restart(call: Call, params: NoParams) -> Restarted:
    assert call.restart is not None, "only a gateway has this method"
    host = call.home.host_id
    answer = Restarted(
        status="restarting",
        detail=(
            f"The gateway of {host} restarts in a moment, and nothing else: workers, agents and "
            "their turns go on, and calls wait meanwhile."
        ),
    )
    async with call.restart.asking:
        was_asked = await call.fleet.calls.made(call.caller, call.id)
        if not was_asked and not call.restart.wanted.is_set():
            _check_start(call)
            note = {"type": "gateway_restarted", "tool": call.method.tool}
            await call.fleet.calls.change(
                call.caller,
                call.id,
                "restarting",
                who=f"restart:{host}",
                most=1,
                within_ms=RESTART_MS,
                note=note,
            )
            call.restart.wanted.set()
    return answer


def _check_start(call: Call) -> None:
    """Refuse the restart of a gateway that could not start again."""
    try:
        config = load_config(call.home.config_file)
    except ConfigError:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would not come back: the configuration file "
            "has a mistake in it; `remoteclaw config validate` names it.",
        ) from None
    current = call.watched_config
    if current and current.problem:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would come back without its configuration: "
            "the file is gone or empty. Try again in a moment; if it stays so, put it back.",
        )
    if current and config.redis != current.at_start.redis:
        raise CallRefused(
            "UNAVAILABLE",
            "The gateway is not restarted, because it would use another Redis than the rest: "
            "[redis] has changed, which needs a restart of everything.",
        )


HANDLERS: dict[str, Handler] = {"gateway.restart": _restart}
