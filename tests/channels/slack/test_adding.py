"""`remoteclaw channel add slack` in a terminal, and the app's manifest."""

import re
import tomllib
from inspect import getsource
from pathlib import Path
from typing import Any

from remoteclaw.channels.slack.events import Reader
from remoteclaw.channels.slack.manifest import BOT_SCOPES, EVENTS, LINK, MANIFEST
from remoteclaw.config.home import Home
from tests.support.agents import ROOT
from tests.support.command import REMOTECLAW
from tests.support.slack import SlackWorkspace
from tests.support.slack.limits import OF_EVENT, OF_KIND, SCOPES
from tests.support.stack import Stack
from tests.support.terminal import Terminal

#: Scopes that no single call or event needs, with the reason.
WITHOUT_CALL = {
    "assistant:write": "the status line, until Slack takes chat:write for it everywhere",
    "commands": "the slash command of the manifest",
    "im:write": "a message to a person with whom the app has no direct chat yet",
}


def test_a_stranger_adds_an_app_in_a_terminal_and_gives_it_new_tokens(
    stack: Stack, team: SlackWorkspace, ann: str
) -> None:
    team.set(scopes=[*(BOT_SCOPES - {"pins:write"})], limit_scale=100)
    chat, bot, app = team.direct(ann), team.bot_token, team.app_token
    command = (REMOTECLAW, "channel", "add", "slack")
    options = ("--api-url", team.api_url)
    with Terminal.running(*command, *options, env=stack.env(), columns=200) as terminal:
        terminal.see("Bot token (it is not shown)")
        terminal.type(f"\r{app}\r '{bot}' \r{bot}\r{app}\rn\r")
        terminal.see("This first message gets no answer.")
        team.say(chat, ann, "hello")
        terminal.see("Is that you?")
        terminal.type("\r")

        assert terminal.leave() == 0
        words = terminal.words()
    assert f"\n{LINK}\r\n" in terminal.raw.decode(), "it stands alone, for a click"
    assert words.count("This is not a bot token, which begins with xoxb-.") == 2
    assert "This is not an app-level token, which begins with xapp-." in words
    assert "The app lacks the scopes pins:write:" in words
    assert "then @claw in Tests answers." in words
    assert secrets(stack.home) == {bot, app}
    assert not {secret for secret in (bot, app) if secret.encode() in terminal.raw}

    team.rotate()
    with Terminal.running(*command, env=stack.env(), columns=200) as terminal:
        terminal.see("Give it a new bot token and a new app-level token?")
        terminal.type(f"\r{team.bot_token}\r{team.app_token}\r")

        assert terminal.leave() == 0
    assert "slack/default is refused: The token is revoked" in terminal.words()
    assert LINK not in terminal.raw.decode(), "the app is there already"
    assert secrets(stack.home) == {team.bot_token, team.app_token}
    assert configured(stack.home)["owners"] == [ann]


def configured(home: Home) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(home.config_file.read_text())["channels"]["slack"]
    return table


def secrets(home: Home) -> set[str]:
    table = configured(home)
    return {Path(table[name]).read_text().strip() for name in ("token_file", "app_token_file")}


def test_the_manifest_asks_for_what_the_adapter_uses_and_for_nothing_else() -> None:
    code = "\n".join(each.read_text() for each in (ROOT / "remoteclaw/channels/slack").glob("*.py"))
    called = set(re.findall(r'"([a-z]+\.[a-zA-Z.]+)",?\s', code)) & SCOPES.keys()
    cases = re.findall(r'case ("[\w" |]*")', getsource(Reader.event))
    read = set(re.findall(r"\w+", "".join(cases)))
    events = read - {"message"} | {f"message.{kind}" for kind in OF_KIND.values()}

    assert events == EVENTS
    needed = {SCOPES[method][0] for method in called} | set(OF_EVENT.values())
    needed |= {f"{kind}:{word}" for kind in OF_KIND.values() for word in ("history", "read")}
    assert needed | WITHOUT_CALL.keys() == BOT_SCOPES
    assert MANIFEST["settings"]["socket_mode_enabled"]
    assert MANIFEST["settings"]["interactivity"]["is_enabled"]
    assert not MANIFEST["settings"]["token_rotation_enabled"]
    assert LINK in (ROOT / "docs/slack.md").read_text()
