"""Files that calls send: from the agent's workspace, or from the internet."""

import asyncio
import re
from pathlib import Path

from remoteclaw.bridge.attachments import unwanted
from remoteclaw.bridge.data import as_data
from remoteclaw.bridge.outgoing import Outgoing
from remoteclaw.errors import CallRefused
from remoteclaw.fleet.keys import OPERATOR
from remoteclaw.gateway.call import Call
from remoteclaw.host.fetch import fetch
from remoteclaw.host.files import UnfitFile, mime_type_of
from remoteclaw.messages import Attachment, SessionKey, file_name
from remoteclaw.protocols import FILES

__all__ = ["store"]

#: How much of a file's name is said, in characters.
NAME = 60
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


async def store(call: Call, provider: str, source: str) -> Attachment:
    """Read or fetch a file and keep it for a channel's adapter; an hour, until a message names it.

    Raises `CallRefused` with the reason if it can't be sent there.
    """
    sid = call.caller.session.sid if call.caller else OPERATOR
    try:
        async with call.transfers.one(call.principal):
            name, content = await _content(call, source)
            channel = call.config.channel(provider)
            if problem := unwanted(channel, mime_type_of(name, content), len(content)):
                raise UnfitFile(problem)
            chat = call.caller.session if call.caller else None
            return await call.fleet.blobs.put(sid, name, content, chat=chat)
    except UnfitFile as problem:
        told = as_data(file_name(source), longest=NAME)
        raise CallRefused("INVALID_REQUEST", f"The file {told} can't be sent: {problem}.") from None


async def _content(call: Call, source: str) -> tuple[str, bytes]:
    """Return a file's name and content; raises `UnfitFile`."""
    outgoing = await _outgoing(call, call.caller.session) if call.caller else None
    if outgoing:
        outgoing.check_permissions()
    if address := _ADDRESS.match(source):
        if address[1].lower() != "https":
            raise UnfitFile("its address does not begin with https://")
        return await fetch(source)
    if outgoing is None:
        raise UnfitFile("an operator names it by an address that begins with https://")
    path = outgoing.workspace / source
    return path.name, await asyncio.to_thread(outgoing.read, path)


async def _outgoing(call: Call, session: SessionKey) -> Outgoing:
    """Return the rule for the files that a session's agent sends."""
    agent, settings = call.config.agent(session.agent)
    workspace = call.home.workspace_path(agent, settings)
    files_dir = None
    view = await call.fleet.sessions.view(session.sid)
    if view and view.agent_path:
        run_dir = Path(view.agent_path).parent
        # Of another host's agent, nothing is here.
        if run_dir.parent == call.home.runs:
            files_dir = run_dir / FILES
    return Outgoing(call.home, settings.permissions, workspace, files_dir)
