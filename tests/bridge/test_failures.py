"""The text of a failed turn: local channels show reason and remedy, others only a polite text."""

from pathlib import Path
from typing import Any

import pytest

from remoteclaw.bridge.failures import failure_text, remedy_of
from remoteclaw.config.home import Home
from remoteclaw.errors import ErrorCategory
from remoteclaw.events import ErrorEvent
from remoteclaw.messages import AgentDeliveryResult, Entry, McpServerConfig, SessionKey, Turn
from remoteclaw.protocols import AgentSpec
from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.session.notices import failed_result
from tests.support.bridges import agent_bridge, claude_script, demo_bridge, script
from tests.support.rows import for_each
from tests.support.stack import message


def turn_on(provider: str) -> Turn:
    asked = message("hello", provider=provider)
    return Turn(SessionKey.of(asked, agent="main"), (Entry(id="1-0", message=asked),))


def failure_reply(
    category: ErrorCategory, *, runtime: str = "claude", model: str | None = None, **env: str
) -> str:
    """Return the text about a failure that a person's own chat shows."""
    turn = turn_on("web")
    error = ErrorEvent(category, "")
    spec = AgentSpec(runtime=runtime, command=(runtime,), workspace="/", env=env, model=model)
    cli = create_cli_runtime(runtime)
    remedy = remedy_of(error, turn, reason="its `own` words", spec=spec, runtime=cli)
    return failure_text(error, turn, overdue=None, zone=None, remedy=remedy)


def said(result: AgentDeliveryResult) -> str:
    return "\n".join(payload.text for payload in result.payloads)


@for_each(
    ("category", "text"),
    [
        (ErrorCategory.RETRYABLE, "The model behind main is busy right now (R). Your message"),
        (ErrorCategory.UNREACHABLE, "over the network (R). Check the network and the proxy"),
        (ErrorCategory.USAGE_LIMIT, "plan allows for now (R). Send your message again when the"),
        (ErrorCategory.BILLING, "no credit or quota left (R). Top it up at its provider, or"),
        (ErrorCategory.DIED, "in the middle of your message (R). Part of the work may be done"),
        (ErrorCategory.FATAL, "your message (R). Send it again; `remoteclaw sessions trace "),
        (ErrorCategory.NOT_INSTALLED, "main can't be started: its `own` words. Then send your"),
        (ErrorCategory.TIMEOUT, "main took too long. Ask again"),
    ],
)
def test_each_failure_has_its_reason_and_its_remedy(category: ErrorCategory, text: str) -> None:
    assert text.replace("(R)", "(claude: `its 'own' words`)") in failure_reply(category)


def test_an_authentication_failure_explains_how_to_sign_in() -> None:
    assert "(claude: `its 'own' words`). Run `claude auth login`, " in failure_reply(
        ErrorCategory.AUTH
    )
    assert "Run `codex login`, or correct" in failure_reply(ErrorCategory.AUTH, runtime="codex")
    assert "Sign in to its CLI, on the computer" in failure_reply(ErrorCategory.AUTH, runtime="acp")


def test_a_refused_key_is_named_but_not_shown() -> None:
    text = failure_reply(
        ErrorCategory.AUTH, ANTHROPIC_API_KEY="swordfish", CLAUDE_CODE_OAUTH_TOKEN="x"
    )

    assert text.startswith("main's model refuses the key in ANTHROPIC_API_KEY (claude: ")
    assert "under [agents.main.env] or in the environment that RemoteClaw was started in" in text
    assert "or remove it and run `claude auth login`" in text
    assert "swordfish" not in text


def test_a_refused_model_is_reported_with_its_setting_and_how_to_list_models() -> None:
    text = failure_reply(ErrorCategory.UNKNOWN_MODEL, model="opus-9")
    assert "can't use the model `opus-9` (claude: " in text
    assert "Correct `model` under [agents.main], or in this session with /model (`claude`" in text
    assert "(`claude`, then /model, lists the available models); then send" in text

    text = failure_reply(ErrorCategory.UNKNOWN_MODEL, runtime="opencode")
    assert "Set `model` under [agents.main], or in this session with /model (`openc" in text


