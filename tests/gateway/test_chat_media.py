"""Files that agents send with tools: which are delivered, and which are refused."""

import functools
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from remoteclaw.errors import CallRefused
from remoteclaw.fleet import keys
from remoteclaw.gateway.methods.messages import HANDLERS
from remoteclaw.host.fetch import Address, fetch
from tests.support.pictures import png
from tests.support.platform import Platform
from tests.support.stack import Stack
from tests.support.turns import Turn, ask, gateway, operator
from tests.support.waiting import eventually


@pytest.fixture
def workspace(stack: Stack) -> Path:
    path = stack.home.path / "workspaces" / "main"
    path.mkdir(parents=True)
    (path / "plan.txt").write_text("the plan")
    return path


async def nothing_was_sent(stack: Stack, platform: Platform, turn: Turn) -> bool:
    """Whether nothing was delivered, queued, noted or stored."""
    client = stack.fleet.scripts.client
    left = [
        *await client.keys(keys.replies("*", "*")),
        *await client.keys(keys.blob("*", "*")),
    ]
    return not platform.events and not left and not await turn.lease.turns.side_effects()


async def test_a_file_of_the_workspace_is_sent(
    stack: Stack, served: Platform, turn: Turn, workspace: Path
) -> None:
    sent, effects = await turn.noted(
        "message_send_attachment", target="chat-2", file="plan.txt", caption="Here."
    )
    await turn.call("message_send_attachment", target="chat-3", file=str(workspace / "plan.txt"))
    await turn.call("message_send", target="chat-4", message="x" * 5000, media="plan.txt")

    (post,) = served.chat("chat-2")
    assert (post.text, post.files) == ("Here.", {"plan.txt": "the plan"})
    assert [(post.text, post.files) for post in served.chat("chat-3")] == [
        ("", {"plan.txt": "the plan"})
    ]
    assert [post.files for post in served.chat("chat-4")][-1] == {"plan.txt": "the plan"}
    assert sent["messageId"] == post.id
    assert (effects[0]["text"], effects[0]["mediaUrl"]) == ("Here.", "plan.txt")
    assert await stack.fleet.scripts.client.keys(keys.blob("*", "*")) == []


async def test_a_file_that_the_agent_received_can_be_sent_on(
    stack: Stack, served: Platform, turn: Turn
) -> None:
    run_dir = stack.home.runs / "up1"
    (run_dir / "files").mkdir(parents=True)
    (run_dir / "files" / "1-photo.png").write_bytes(png())
    (run_dir / "mcp.json").write_text("secret")
    await turn.lease.turns.note_phase(
        "spawned", agent_process={"path": str(run_dir / "s"), "key": "k"}
    )

    path = str(run_dir / "files" / "1-photo.png")
    await turn.call("message_send_attachment", target="chat-2", file=path)
    with pytest.raises(CallRefused, match="not in the agent's workspace"):
        await turn.call("message_send_attachment", target="a", file=str(run_dir / "mcp.json"))

    assert list(served.chat("chat-2")[0].files) == ["1-photo.png"]
    assert len(served.delivered) == 1


async def test_files_of_a_process_outside_the_run_directories_are_not_sent(
    stack: Stack, served: Platform, turn: Turn, directory: Path
) -> None:
    (directory / "files").mkdir()
    (directory / "files" / "x").write_text("x")
    await turn.lease.turns.note_phase(
        "spawned", agent_process={"path": str(directory / "s"), "key": "k"}
    )

    with pytest.raises(CallRefused, match="not in the agent's workspace"):
        await turn.call("message_send_attachment", target="a", file=str(directory / "files" / "x"))

    assert await nothing_was_sent(stack, served, turn)


#: Files that an agent may not send, with the reason of the refusal.
REFUSED = [
    ("../../remoteclaw.toml", "not in the agent's workspace"),
    ("sub/../../../remoteclaw.toml", "is not there"),
    ("/etc/passwd", "not in the agent's workspace"),
    ("link", "not in the agent's workspace"),
    ("directory-link/remoteclaw.toml", "not in the agent's workspace"),
    ("/proc/self/environ", "not in the agent's workspace"),
    ("/proc/self/cwd/pyproject.toml", "not in the agent's workspace"),
    ("/dev/zero", "no regular file"),
    ("fifo", "no regular file"),
    (".", "no regular file"),
    ("~/.bashrc", "is not there"),
    ("missing", "is not there"),
    ("a\0b", "NUL"),
    ("x" * 4096, "name too long"),
    ("file:///etc/passwd", "does not begin with https://"),
    ("FTP://example.org/x", "does not begin with https://"),
    ("http://example.org/x", "does not begin with https://"),
    ("data:text/plain,x", "is not there"),
    ("huge", "larger than 20 MB"),
]


