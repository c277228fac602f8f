"""The methods of the Web API for files, for modals, and for the app itself."""

import uuid

from tests.support.slack import judge
from tests.support.slack.judge import Refusal
from tests.support.slack.world import TRIGGER_S, Content, Workspace, new_id


def auth_test(world: Workspace) -> Content:
    about = {"url": "https://tests.slack.com/", "team": "Tests", "user": "claw"}
    ids = {"team_id": world.team, "user_id": world.bot, "bot_id": world.bot_id}
    organization = world.organization or ("E0TESTS" if world.is_enterprise else "")
    enterprise = {"enterprise_id": organization} if organization else {}
    return {**about, **ids, **enterprise, "is_enterprise_install": world.is_enterprise}


def apps_connections_open(world: Workspace) -> Content:
    if world.is_socket_mode_off:
        raise Refusal("link_disabled")
    ticket = uuid.uuid4().hex
    world.sockets.tickets.add(ticket)
    return {"url": f"{world.url.replace('http', 'ws', 1)}/link/{world.team}?ticket={ticket}"}


def files_get_upload_url_external(
    world: Workspace, filename: str, length: int, alt_text: str = "", snippet_type: str = ""
) -> Content:
    if length <= 0 or not filename:
        raise Refusal("invalid_arguments")
    file = world.file(filename, None, world.bot)
    ticket = uuid.uuid4().hex
    world.uploads[ticket] = file["id"], length
    return {"upload_url": f"{world.url}/upload/{world.team}/{ticket}", "file_id": file["id"]}


def files_complete_upload_external(
    world: Workspace,
    files: list[Content],
    channel_id: str | None = None,
    thread_ts: str | None = None,
    initial_comment: str = "",
    blocks: list[Content] | None = None,
) -> Content:
    """The message with the files is there only later."""
    there = world.joined(channel_id, writes=True) if channel_id else None
    shared = []
    for one in files:
        file = world.files.get(one["id"])
        if file is None or world.contents[file["id"]] is None:
            raise Refusal("file_not_found")
        file["title"] = one.get("title", file["title"])
        shared.append(file)
    if there and thread_ts and thread_ts not in there.messages:
        raise Refusal("invalid_thread_ts")

    def share() -> None:
        assert there is not None
        content = {"text": initial_comment, "files": shared, "subtype": "file_share"}
        message = world.post(there, world.bot, thread_ts=thread_ts, **content)
        for file in shared:
            world.share(file, there, thread_ts, message["ts"])

    if there:
        world.later(share)
    return {"files": [{"id": file["id"], "title": file["title"]} for file in shared]}


def files_info(
    world: Workspace, file: str, cursor: str = "", limit: int = 0, count: int = 0, page: int = 0
) -> Content:
    if file not in world.files:
        raise Refusal("file_not_found")
    about = {key: one for key, one in world.files[file].items() if key != "file_access"}
    return {"file": about, "comments": [], "response_metadata": {"next_cursor": ""}}


def views_open(
    world: Workspace, view: Content, trigger_id: str = "", interactivity_pointer: str = ""
) -> Content:
    made_at = world.triggers.get(trigger_id)
    if made_at is None:
        raise Refusal("invalid_trigger_id")
    if made_at == 0:
        raise Refusal("exchanged_trigger_id")
    if world.clock.now() > made_at + TRIGGER_S:
        raise Refusal("expired_trigger_id")
    judge.view(view)
    world.triggers[trigger_id] = 0
    id = new_id("V")
    world.modals[id] = {**view, "id": id, "team_id": world.team, "hash": "h", "state": {}}
    return {"view": world.modals[id]}
