"""Files that are dropped into a terminal: who may, where they lie, and what is typed."""

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from remoteclaw.gateway.terminals.dropped_files import safe_name, typed_path
from remoteclaw.messages import MAX_ATTACHMENT_BYTES, Attachment
from remoteclaw.protocols import FILES
from remoteclaw.runtimes import RUNTIMES
from tests.support.doors import Door, Refused, opened, own_token
from tests.support.stack import Stack
from tests.support.terminal_program import ProgramRuntime, held_terminal
from tests.support.waiting import eventually


async def uploaded(door: Door, token: str, session: str, name: str, content: bytes) -> Any:
    """Upload a file as a client does; return what the gateway answers."""
    query = urlencode({"session": session, "name": name})
    return (await door.post(f"/files?{query}", token, content)).json


async def test_files_are_dropped_by_who_has_the_keyboard_and_lie_beside_the_terminal(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RUNTIMES, "demo", ProgramRuntime)
    token = own_token(stack)
    async with held_terminal(stack) as held, opened(stack) as door:
        gateway = door.gateway
        assert gateway is not None
        await eventually(
            lambda: (one := gateway.terminals.held_record(held.sid)) and one.activity == "idle"
        )
        session = str(held.session)
        file = await uploaded(door, token, session, "shot.png", b"one")
        params = {"sid": held.sid, "files": [file]}
        async with door.connected(token) as ada, door.connected(token) as bob:
            with pytest.raises(Refused, match="Take the keyboard first"):
                await ada.call("terminals.drop", params)
            await bob.call("terminals.take", {"sid": held.sid})
            with pytest.raises(Refused, match="Take the keyboard first"):
                await ada.call("terminals.drop", params)
            await ada.call("terminals.take", {"sid": held.sid, "force": True})

            # A repeated call has no second effect, and a message that names the file keeps it.
            dropped = await ada.call("terminals.drop", params, idempotencyKey="a")
            assert (await ada.call("terminals.drop", params, idempotencyKey="a"))["paths"] == []
            assert (
                await stack.fleet.blobs.get(
                    held.sid, Attachment(name="x", mime_type="x/y", size=3, blob=file["blob"])
                )
                == b"one"
            )
            other = await uploaded(door, token, "main/web/default/admin.x:admin.x:_", "b", b"x")
            with pytest.raises(Refused, match="b is not kept any more: drop it again"):
                await ada.call("terminals.drop", {"sid": held.sid, "files": [other]})
            for files in ([], [file] * 11, [{**file, "blob": "../../x"}]):
                with pytest.raises(Refused, match="INVALID_REQUEST"):
                    await ada.call("terminals.drop", {"sid": held.sid, "files": files})
        (path,) = map(Path, dropped["paths"])
        assert path.parents[1] == Path(held.place.files) / FILES
        assert (path.name, path.read_bytes()) == ("1-shot.png", b"one")
        assert path.stat().st_mode & 0o777 == 0o600
        read = Path(f"{held.place.files}/notes.read")
        typed = f"\x1b[200~{path}\x1b[201~ ".encode()
        await eventually(lambda: read.exists() and read.read_bytes() == typed)

        refused = await uploaded(door, token, session, "x.iso", bytes(MAX_ATTACHMENT_BYTES + 1))
        assert (
            "The file x.iso was not taken: a file may have at most" in refused["error"]["message"]
        )


@pytest.mark.parametrize(
    ("name", "safe"),
    {
        "Übersicht 2.PNG": "Übersicht-2.PNG",
        "a\nb\x1b[201~c.txt": "a-b-201-c.txt",
        "'; rm -rf ~ #.jpg": "rm--rf.jpg",
        "..": "file",
        ".bashrc": "bashrc",
        "no ending": "no-ending",
        "x" * 300 + ".tar.gz": "x" * 60 + ".gz",
        "写真\u202e.png": "写真.png",
        "a.$(x)": "a.x",
    }.items(),
)
def test_a_files_name_keeps_only_what_needs_no_quotes(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_path_is_typed_as_terminals_type_the_path_of_a_dropped_file() -> None:
    typed = typed_path(Path("/home/ada l/.local/(x)/1-a.png"))
    assert typed == "/home/ada\\ l/.local/\\(x\\)/1-a.png"