async def test_forbidden_and_unreadable_files_are_refused(
    stack: Stack, served: Platform, turn: Turn, workspace: Path
) -> None:
    (workspace / "link").symlink_to("/etc/passwd")
    (workspace / "directory-link").symlink_to(stack.home.path)
    subprocess.run(["mkfifo", str(workspace / "fifo")], check=True)
    with (workspace / "huge").open("wb") as file:
        file.truncate(21 * 1024 * 1024)

    for source, why in REFUSED:
        with pytest.raises(CallRefused, match=why) as refusal:
            await turn.call("message_send_attachment", target="chat-2", file=source)
        assert refusal.value.code == "INVALID_REQUEST"
        with pytest.raises(CallRefused, match=why):
            await turn.call("message_send", target="chat-2", message="look", media=source)
    assert await nothing_was_sent(stack, served, turn)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "localhost", "10.0.0.1", "169.254.169.254", "0.0.0.0", "2130706433"],
)
async def test_private_addresses_are_not_fetched(
    stack: Stack, served: Platform, turn: Turn, host: str
) -> None:
    with pytest.raises(CallRefused, match="not a public one"):
        await turn.call("message_send", target="a", message="hi", media=f"https://{host}/x")

    assert await nothing_was_sent(stack, served, turn)


async def test_files_that_the_channel_does_not_accept_are_refused(
    stack: Stack, served: Platform, turn: Turn, workspace: Path
) -> None:
    (workspace / "large.png").write_bytes(png() + bytes(2 * 1024 * 1024))
    limits = {"attachment_mb": 1, "attachment_types": ["image/*"]}
    stack.configure(channels={"test": {"owners": ["alice"], **limits}})

    with pytest.raises(CallRefused, match=r"no files of its kind \(text/plain\)"):
        await turn.call("message_send_attachment", target="a", file="plan.txt")
    with pytest.raises(CallRefused, match="files of 1 MB at most"):
        await turn.call("message_send_attachment", target="a", file="large.png")

    assert await nothing_was_sent(stack, served, turn)


async def test_a_repeated_call_does_not_need_its_file_any_more(
    served: Platform, turn: Turn, workspace: Path
) -> None:
    params = {"target": "chat-2", "file": "plan.txt"}
    first = await turn.call("message_send_attachment", "c1", **params)
    (workspace / "plan.txt").unlink()

    again = await turn.call("message_send_attachment", "c1", **params)

    assert again == first
    assert len(served.delivered) == 1


async def test_a_file_that_the_platform_rejects_is_reported(
    served: Platform, turn: Turn, workspace: Path
) -> None:
    served.tell(keeps_files=False)

    alone = await turn.call("message_send_attachment", target="chat-1", file="plan.txt")
    with_text = await turn.call("message_send", target="b", message="hi", media="plan.txt")

    why = "The file plan.txt could not be sent."
    assert (alone["status"], alone["error"]) == ("failed", why)
    assert (with_text["status"], with_text["error"]) == ("delivered", why)


async def test_a_file_waits_for_its_adapter_with_its_message(
    stack: Stack, directory: Path, turn: Turn, workspace: Path
) -> None:
    """A file that no message refers to would be deleted after an hour."""
    await turn.call("message_send_attachment", target="a", file="plan.txt")

    client = stack.fleet.scripts.client
    (blob,) = await client.keys(keys.blob("*", "*"))
    assert await client.pttl(blob) > 7 * 24 * 3600 * 1000
    platform = Platform(directory / "platform")
    async with platform.served(stack.fleet):
        await eventually(lambda: any(post.files for post in platform.chat("a")))
        (file,) = platform.chat("a")
    assert file.files == {"plan.txt": "the plan"}


async def test_an_operator_cannot_send_files_of_this_computer(
    stack: Stack, served: Platform, workspace: Path
) -> None:
    door = gateway(stack.fleet, stack.home, HANDLERS)

    for source in ("plan.txt", str(workspace / "plan.txt"), "/etc/passwd"):
        with pytest.raises(CallRefused, match="an operator names it by an address"):
            await ask(door, operator(), "message.sendAttachment", target="test:a", file=source)

    assert served.events == []


# -- from the internet ----------------------------------------------------------------------------


@pytest.fixture
async def address(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The address of a local HTTPS server that counts as a public one."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-subj", "/CN=localhost"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=png())

    def on_loopback(address: Address, port: int) -> bool:
        return str(address) == "127.0.0.1"

    monkeypatch.setattr(
        "remoteclaw.gateway.send.fetch", functools.partial(fetch, may_connect=on_loopback)
    )
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_file_is_fetched_from_the_internet_and_sent(
    stack: Stack, served: Platform, turn: Turn, address: str
) -> None:
    door = gateway(stack.fleet, stack.home, HANDLERS)

    await turn.call("message_send", target="a", message="look", media=f"{address}/red.png")
    await ask(
        door, operator(), "message.sendAttachment", target="test:b", file=f"{address}/blue.png"
    )

    assert served.chat("a")[0].files == {"red.png": png().decode("latin-1")}
    assert served.chat("b")[0].files == {"blue.png": png().decode("latin-1")}
    assert await stack.fleet.scripts.client.keys(keys.blob("*", "*")) == []
