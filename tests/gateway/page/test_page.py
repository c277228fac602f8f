"""Chats of the page over its WebSocket, without a browser."""

import asyncio
import re
from importlib import resources
from unittest.mock import ANY

import orjson

from remoteclaw.fleet import keys
from remoteclaw.gateway import page as package
from tests.support.cli import run
from tests.support.doors import opened
from tests.support.pages import OWN, chat_key, login, paged
from tests.support.stack import Stack


async def test_a_logged_in_person_writes_and_reads_the_answer(stack: Stack) -> None:
    await stack.start_worker()
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            here = await page.call("chat.open")
            assert here["person"] == "admin.ada"
            sent = await page.call(
                "chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "**hello**"}
            )

            own, answer = await page.event("chat.event"), await page.event("chat.event")

    assert (own["id"], own["from"], own["text"]) == (sent["id"], "admin.ada", "**hello**")
    assert own["html"] == '<p dir="auto"><strong>hello</strong></p>'
    assert answer["from"] == "agent"
    assert "RemoteClaw's demo agent" in answer["text"]


async def test_the_next_gateway_delivers_page_messages_at_once(stack: Stack) -> None:
    """A claim that is not released lasts ten seconds, and would delay the next answer."""
    await stack.start_worker()
    for number in ("1", "2"):
        async with opened(stack) as door:
            ada = await login(stack, door)
            async with paged(door, ada) as page:
                await page.call("chat.open")
                await page.call(
                    "chat.send", {"sessionKey": chat_key(), "messageId": number, "text": "hello"}
                )
                texts = [(await page.event("chat.event"))["text"] for _ in range(2 * int(number))]
        readers = await stack.fleet.replies.readers()
        assert not readers.is_read("web", "default")

    assert texts[2] == "hello"
    assert "demo agent" in texts[3]


