"""The gateway of a state directory, which the programs of its owner call over a private socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from remoteclaw import __version__
from remoteclaw.client.link import Address, GatewayMissing, GatewayRefused, Link
from remoteclaw.config.home import Home
from remoteclaw.errors import RemoteClawError, first_of
from remoteclaw.gateway.auth.token_file import token_files

#: How long a gateway may take to answer the first call, in seconds. A frozen one delays each
#: command by this.
GREETING_S = 3.0
#: How long a gateway may be away during a call, in seconds; a restart takes two or three.
AWAY_S = 10.0


def own_gateway(
    home: Home, otherwise: str = "start `remoteclaw gateway` and your own workers"
) -> tuple[Address, str]:
    """Return the address of a state directory's gateways, and the owner's token for them.

    Raises `GatewayMissing` if no gateway has ever run there; the error ends with `otherwise`.
    Raises `StateDirectoryError` if others have access to it, because they would get the token.
    """
    owners = token_files(home.check().path)[0]
    if not owners.path.exists():
        raise GatewayMissing(
            f"RemoteClaw isn't running in {home.path}: start it with `remoteclaw up`, or "
            f"{otherwise}."
        )
    return Address(sockets=home.gateways), owners.read()


@contextlib.asynccontextmanager
async def open_link(
    home: Home,
    opening: tuple[str, Mapping[str, Any]],
    *,
    on_event: Callable[[str, dict[str, Any]], None] = lambda _name, _payload: None,
    on_problem: Callable[[str], None] = lambda _text: None,
    refused_s: float = 0.0,
) -> AsyncIterator[tuple[Link, dict[str, Any]]]:
    """Yield a link to a state directory's gateway, and the result of its first call, `opening`.

    Raises `GatewayMissing` if no gateway has ever run there. Errors of the link are raised in an
    `ExceptionGroup`; a temporary refusal of the first call only after `refused_s` seconds.
    """
    address, token = own_gateway(home)
    opened: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def on_open(result: dict[str, Any]) -> None:
        if not opened.done():  # it is after a reconnection
            opened.set_result(result)

    link = Link(
        address,
        token,
        opening=opening,
        on_open=on_open,
        on_event=on_event,
        on_problem=on_problem,
    )
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(link.run(connect_s=0, refused_s=refused_s))
        yield link, await opened
        running.cancel()


async def call_own_gateway(home: Home, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Call a method of a state directory's gateway with the owner's token; return its result.

    Raises `GatewayMissing` if no gateway answers, and then nothing was called. Raises
    `GatewayRefused` for a refused call, and `RemoteClawError` if the gateway has another version,
    refuses the token, or stops answering.
    """
    is_open = False
    try:
        async with asyncio.timeout(GREETING_S) as limit:

            def on_problem(text: str) -> None:
                if not text:
                    limit.reschedule(None)
                elif limit.when() is None:
                    limit.reschedule(asyncio.get_running_loop().time() + AWAY_S)

            async with open_link(home, ("health", {}), on_problem=on_problem) as (link, health):
                is_open = True
                if health["version"] != __version__:
                    raise _other_version(f"version {health['version']}")
                return await link.ask(method, params)
    except TimeoutError:
        if not is_open:
            raise GatewayMissing("The gateway does not answer.") from None
        raise RemoteClawError(
            "The gateway has stopped answering. Whether the command took effect is unknown: look "
            "before you repeat it."
        ) from None
    except ExceptionGroup as group:
        raise _error_of(first_of(group), home, is_open=is_open) from None


def _error_of(error: Exception, home: Home, *, is_open: bool) -> Exception:
    """Return the error to raise for an error of the link."""
    if is_open or not isinstance(error, GatewayRefused) or error.is_temporary:
        return error
    if error.code == "UNAUTHORIZED":
        return RemoteClawError(
            f"The gateway of {home.path} refuses the token {token_files(home.path)[0].path}: "
            "restart RemoteClaw."
        )
    return _other_version("another version")  # it speaks another protocol


def _other_version(theirs: str) -> RemoteClawError:
    return RemoteClawError(
        f"The gateway that runs here has {theirs}, and this command has {__version__}: restart "
        "RemoteClaw."
    )
