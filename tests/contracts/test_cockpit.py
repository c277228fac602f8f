"""The agents' own programs in a cockpit of one's own, over HTTP and event streams only."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.clock import now_ms
from remoteclaw.messages import SessionKey
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.cockpit import Cockpit
from tests.support.dialogs import ESCALATED
from tests.support.doors import gateway_process, own_token
from tests.support.prefixes import asked
from tests.support.stack import Stack
from tests.support.terminals import used_before
from tests.support.waiting import eventually


@dataclass
class OpenTerminal:
    """One terminal in a cockpit."""

    cockpit: Cockpit
    sid: str

    async def get(self, path: str = "") -> Any:
        """Read the terminal, or something of it."""
        answer = await self.cockpit.ask("GET", f"/sessions/{self.sid}{path}")
        assert answer.status == 200, answer.body
        return answer.json["result"]

    async def post(self, path: str, status: int = 202, **body: Any) -> Any:
        """Do something in it; return the result or the error."""
        answer = await self.cockpit.ask("POST", f"/sessions/{self.sid}{path}", body)
        assert answer.status == status, answer.body
        return answer.json.get("result") or answer.json["error"]

    async def press(self, *keys: str) -> None:
        """Press keys one by one, as a person does, who sees the effect of each."""
        for key in keys:
            before = (await self.get("/screen"))["frame"]["revision"]
            await self.post("/key", key=key)
            await self.until_quiet(after=before)

    async def until(self, holds: Any) -> str:
        """Wait until `holds(text)` is true of the screen; return its text."""

        async def shown() -> str | None:
            answer = await self.cockpit.ask("GET", f"/sessions/{self.sid}/screen")
            text = str(answer.json["result"]["text"]) if answer.status == 200 else ""
            return text if holds(text) else None

        try:
            return str(await eventually(shown))
        except AssertionError:
            raise AssertionError((await self.get("/screen"))["text"]) from None

    async def until_quiet(self, *, after: int = 0) -> None:
        """Wait until the screen has changed and stays the same.

        Gemini takes an earlier Enter for a part of a text.
        """
        revisions: list[int] = []

        async def is_quiet() -> bool:
            revisions.append((await self.get("/screen"))["frame"]["revision"])
            await asyncio.sleep(0.1)
            return revisions[-1] != after and revisions[-5:] == [revisions[-1]] * 5

        await eventually(is_quiet)

    async def starts(self, name: str) -> None:
        """Wait until the program has started; codex asks at each start whether it may work."""
        if name == "codex":
            await self.until(lambda text: "Open restricted" in text)
            await self.until_quiet()  # it loses a key of its first moment
            await self.post("/key", key="enter")
        await self.becomes("idle")

    async def reaches(self, state: str) -> None:
        """Wait for a state of the terminal."""

        async def is_so() -> bool:
            return bool((await self.get())["state"] == state)

        await eventually(is_so)

    async def until_says(self, text: str) -> str:
        """Wait until the messages have an answer to `text`; return the answer."""

        async def answer() -> str | None:
            items = (await self.get("/messages"))["items"]
            said = [item for item in items if item["role"] in ("user", "agent")]
            is_answered = [each["text"] for each in said][-2:-1] == [text]
            return str(said[-1]["text"]) if is_answered else None

        return str(await eventually(answer))

    async def becomes(self, activity: str) -> None:
        """Wait for an activity of the program."""

        async def is_so() -> bool:
            return bool((await self.get())["activity"] == activity)

        try:
            await eventually(is_so)
        except AssertionError:
            screen = await self.get("/screen")
            raise AssertionError(
                f"not {activity} but {await self.get()}\n{screen['text']}"
            ) from None


@contextlib.asynccontextmanager
async def spawned(
    stack: Stack, cli: AgentCli, directory: Path, **body: Any
) -> AsyncIterator[OpenTerminal]:
    """Open a terminal of a CLI that its user has used before, and wait until it is idle."""
    workspace = directory / "workspace"
    workspace.mkdir()
    env = used_before(cli, directory / "home", workspace)
    stack.configure(cli.config(workspace=str(workspace), env=env), terminals={"handover_s": 1})
    await stack.start_worker()
    async with gateway_process(stack) as (door, _):
        cockpit = Cockpit(door, own_token(stack))
        answer = await cockpit.ask("POST", "/sessions", {"agent": "main", "cols": 100, **body})
        assert answer.status == 201, answer.body
        terminal = OpenTerminal(cockpit, answer.json["result"]["sid"])
        await terminal.starts(cli.name)
        yield terminal


#: The keys after `/model` that choose another model in each program's menus.
MENUS = {
    "claude": ("enter", "down", "enter"),
    "codex": ("enter", "enter", "enter"),
    "gemini": ("enter", "down", "enter"),
    "opencode": ("enter", "down", "enter"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MENUS)
async def test_text_can_be_sent_after_a_menu_and_a_draft_is_named_and_cleared(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """A menu of the program is used with keys; the program reports nothing about it."""
    async with spawned(swept, required(name, model_server), directory) as terminal:
        await terminal.post("/input", text="SAY: plum")
        await terminal.becomes("idle")

        await terminal.press(*"/model")
        await terminal.press(*MENUS[name])
        await terminal.post("/input", text="SAY: quince")

        await terminal.until(lambda text: "quince" in text.partition("SAY: quince")[2])
        await terminal.becomes("idle")
        await terminal.press(*"two-words")
        refused = await terminal.post("/input", 409, text="SAY: medlar")
        assert "two-words" in refused["message"], "it says what it saw"
        assert (await terminal.get())["draft"] == "two-words"
        sent = await terminal.post("/input", text="SAY: medlar", clear=True)
        assert sent["cleared"] == "two-words"
        await terminal.becomes("idle")
        assert "two-words" not in str(asked(model_server, "SAY: medlar"))


#: What makes each program ask for a permission, and a text at the end of its dialog.
REQUESTS = {
    "claude": ("SHELL:touch x", "Esc to cancel"),
    "codex": (ESCALATED, "esc to cancel"),
    "gemini": ("SHELL:touch x", "Allow once"),
    "opencode": ("SHELL:touch x", "Allow once"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", REQUESTS)
async def test_text_can_be_sent_after_a_paste_into_a_dialog(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """The first turn has the dialog, so the program was never idle before."""
    prompt, dialog = REQUESTS[name]
    async with spawned(swept, required(name, model_server), directory) as terminal:
        await terminal.post("/input", text=prompt)
        await terminal.becomes("waiting")
        await terminal.until(lambda text: dialog in text)
        await terminal.post("/paste", text="a pasted text")
        await terminal.until_quiet()
        await terminal.post("/key", key="enter")
        await terminal.becomes("idle")

        sent = await terminal.post("/input", text="SAY: quince", clear=True)

        assert sent["cleared"] in ("", "a pasted text"), "codex keeps it in its composer"
        await terminal.becomes("idle")
        assert "a pasted text" not in str(asked(model_server, "SAY: quince"))


@pytest.mark.thorough("claude", "gemini", "opencode")
@pytest.mark.parametrize("name", MENUS)
async def test_a_day_of_a_cockpit(
    swept: Stack, model_server: ModelServerProcess, directory: Path, name: str
) -> None:
    """Spawn, key menu, input, reload of the cockpit, chat message, hand-over, resume."""
    stack, cli = swept, required(name, model_server)
    async with spawned(stack, cli, directory, name="review") as terminal:
        assert (await terminal.get())["name"] == "review"
        async with terminal.cockpit.stream(f"/sessions/{terminal.sid}/events") as stream:
            assert (await stream.next()).name == "snapshot"
            await terminal.press(*"/model")
            await terminal.press(*MENUS[name])
            await terminal.post("/input", text="SAY: plum")
            while (event := await stream.next()).data.get("text") != "plum":
                pass
            assert event.data["role"] == "agent"

            # The cockpit is loaded again, while the first one still watches.
            async with terminal.cockpit.stream(f"/sessions/{terminal.sid}/events") as late:
                messages = (await late.next()).data["messages"]
            spoken = [each for each in messages if each["role"] in ("user", "agent")]
            assert [each["text"] for each in spoken][-2:] == ["SAY: plum", "plum"]
            assert event.data["id"] == spoken[-1]["id"]
            await terminal.becomes("idle")

            session = SessionKey.parse((await terminal.get())["sessionKey"])
            message = session.message(id="chat", text="SAY: quince", timestamp=now_ms())
            accepted = await stack.fleet.inbound.append(message, agent="main", deliver="caller")
            await terminal.until_quiet()
            record = await terminal.get()
            assert (record["state"], record["viewers"]) == ("live", 1), "somebody watches"

        outcome = await stack.outcome(accepted)
        assert outcome.status == "done", "once nobody watches, the message takes the turn"
        await terminal.reaches("parked")
        await terminal.post("/resume")
        await terminal.starts(name)
        assert (await terminal.get())["name"] == "review"
        await terminal.post("/input", text="RECALL")
        await terminal.becomes("idle")

        answer = await terminal.until_says("RECALL")
        assert "plum" in answer, "it is the same conversation"
