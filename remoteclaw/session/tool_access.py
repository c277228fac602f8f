"""Tool access: an agent process' token for RemoteClaw's tools, and the gateway's address.

`config.tool_policy` decides which tools a session has.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection
from urllib.parse import urlsplit

from remoteclaw.connector import connector_launch
from remoteclaw.fleet.turns.lease import Lease
from remoteclaw.host.tokens import digest, new_agent_token
from remoteclaw.messages import McpServerConfig

#: Timeout for connecting to the gateway, which is on this machine, in seconds.
REACH_S = 1.0

log = logging.getLogger(__name__)


class ToolAccess:
    """Grants a session's agents access to the gateway's tools while the lease is held."""

    def __init__(self, lease: Lease, *, transport: str) -> None:
        self._lease = lease
        self._transport = transport

    @property
    def is_available(self) -> bool:
        """Whether the host has had a gateway within the last half minute."""
        return self._lease.gateway is not None

    async def are_missing(self) -> bool:
        """Whether the new agent has not asked for its tools, and this turn is to report that."""
        return await self._lease.are_tools_missing()

    async def server(self, tools: Collection[str]) -> McpServerConfig | None:
        """Return the MCP server for a new agent process; None if the gateway can't be reached.

        Revokes the tokens of earlier agent processes.
        """
        address = self._lease.gateway
        if address is None or not await _accepts_connections(address):
            log.warning("the gateway can't be reached: the agent has none of its tools")
            await self._lease.grant("", ())
            return None
        token = new_agent_token(self._lease.sid)
        await self._lease.grant(digest(token), tools)
        if self._transport == "http":
            headers = {"Authorization": f"Bearer {token}"}
            return McpServerConfig(url=f"{address}/mcp", headers=headers)
        session = self._lease.session
        command, *args = connector_launch()
        env = {
            "REMOTECLAW_GATEWAY_URL": address,
            "REMOTECLAW_GATEWAY_TOKEN": token,
            "REMOTECLAW_SESSION_KEY": str(session),
            "REMOTECLAW_CHANNEL": session.provider,
            # Despite its name, this is the sender's id.
            "REMOTECLAW_ACCOUNT_ID": session.user,
            "REMOTECLAW_TO": session.channel_id,
            **({"REMOTECLAW_THREAD_ID": session.thread} if session.thread else {}),
        }
        return McpServerConfig(command=command, args=tuple(args), env=env)


async def _accepts_connections(address: str) -> bool:
    parts = urlsplit(address)
    try:
        async with asyncio.timeout(REACH_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
