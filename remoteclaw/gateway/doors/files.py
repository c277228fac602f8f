"""Files of chats over HTTP: clients upload files of people and download files of agents."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from remoteclaw.errors import CallRefused
from remoteclaw.gateway.agent_scope import AgentScope
from remoteclaw.gateway.auth.principals import Operator
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import TooLarge, authenticate, body_of
from remoteclaw.host.files import format_size
from remoteclaw.host.terminal import one_line
from remoteclaw.messages import MAX_ATTACHMENT_BYTES, Attachment, SessionKey

TOO_LARGE = (
    f"The file {{}} was not taken: a file may have at most {format_size(MAX_ATTACHMENT_BYTES)}."
)


class FilesDoor:
    """Answers the requests about files that one gateway receives."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def take(self, request: Request) -> Response:
        """Store the body as a file: `POST /files?session=KEY&name=NAME`."""
        principal = await self._operator(request)
        query, gateway = request.query_params, self._gateway
        try:
            session = SessionKey.parse(query.get("session", ""))
        except ValueError:
            raise CallRefused("INVALID_REQUEST", "session is not the key of a session.") from None
        await self._check(principal, str(session), in_chat=True)
        async with gateway.dispatcher.transfers.slot(principal):
            name = query.get("name", "")
            try:
                content = await body_of(request, MAX_ATTACHMENT_BYTES)
            except TooLarge:
                raise TooLarge(TOO_LARGE.format(one_line(name, max_chars=60))) from None
            file = await gateway.fleet.blobs.put(session.sid, name, content, chat=session)
        return JSONResponse(
            {"name": file.name, "mimeType": file.mime_type, "size": file.size, "blob": file.blob}
        )

    async def give(self, request: Request) -> Response:
        """Return the content of a file: `GET /files/SID/BLOB?size=BYTES`."""
        principal = await self._operator(request)
        sid, blob = request.path_params["sid"], request.path_params["blob"]
        try:
            size = int(request.query_params.get("size", ""))
            file = Attachment(
                name="file", mime_type="application/octet-stream", size=size, blob=blob
            )
        except ValueError:
            why = "The file's blob or size is not valid."
            raise CallRefused("INVALID_REQUEST", why) from None
        await self._check(principal, sid)
        async with self._gateway.dispatcher.transfers.slot(principal):
            content = await self._gateway.fleet.blobs.get(sid, file)
        if content is None:
            raise CallRefused("NOT_FOUND", "The file is not kept any more.")
        return Response(content, media_type="application/octet-stream")

    async def _check(self, operator: Operator, session: str, *, in_chat: bool = False) -> None:
        """Raise `CallRefused` if a token's agent scope does not include a session."""
        gateway = self._gateway
        if agent_scope := AgentScope.of(operator, gateway.fleet, gateway.config()):
            await agent_scope.check_session(session, in_chat=in_chat)

    async def _operator(self, request: Request) -> Operator:
        principal = await authenticate(self._gateway, request.scope)
        if not isinstance(principal, Operator) or not principal.has("write"):
            raise CallRefused("FORBIDDEN", "Files of chats are for operators with the scope write.")
        return principal
