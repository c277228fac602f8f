"""Files that people share: Slack's own ones are fetched, and the token goes nowhere else."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.channels.slack.adapter import SlackAdapter
from remoteclaw.channels.transcribe import is_recording
from remoteclaw.errors import PlatformRefused
from remoteclaw.protocols import Incoming
from tests.support.slack import SlackWorkspace, file


async def received(adapter: SlackAdapter, team: SlackWorkspace, *files: Any) -> Incoming:
    """Have a person share files; return the report of it."""
    first = await adapter.poll({})
    ann = team.person("ann")
    team.say(team.direct(ann), ann, files=files)
    cursors = {source: str(cursor) for source, cursor in first.cursors.items()}
    while not (found := await adapter.poll(cursors)).incoming:
        cursors |= {source: str(cursor) for source, cursor in found.cursors.items()}
    return found.incoming[0]


@pytest.fixture
async def elsewhere() -> AsyncIterator[tuple[str, list[bytes]]]:
    """The address of another server, and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ninto")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/report.pdf", asked


@pytest.mark.parametrize("by", ["url_private_download", "redirect"])
async def test_only_slack_is_asked_for_the_content_of_a_file(
    adapter: SlackAdapter, team: SlackWorkspace, elsewhere: tuple[str, list[bytes]], by: str
) -> None:
    """Any app makes a file of any address; its server must not get the token."""
    address, asked = elsewhere
    about = await received(adapter, team, file("report.pdf", b"x", **{by: address}))
    with pytest.raises(PlatformRefused, match="only a link to it"):
        await adapter.fetch(about.files[0])
    assert asked == []


async def test_a_redirect_within_slack_is_followed_with_the_token(
    adapter: SlackAdapter, team: SlackWorkspace
) -> None:
    other = await received(adapter, team, file("a.txt", b"content"))
    name = f"{team.url}/files-pri/{team.team}-{other.files[0].id}/a.txt"
    about = await received(adapter, team, file("b.txt", b"", redirect=name))
    assert await adapter.fetch(about.files[0]) == b"content"


async def test_a_web_page_is_a_file_only_if_it_was_shared_as_one(
    adapter: SlackAdapter, team: SlackWorkspace
) -> None:
    page = b"<!DOCTYPE html><title>A page</title>"
    about = await received(adapter, team, file("page.html", page))
    assert await adapter.fetch(about.files[0]) == page
    about = await received(adapter, team, file("a.txt", b"content"))
    team.set(scopes=["chat:write", "im:history"])
    with pytest.raises(PlatformRefused, match="files:read"):
        await adapter.fetch(about.files[0])


async def test_a_recorded_voice_is_a_recording_though_slack_calls_it_a_video(
    adapter: SlackAdapter, team: SlackWorkspace
) -> None:
    voice = file("audio_message.mp4", b"x", mimetype="video/mp4", subtype="slack_audio")
    film = file("film.mp4", b"x", mimetype="video/mp4")
    about = await received(adapter, team, voice, film)
    assert [is_recording(each) for each in about.files] == [True, False]


async def test_a_file_in_a_shared_channel_has_its_name_and_type(
    adapter: SlackAdapter, team: SlackWorkspace
) -> None:
    """A message there has nothing but the id of a file."""
    hidden = file("chart.png", b"x", file_access="check_file_info")
    (chart,) = (await received(adapter, team, hidden)).files
    assert (chart.name, chart.mime_type, chart.size) == ("chart.png", "image/png", 1)
    assert await adapter.fetch(chart) == b"x"
    team.fault("files.info", "error")
    (other,) = (await received(adapter, team, hidden)).files
    assert (other.name, other.size) == ("file", None)
