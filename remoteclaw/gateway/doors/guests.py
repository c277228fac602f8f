"""The door of guests, who watch one terminal by a link and can do nothing else.

A guest sends one request, which names no session, and only reads after it.
"""

from starlette.requests import Request
from starlette.responses import Response

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.doors.sse import EventStreams
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import address_of, bearer_token

OVER = "This link has expired or was revoked: ask for a new one."
ENDED = "The terminal has ended, and this link with it."
ELSEWHERE = "This address does not show the terminal: ask for another link."


class GuestsDoor:
    """Answers the guests of one gateway."""

    def __init__(self, gateway: Gateway, streams: EventStreams) -> None:
        self._gateway = gateway
        self._streams = streams

    async def screen(self, request: Request) -> Response:
        """Stream the screen of the link's terminal: `GET /watch/screen`."""
        gateway = self._gateway
        guest = await gateway.authenticator.guest(bearer_token(gateway, request.scope))
        if guest is None:
            gateway.metrics.auth_failures += 1
            raise CallRefused("UNAUTHORIZED", OVER)
        record = await gateway.fleet.terminals.record(guest.sid)
        if record is None or record.entry != guest.entry or not record.is_open:
            raise CallRefused("GONE", ENDED)
        if record.host and record.host != gateway.home.host_id:
            raise CallRefused("GONE", ELSEWHERE)
        if request.method == "HEAD":
            raise CallRefused("INVALID_REQUEST", "This path is a stream: use GET.")
        response = self._streams.screen(guest, gateway.terminals.newest_record(record))
        await gateway.auditor.note_guest(guest, address_of(request.scope))
        return response