async def test_a_reply_to_a_message_of_the_page_reaches_the_agent_with_its_text_and_file(
    stack: Stack,
) -> None:
    await stack.start_worker()
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        here = await page.call("chat.open")
        await page.call("chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "file"})
        own, answer = await page.event("chat.event"), await page.event("chat.event")
        of_file = {"messageId": "2", "text": "what is in it?", "replyTo": answer["id"]}
        await page.call("chat.send", {"sessionKey": chat_key(), **of_file})
        await page.event("chat.event")
        on_file = await page.event("chat.event")
        of_own = {"messageId": "3", "text": "and that?", "replyTo": own["id"]}
        await page.call("chat.send", {"sessionKey": chat_key(), **of_own})
        await page.event("chat.event")
        on_own = await page.event("chat.event")
        await page.call(
            "chat.send",
            {"sessionKey": chat_key(), "messageId": "4", "text": "odd", "replyTo": "no id"},
        )
        await page.event("chat.event")
        await page.event("chat.event")

    assert [file["name"] for file in answer["files"]] == ["hello-from-the-demo.txt"]
    assert "I have `hello-from-the-demo.txt`" in on_file["text"]
    assert "I have" not in on_own["text"]
    record = await stack.fleet.records.of(here["sid"])
    assert record.count(b"hello-from-the-demo.txt") > 1


async def test_a_repeated_page_message_counts_once_and_a_reconnect_resumes(stack: Stack) -> None:
    await stack.start_worker()
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            await page.call("chat.open")
            one = await page.call(
                "chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "hello"}
            )
            again = await page.call(
                "chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "hello"}
            )
            await page.event("chat.event")
            answer = await page.event("chat.event")
            assert (one["id"], one["entry"]) == (again["id"], again["entry"])
        async with paged(door, ada) as page:
            await page.call("chat.open", {"after": answer["id"]})
            await page.call(
                "chat.send", {"sessionKey": chat_key(), "messageId": "2", "text": "and now?"}
            )
            first = await page.event("chat.event")

    assert first["text"] == "and now?"


async def test_the_pages_chats_work_without_a_record(stack: Stack) -> None:
    """Otherwise no message would be shown, and a repeated message would count twice."""
    stack.configure(record={"keep_days": 0})
    async with opened(stack) as door, paged(door, await login(stack, door)) as page:
        here = await page.call("chat.open")
        one = await page.call(
            "chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "hello"}
        )
        again = await page.call(
            "chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "hello"}
        )
        shown = await page.event("chat.event")
        waiting = await stack.fleet.scripts.client.xlen(keys.inbound(here["sid"]))

    assert one["id"] == again["id"] == shown["id"]
    assert waiting == 1


async def test_an_agent_reacts_deletes_and_reads_in_a_chat_of_the_page(stack: Stack) -> None:
    chat = "admin.ada"
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            here = await page.call("chat.open")
            await page.call(
                "chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "zero"}
            )
            await page.event("chat.event")
            for text in ("one", "two"):
                await stack.put_reply("web", "default", text, chat=chat, call=text)
            ids = [(await page.event("chat.event"))["id"] for _ in range(2)]
            owner = {"sessionKey": here["sessionKey"]}
            await page.call("message.react", {"messageId": ids[0], "emoji": "👍"}, **owner)
            reacted = await page.event("chat.event")
            await page.call("message.delete", {"messageId": ids[1]}, **owner)
            deleted = await page.event("chat.event")
            read = await page.call("message.read", {"limit": 10}, **owner)

    assert (reacted["kind"], reacted["message"], reacted["emoji"]) == ("reaction", ids[0], "👍")
    assert (deleted["kind"], deleted["message"]) == ("deletion", ids[1])
    assert [(one["id"], one["text"]) for one in read["messages"]] == [
        (ANY, "zero"),
        (ids[0], "one"),
    ]
    assert [one["emoji"] for one in read["messages"][1]["reactions"]] == ["👍"]


async def test_a_login_link_has_the_name_and_scope_that_it_was_created_for(stack: Stack) -> None:
    async with opened(stack) as door:
        address = f"http://127.0.0.1:{door.port}"
        async with stack.fleet.gateways.announced(stack.home.host_id, address):
            made = await asyncio.to_thread(run, stack, "open", "--as", "bo", "--scope", "write")
        url, _, code = made.stdout.strip().partition("#")
        body = orjson.dumps({"code": code})
        answer = await door.post("/page/login", None, body, Origin=door.url, **OWN)
    alone = await asyncio.to_thread(run, stack, "open")

    assert url == f"{address}/"
    assert (answer.json["name"], answer.json["scope"]) == ("bo", "write")
    assert alone.returncode == 1
    assert "No gateway runs here: start RemoteClaw with `remoteclaw up`." in alone.stderr


async def test_a_page_that_switches_conversations_receives_only_the_new_one(stack: Stack) -> None:
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page, paged(door, ada) as other:
            await page.call("chat.open")
            await page.call("chat.open", {"conversation": "beef"})
            await other.call("chat.open")
            await stack.put_reply("web", "default", "elsewhere", chat="admin.ada", call="1")
            assert (await other.event("chat.event"))["conversation"] is None
            await page.call(
                "chat.send",
                {"sessionKey": chat_key(conversation="beef"), "messageId": "1", "text": "here"},
            )
            received = await page.event("chat.event")

    assert (received["text"], received["conversation"]) == ("here", "beef")


async def test_a_very_long_conversation_is_sent_from_its_newest_messages(stack: Stack) -> None:
    """All of it at once would exceed the buffer of a client, so it could never be opened."""
    async with opened(stack) as door:
        for number in range(300):
            about = {"from": "agent", "text": "<&> " * 5000, "files": [], "number": number}
            await stack.fleet.web.add(
                "admin.ada", "message", about, once=f"{number}", keep_ms=60_000
            )
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            await page.call("chat.open")
            numbers = [(await page.event("chat.event"))["number"]]
            while numbers[-1] != 299:
                numbers.append((await page.event("chat.event"))["number"])

    assert numbers == list(range(300 - len(numbers), 300))
    assert len(numbers) >= 20


async def test_a_text_that_is_too_long_to_render_is_sent_as_plain_text(stack: Stack) -> None:
    async with opened(stack) as door:
        ada = await login(stack, door)
        async with paged(door, ada) as page:
            await page.call("chat.open")
            await page.call(
                "chat.send", {"sessionKey": chat_key(), "messageId": "1", "text": "*_" * 500_000}
            )
            shown = await page.event("chat.event")

            sent = await page.call(
                "chat.send", {"sessionKey": chat_key(), "messageId": "2", "text": "*_" * 20_000}
            )
            events = (
                await page.call(
                    "chat.history", {"sessionKey": chat_key(), "before": "9" * 19 + "-0"}
                )
            )["events"]
            (earlier,) = (event for event in events if event["id"] == sent["id"])

    assert shown["text"] == "*_" * 500_000
    assert "html" not in shown
    assert earlier["text"] == "*_" * 20_000
    assert "html" not in earlier


async def test_a_login_name_that_could_collide_with_another_chat_is_refused(stack: Stack) -> None:
    """The name of a chat contains the person's name and the conversation."""
    for name in ("ada\nbeef", "ada\x1b[2J", "", "a" * 65):
        made = await asyncio.to_thread(run, stack, "open", "--as", name)
        assert made.returncode == 2
        assert "it must have 1 to 64 printable characters." in made.stderr


async def test_only_the_newest_part_of_a_long_history_is_rendered(stack: Stack) -> None:
    """Otherwise opening a session would block all other clients."""
    async with opened(stack) as door:
        ada = await login(stack, door)
        accepted = await stack.append("hello")
        sid = accepted.session.sid
        lines = [
            orjson.dumps({"role": "agent", "text": f"**{number}** {'x' * 7000}", "at": number})
            for number in range(1, 31)
        ]
        await stack.fleet.scripts.client.set(keys.record(sid), b"\n".join(lines))
        async with paged(door, ada) as page:
            params = {"sessionKey": str(accepted.session), "limit": 100}
            items = (await page.call("sessions.history", params))["items"]

    rendered = [item for item in items if "html" in item]
    assert [item["at"] for item in rendered] == list(range(17, 31))
    assert rendered[-1]["html"].startswith('<p dir="auto"><strong>30</strong>')


async def test_the_cookie_is_secure_behind_a_tls_proxy(
    stack: Stack,
) -> None:
    """Its name then contains no port."""
    stack.configure(gateway={"hosts": ["claw.example.org"]})
    async with opened(stack) as door:
        code = await stack.fleet.logins.create("ada", "admin", 3_600_000)
        headers = {"Host": "claw.example.org", "Origin": "https://claw.example.org", **OWN}
        body = orjson.dumps({"code": code})
        answer = await door.post("/page/login", None, body, **headers)

    assert answer.status == 200, answer.body
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("remoteclaw=")
    assert "; Secure" in cookie


#: How a file of the page names another one.
NAMED = re.compile(r'"(?:\./|/page/)([\w-]+\.(?:js|css|svg|png|webmanifest))"')
#: What a script needs before it runs.
IMPORTED = re.compile(r'^import .* from "\./([\w-]+\.js)";$', re.MULTILINE)
#: The largest size of all of them over the wire, in bytes.
MAX_WIRE_BYTES = 160_000


async def test_all_that_the_page_can_load_is_compressed_and_small(stack: Stack) -> None:
    """Nothing lies in its directory that the page does not name. The first file names the scripts
    that are needed at once, so that they load together. Each form of a file has a tag of its own.
    """
    gzipped, plain = {"Accept-Encoding": "gzip, br"}, {"Accept-Encoding": "gzip;q=0, identity"}
    sizes: dict[str, int] = {}
    found = {"/", "/watch"}
    async with opened(stack) as door:
        while names := found - sizes.keys():
            for name in names:
                answer = await door.get(name, **gzipped)
                assert answer.status == 200, name
                sizes[name] = int(answer.headers["Content-Length"])
                if not name.endswith(".png"):
                    assert answer.headers["Content-Encoding"] == "gzip", name
                    found |= {f"/page/{each}" for each in NAMED.findall(answer.body.decode())}
        packed, whole = [await door.get("/page/app.js", **one) for one in (gzipped, plain)]
        tag = {"If-None-Match": packed.headers["ETag"]}
        known = await door.get("/page/app.js", **gzipped, **tag)
        other = await door.get("/page/app.js", **plain, **tag)

    files = {file.name: file for file in (resources.files(package) / "static").iterdir()}
    assert {name.rpartition("/")[2] for name in sizes} == {*files} - {
        "index.html",
        "watch.html",
    } | {"", "watch"}
    needed: set[str] = set()
    new = {"app.js"}
    while new:
        needed |= new
        new = {each for name in new for each in IMPORTED.findall(files[name].read_text())} - needed
    first = files["index.html"].read_text()
    assert set(re.findall(r'"modulepreload" href="/page/([^"]+)"', first)) == needed - {"app.js"}
    assert "Content-Encoding" not in whole.headers
    assert packed.body == whole.body
    assert (known.status, other.status) == (304, 200)
    assert packed.headers["Vary"] == "Accept-Encoding"
    assert sum(sizes.values()) <= MAX_WIRE_BYTES
