"""Bodies of requests, bounded in size."""

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from remoteclaw.gateway.guard import refusal
from remoteclaw.gateway.limits import MOST_BYTES

__all__ = ["body_of"]


async def body_of(request: Request, most: int = MOST_BYTES) -> bytes | Response:
    """Return the body of a request, or the refusal if it has more than `most` bytes."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                size = f"The body is larger than {most} bytes."
                return refusal("INVALID_REQUEST", size, status=413)
    except ClientDisconnect:
        return Response(status_code=400)
    return bytes(body)
