"""Files of chats over HTTP: consoles store what a person sends, and fetch what an agent does."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from remoteclaw.errors import CallRefused, MessageRefused, RedisRefused, RedisUnavailable
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import authenticate, body_of, refusal
from remoteclaw.gateway.principals import Operator
from remoteclaw.messages import MAX_ATTACHMENT_BYTES, Attachment, SessionKey

__all__ = ["FilesDoor"]


class FilesDoor:
    """Answers the requests about files of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def take(self, request: Request) -> Response:
        """Store a file: `?session=KEY&name=NAME`, its content is the body."""
        principal = await self._operator(request)
        if isinstance(principal, Response):
            return principal
        query = request.query_params
        try:
            session = SessionKey.parse(query.get("session", ""))
        except ValueError:
            return refusal("INVALID_REQUEST", "session is no session's key.")
        gateway = self._gateway
        try:
            async with gateway.dispatcher.transfers.one(principal):
                content = await body_of(request, MAX_ATTACHMENT_BYTES)
                if isinstance(content, Response):
                    return content
                name = query.get("name", "")
                file = await gateway.fleet.blobs.put(session.sid, name, content, chat=session)
        except CallRefused as error:
            return refusal(error.code, str(error))
        except MessageRefused as error:
            return refusal("INVALID_REQUEST", str(error))
        except (RedisUnavailable, RedisRefused) as error:
            return refusal("UNAVAILABLE", str(error))
        told = {"name": file.name, "mimeType": file.mime_type, "size": file.size, "blob": file.blob}
        return JSONResponse(told)

    async def give(self, request: Request) -> Response:
        """Return the content of a file: `/files/SID/BLOB?size=BYTES`."""
        principal = await self._operator(request)
        if isinstance(principal, Response):
            return principal
        sid, blob = request.path_params["sid"], request.path_params["blob"]
        try:
            size = int(request.query_params.get("size", ""))
            file = Attachment(
                name="file", mime_type="application/octet-stream", size=size, blob=blob
            )
        except ValueError:
            return refusal("INVALID_REQUEST", "The file's name or size makes no sense.")
        gateway = self._gateway
        try:
            async with gateway.dispatcher.transfers.one(principal):
                content = await gateway.fleet.blobs.get(sid, file)
        except CallRefused as error:
            return refusal(error.code, str(error))
        except (RedisUnavailable, RedisRefused) as error:
            return refusal("UNAVAILABLE", str(error))
        if content is None:
            return refusal("NOT_FOUND", "The file is not kept any more.")
        return Response(content, media_type="application/octet-stream")

    async def _operator(self, request: Request) -> Operator | Response:
        principal = await authenticate(self._gateway, request.scope)
        if isinstance(principal, Response):
            return principal
        if not isinstance(principal, Operator) or not principal.has("write"):
            return refusal("FORBIDDEN", "Files of chats are for operators with the scope write.")
        return principal