@pytest.mark.parametrize("provider", ["web", "telegram"])
async def test_a_refused_model_that_was_chosen_in_a_chat_is_reset_there(
    home: Home, directory: Path, provider: str
) -> None:
    body = "while turn(): say(type='done', error='no such model', category='unknown_model')"
    async with demo_bridge(home, command=script(directory, body)) as (bridge, _, _):
        chosen = await bridge.handle(turn_on(provider), model="o`pus-9")
        configured = await bridge.handle(turn_on(provider))
        turn = turn_on(provider)
        of_task = await bridge.handle(turn, model="haiku", model_setting="task_model")

    assert said(chosen).startswith("main's account can't use the model `o'pus-9`, which was chosen")
    assert "chosen here with /model" in said(chosen)
    assert "`/model default` goes back to the usual one; then send your message" in said(chosen)
    assert "[agents.main]" not in said(chosen)
    assert ("(demo: `no such model`)" in said(chosen)) is (provider == "web")
    assert "`model` under [agents.main]" in said(configured)
    assert "`task_model` under [agents.main]" in said(of_task)
    assert "/model" not in said(of_task)


async def test_the_reason_of_a_failure_has_no_secrets(home: Home, directory: Path) -> None:
    detail = "Wrong key swordfish-1234.\\nAsk at \\x1b[31m the desk."
    command = script(directory, f"turn(); say(type='done', error='{detail}', category='auth')")
    env = {"MY_KEY": "swordfish-1234"}
    async with demo_bridge(home, command=command, env=env) as (bridge, _, _):
        result = await bridge.handle(turn_on("web"))

    assert "(demo: `Wrong key [secret]. Ask at [31m the desk.`). Sign in" in said(result)


@pytest.mark.parametrize("provider", ["web", "cli"])
async def test_local_channels_show_the_reason_of_a_failure(home: Home, provider: str) -> None:
    async with demo_bridge(home, command=("no-such-agent",)) as (bridge, _, _):
        result = await bridge.handle(turn_on(provider))

    assert said(result).startswith(
        "main can't be started: 'no-such-agent' was not found: install it, or correct the agent's "
        "command. Then send your message again. ("
    )
    failed = failed_result(
        turn_on(provider), ErrorCategory.NOT_INSTALLED, "There is no [agents.x]."
    )
    assert "main can't be started: There is no [agents.x]. Then" in said(failed)


async def test_other_channels_do_not_show_the_reason_of_a_failure(home: Home) -> None:
    async with demo_bridge(home, command=("no-such-agent",)) as (bridge, _, _):
        result = await bridge.handle(turn_on("telegram"))

    assert said(result).startswith(
        "main can't be started on its computer. There, `remoteclaw sessions trace "
    )
    assert result.reason == ""
    failed = failed_result(turn_on("telegram"), ErrorCategory.NOT_INSTALLED, "a secret place")
    assert "a secret place" not in said(failed)


#: A claude that cannot connect one of its MCP servers, and answers.
LACKS = """
heard('control_request')
heard('control_request')
asked = heard('control_request')
errors = {'web': 'connection refused: `swordfish-1234`', 'remoteclaw': 'x'}
answer = {'request_id': asked['request_id'], 'response': {'errors': errors}}
say(type='control_response', response=answer)
while True:
    echo(heard())
    result('fine')
"""


async def test_a_missing_mcp_server_is_reported_once_and_only_on_local_channels(
    home: Home, directory: Path
) -> None:
    lacking: dict[str, Any] = {
        "command": claude_script(directory, LACKS),
        "env": {"WEB_KEY": "swordfish-1234"},
        "mcp_servers": {"web": McpServerConfig(url="http://127.0.0.1:1")},
    }
    async with agent_bridge(home, "claude", **lacking) as (bridge, _, _):
        here = [await bridge.handle(turn_on("web")) for _ in range(2)]
    async with agent_bridge(home, "claude", **lacking) as (bridge, _, _):
        far = await bridge.handle(turn_on("telegram"))

    assert said(here[0]) == (
        "fine\n(main works without the MCP server `web`, which claude could not connect "
        "(`connection refused: '[secret]'`): correct it under [agents.main.mcp_servers], or in "
        "claude's own settings.)"
    )
    assert [said(here[1]), said(far)] == ["fine", "fine"]
