"""Changes of the model in a warm agent: the turn behind each, and a warm turn in the same run."""

import itertools

from remoteclaw.messages import SessionKey
from tests.bench.asides import seconds
from tests.bench.gateway import RowParts
from tests.support.agents import AgentCli
from tests.support.stack import Stack, message

#: Two models of each CLI whose changes are measured.
MODELS = {
    "claude": ("claude-haiku-4-5", "claude-sonnet-4-5"),
    "gemini": ("gemini-2.5-pro", "gemini-2.5-flash"),
}


async def bench_model(stack: Stack, cli: AgentCli, rounds: int) -> RowParts:
    """Measure turns behind a change of the model, and other ones, alternately."""
    stack.configure(cli.config(), linger_s=30)
    if not stack.workers:
        await stack.start_worker()
    session = SessionKey.of(message("x"), agent="main")
    ours: list[float] = []
    baseline: list[float] = []
    for model in itertools.islice(itertools.cycle(MODELS[cli.name]), rounds + 1):
        await stack.fleet.sessions.choose_model(session, model)
        ours.append(await seconds(stack, "SAY:x"))
        baseline.append(await seconds(stack, "SAY:x"))
    return f"{cli.name}, a turn after /model", "its warm turn", ours[1:], baseline[1:], "≤ 1.2 ×"
