"""The guide on adding a tool: the tests follow its steps, and the tool works."""

import ast
import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from remoteclaw.config.model import Config, Profile
from remoteclaw.config.tool_policy import SessionLimits, Subject, allowed_tools
from remoteclaw.gateway import methods
from remoteclaw.tools import catalog
from remoteclaw.tools.base import Tool
from tests.support.agents import ROOT
from tests.support.doors import Answer, calling, opened
from tests.support.promised import AGENTS, OPERATORS, Promise, schema_of
from tests.support.stack import Stack

GUIDE = (ROOT / "docs" / "guides" / "adding-a-tool.md").read_text()
FILES = re.findall(r"`(\w+)\.py` in `(\S+)/`:\n\n```python\n(.*?)```", GUIDE, re.DOTALL)
(ROW,) = re.findall(r"```python\n(\{.*?\})\n```", GUIDE)

#: A person whom the configuration does not mention.
PERSON = Subject(agent="main", channel="test", chat_id="alice", is_group=False, senders=("alice",))


def imported(
    place: list[str], text: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> ModuleType:
    """Import a file of the guide as a module of its room; `place` is its name and its room."""
    name, package = place[0], place[1].replace("/", ".")
    file = directory / f"{package}.{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"{package}.{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(sys.modules[package], name, module, raising=False)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def added(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Return the guide's tool, added as the guide describes."""
    declared, handled = (imported(place, text, directory, monkeypatch) for *place, text in FILES)
    tool: Tool
    (tool,) = declared.METHODS
    monkeypatch.setitem(catalog.METHODS, tool.name, tool)
    monkeypatch.setitem(catalog.TOOLS, tool.tool, tool)
    for name, handler in handled.HANDLERS.items():
        monkeypatch.setitem(methods.HANDLERS, name, handler)
    return tool


async def ask(stack: Stack, place: str, sender: str = "alice", **table: object) -> Answer:
    """Have an agent call the tool in a turn of `sender`, with the tool policy `table`."""
    stack.configure(channels={"test": {"tools": table}})
    async with (
        calling(stack, tools=["weather"], from_=sender, channel_id=sender) as agent,
        opened(stack, methods.HANDLERS) as door,
    ):
        return await door.invoke(agent.token, "weather", {"place": place})


async def test_an_agent_uses_the_tool_of_the_guide(stack: Stack, added: Tool) -> None:
    found = await ask(stack, "Oslo")
    nowhere = await ask(stack, "Atlantis", "bob")
    limited = await ask(stack, "Oslo", "carol", profile="limited")
    denied = await ask(stack, "Oslo", "dave", deny=["group:weather"])

    assert found.json["result"] == {"celsius": 4.5}
    assert nowhere.json["error"]["message"] == "There is no weather for 'Atlantis'."
    assert (limited.code, denied.code) == ("FORBIDDEN", "FORBIDDEN")


@pytest.mark.parametrize("profile", get_args(Profile))
def test_only_the_full_profile_includes_the_tool(added: Tool, profile: Profile) -> None:
    config = Config.model_validate({"tools": {"profile": profile}})

    assert allowed_tools(config, PERSON, [added]) == ({"weather"} if profile == "full" else set())


def test_subagents_may_use_the_tool(added: Tool) -> None:
    leaf = replace(PERSON, limits=SessionLimits(depth=Config().sessions.max_depth))

    assert allowed_tools(Config(), leaf, [added]) == {"weather"}


def test_the_registries_that_the_guide_names_exist() -> None:
    for registry, place in re.findall(r"Add the module to `(\w+)` in `(\S+)`", GUIDE):
        assert re.search(rf"^{registry}\b", (ROOT / place).read_text(), re.MULTILINE), place


def test_the_guides_row_of_rights_is_correct(added: Tool) -> None:
    (row,) = (Promise(*row) for row in ast.literal_eval(ROW).values())
    schema = schema_of(added)

    assert (row.tool, row.parameters.split()) == (added.tool, schema["required"])
    assert [len(part) for part in row.rights.split()] == [len(OPERATORS), len(AGENTS)]
    assert (row.rights, added.scope, added.owner_only) == ("YYYY YYFT", "read", False)
    assert schema["properties"]["place"]["description"] == "A town, such as Oslo."
