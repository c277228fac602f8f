"""A conversation that continues while its agent works, with the real CLIs and one worker."""

import uuid
from pathlib import Path

import pytest

from remoteclaw.runtimes import CLIS, create_cli_runtime
from remoteclaw.session.asides import WAITS
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.prefixes import asked
from tests.support.stack import REPLIES, Stack, said
from tests.support.waiting import eventually

#: opencode takes as long as the others together; `test_conversation.py` tests its asides.
ASIDES = [name for name in CLIS if name != "opencode"]


@pytest.fixture(params=ASIDES)
def cli(request: pytest.FixtureRequest, model_server: ModelServerProcess) -> AgentCli:
    return required(request.param, model_server)


@pytest.mark.thorough("claude", "gemini")
async def test_a_conversation_continues_while_its_agent_works(
    cli: AgentCli, stack: Stack, directory: Path
) -> None:
    stack.configure(cli.config(permissions="auto"), queue={"mode": "aside", "debounce_ms": 0})
    await stack.start_worker()
    assert await stack.ask("my colour is green SAY:noted") == "noted"
    began, go_on = directory / "began", directory / "go on"
    work = await stack.append(
        "refactor the auth module "
        f"SHELL:touch '{began}'; until test -e '{go_on}'; do sleep 0.1; done"
    )
    await eventually(began.exists)

    question = await stack.append(f"what is 2+2? {uuid.uuid4().hex} VERDICT:answered 4")
    assert said(await stack.outcome(question)) == "4"

    async def request_with_running_tool() -> str:
        """Ask about the progress; return the model's request if it names the running tool."""
        how = f"how far are you? {uuid.uuid4().hex}"
        far = await stack.append(f"{how} VERDICT:answered I wait for a file.")
        assert said(await stack.outcome(far)) == "I wait for a file."
        body = str(asked(cli.model, how))
        line = body.partition(how)[0].rpartition("[remoteclaw ")[2]
        return body if "until test -e" in line.partition("doing")[2] else ""

    body = await eventually(
        request_with_running_tool
    )  # codex reports a command seconds after its start
    assert "my colour is green" in body
    more = await stack.append("and the tests too VERDICT:work I take them in.")
    if create_cli_runtime(cli.name).capabilities.steers:
        await stack.reached(more, "steered")
    else:
        await stack.reached(more, "verdict")
        assert WAITS in str(await stack.fleet.scripts.client.xrange(REPLIES))
    lost = await stack.append("say nothing useful SAY:Let me check that.")
    await stack.reached(lost, "verdict")
    go_on.touch()

    assert (await stack.outcome(work)).status == "done"
    assert (await stack.outcome(more)).status in ("steered", "done")
    assert said(await stack.outcome(lost)).endswith("Let me check that.")  # a turn answers it, once
    recall = await stack.ask("RECALL")
    assert "my colour is green" in recall

    began.unlink()
    work = await stack.append(f"and once more SHELL:touch '{began}'; sleep 600")
    await eventually(began.exists)
    stop = await stack.append("stop that VERDICT:stop")
    assert (await stack.outcome(work)).status == "stopped"
    assert (await stack.outcome(stop)).status == "done"


#: The limits from which the CLIs summarize a conversation.
SMALL: dict[str, tuple[dict[str, str], list[str]]] = {
    "claude": ({"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"}, []),
    "codex": ({}, ["-c", "model_auto_compact_token_limit=90000"]),
}


@pytest.mark.parametrize("name", SMALL)
async def test_no_message_has_the_conversation_summarized_once_more(
    name: str, stack: Stack, directory: Path, model_server: ModelServerProcess
) -> None:
    """They wait in a turn that begins with a compaction; the last answer is not repeated."""
    cli = required(name, model_server)
    config = cli.config(permissions="auto")
    env, options = SMALL[name]
    config["command"] += options
    config["env"] |= env
    stack.configure(config, queue={"mode": "aside", "debounce_ms": 0})
    await stack.start_worker()
    await stack.ask("SAY:noted")
    assert "END-OF-LONG" in await stack.ask("USED:99000 LONG:40000")
    began, go_on, number = directory / "began", directory / "go on", len(cli.model.requests())

    work = await stack.append(
        f"work SHELL:touch '{began}'; until test -e '{go_on}'; do sleep 0.1; done"
    )
    await stack.reached(work, "spawned")
    early = await stack.append("early SAY:answered early")
    await stack.reached(early, "verdict")
    await eventually(began.exists)
    late = await stack.append("late SAY:answered late")
    await stack.reached(late, "verdict")
    go_on.touch()
    answers = [said(await stack.outcome(each)) for each in (early, late)]

    requests = cli.model.requests()[number:]
    assert not any('{"aside":' in request["last"] for request in requests)
    assert not any("END-OF-LONG" in answer for answer in answers)
    assert "answered early" in answers[0]
    # A copy of codex begins to summarize before it is stopped.
    assert len([request for request in requests if request["is_summary"]]) == 1 or name == "codex"
