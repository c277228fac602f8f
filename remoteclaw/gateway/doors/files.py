"""Files of chats over HTTP: consoles store what a person sends, and fetch what an agent does."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.agent_scope import Narrowed
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import TooLarge, authenticate, body_of
from remoteclaw.gateway.principals import Operator
from remoteclaw.host.files import size_in_words
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import MAX_ATTACHMENT_BYTES, Attachment, SessionKey

TOO_LARGE = (
    f"The file {{}} was not taken: files have {size_in_words(MAX_ATTACHMENT_BYTES)} at most."
)


class FilesDoor:
    """Answers the requests about files of one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def take(self, request: Request) -> Response:
        """Store a file: `?session=KEY&name=NAME`, its content is the body."""
        principal = await self._operator(request)
        query, gateway = request.query_params, self._gateway
        try:
            session = SessionKey.parse(query.get("session", ""))
        except ValueError:
            raise CallRefused("INVALID_REQUEST", "session is no session's key.") from None
        await self._check(principal, str(session), in_chat=True)
        async with gateway.dispatcher.transfers.one(principal):
            name = query.get("name", "")
            try:
                content = await body_of(request, MAX_ATTACHMENT_BYTES)
            except TooLarge:
                raise TooLarge(TOO_LARGE.format(one_line(name, most=60))) from None
            file = await gateway.fleet.blobs.put(session.sid, name, content, chat=session)
        told = {"name": file.name, "mimeType": file.mime_type, "size": file.size, "blob": file.blob}
        return JSONResponse(told)

    async def give(self, request: Request) -> Response:
        """Return the content of a file: `/files/SID/BLOB?size=BYTES`."""
        principal = await self._operator(request)
        sid, blob = request.path_params["sid"], request.path_params["blob"]
        try:
            size = int(request.query_params.get("size", ""))
            file = Attachment(
                name="file", mime_type="application/octet-stream", size=size, blob=blob
            )
        except ValueError:
            why = "The file's name or size makes no sense."
            raise CallRefused("INVALID_REQUEST", why) from None
        await self._check(principal, sid)
        async with self._gateway.dispatcher.transfers.one(principal):
            content = await self._gateway.fleet.blobs.get(sid, file)
        if content is None:
            raise CallRefused("NOT_FOUND", "The file is not kept any more.")
        return Response(content, media_type="application/octet-stream")

    async def _check(self, operator: Operator, session: str, *, in_chat: bool = False) -> None:
        """Refuse the files of a session that a token is not for."""
        gateway = self._gateway
        host, config = gateway.home.host_id, gateway.config()
        if narrowed := Narrowed.of(operator, gateway.fleet, host, config):
            await narrowed.check_session(session, in_chat=in_chat)

    async def _operator(self, request: Request) -> Operator:
        principal = await authenticate(self._gateway, request.scope)
        if not isinstance(principal, Operator) or not principal.has("write"):
            raise CallRefused("FORBIDDEN", "Files of chats are for operators with the scope write.")
        return principal
