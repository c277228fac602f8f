"""A conversation that continues while its agent works, with the real CLIs and one worker."""

import uuid
from pathlib import Path

import pytest

from remoteclaw.runtimes import CLIS, create_cli_runtime
from tests.conftest import required
from tests.support.agents import AgentCli, ModelServerProcess
from tests.support.prefixes import asked
from tests.support.stack import Stack, said
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
