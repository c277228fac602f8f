"""Compactions of an idle session: when they are due, and what ends them."""

from typing import Any

import pytest

from remoteclaw.events import ContextSize
from remoteclaw.fleet import keys
from remoteclaw.fleet.sessions.state import ConversationSize
from remoteclaw.messages import SessionKey
from remoteclaw.session.idle import after_attempt, is_due
from remoteclaw.session.notices import MADE_ROOM
from remoteclaw.session.record import read_lines
from tests.support.bridges import claude_script
from tests.support.stack import Stack, message, said
from tests.support.waiting import eventually


def size(used: int, limit: int = 200_000, attempts: int = 0, at: int = 0) -> ConversationSize:
    return ConversationSize(ContextSize(used, limit), "id", attempts, at)


@pytest.mark.parametrize(
    ("context", "compact_at", "due"),
    [
        (size(150_000), 0.75, True),
        (size(149_999), 0.75, False),
        (size(200_000), 0.0, False),
        (size(99_999, 99_999), 0.75, False),
        (None, 0.75, False),
        (size(160_000, attempts=1, at=160_000), 0.75, True),
        (size(160_000, attempts=2, at=160_000), 0.75, False),
        (size(175_999, attempts=2, at=160_000), 0.75, False),
        (size(176_000, attempts=2, at=160_000), 0.75, True),
    ],
)
def test_a_compaction_is_due_by_size_and_put_off_after_two_attempts(
    context: ConversationSize | None, compact_at: float, due: bool
) -> None:
    assert is_due(context, compact_at) is due


def test_attempts_count_until_the_conversation_has_grown_by_a_tenth() -> None:
    first = after_attempt(size(150_000))
    second = after_attempt(size(160_000, attempts=1, at=150_000))
    third = after_attempt(size(165_000, attempts=2, at=150_000))

    assert (first.attempts, first.attempted_at) == (1, 150_000)
    assert (second.attempts, second.attempted_at) == (2, 150_000)
    assert (third.attempts, third.attempted_at) == (1, 165_000)


#: A claude with a conversation of 160,000 tokens. It summarizes it once the file `go` exists, or is
#: interrupted, and logs both.
AGENT = """
import select
size = 160_000
pipe = open(0, 'rb', buffering=0, closefd=False)
def log(line):
    with open('log', 'a') as file: file.write(line + chr(10))
def is_interrupted():
    while not os.path.exists('go'):
        if select.select([0], [], [], 0.01)[0]:
            message = json.loads(pipe.readline())
            if message.get('request', {}).get('subtype') == 'interrupt': return True
    return False
def lines():
    while line := pipe.readline(): yield line.decode()
sys.stdin = lines()
while True:
    message = heard()
    text = message['message']['content'][0]['text'].split(chr(10))[-1]
    log(text)
    if text == '/compact':
        say(type='system', subtype='status', status='compacting')
        if is_interrupted():
            log('interrupted')
            say(type='system', subtype='status', compact_result='failed')
            result('', num_turns=0)
            continue
        say(type='system', subtype='compact_boundary',
            compact_metadata=dict(trigger='manual', pre_tokens=160_000, post_tokens=9_000))
        say(type='user', isSynthetic=True, message=dict(content='what was said'))
        size = 9_000
        result('', num_turns=0, modelUsage=dict(m=dict(inputTokens=160_100, outputTokens=50)))
        continue
    echo(message)
    result(text, session_id='00000001-0000-0000-0000-000000000000',
           modelUsage=dict(m=dict(inputTokens=100, outputTokens=10)))
"""


class Idle:
    """A session whose agent begins to summarize the conversation after each answer."""

    def __init__(self, stack: Stack, **agent: Any) -> None:
        self.stack = stack
        self.work = stack.home.workspaces / "main"
        stack.configure(
            {"runtime": "claude", "command": list(claude_script(stack.home.path, AGENT)), **agent}
        )

    def log(self) -> list[str]:
        file = self.work / "log"
        return file.read_text().splitlines() if file.exists() else []

    async def begins(self, count: int = 1) -> None:
        await eventually(lambda: self.log().count("/compact") == count)

    def go(self) -> None:
        (self.work / "go").touch()


async def test_a_message_interrupts_a_compaction_and_is_answered_by_the_same_process(
    stack: Stack,
) -> None:
    idle = Idle(stack)
    await stack.start_worker()
    first = await stack.append("one")
    await idle.begins()

    second = await stack.append("two")
    assert said(await stack.outcome(second)) == "two"
    await idle.begins(2)
    third = await stack.append("three")
    assert said(await stack.outcome(third)) == "three"
    await stack.until_idle(third)

    assert idle.log() == [
        "one",
        "/compact",
        "interrupted",
        "two",
        "/compact",
        "interrupted",
        "three",
    ]
    assert await record_of(stack, first, "notice") == []


async def record_of(stack: Stack, accepted: Any, role: str) -> list[str]:
    lines = read_lines(await stack.fleet.records.of(accepted.session.sid))
    return [line["text"] for line in lines if line["role"] == role]


async def test_a_summary_is_recorded_and_counted_and_told_with_the_next_answer(
    stack: Stack,
) -> None:
    idle = Idle(stack)
    idle.work.mkdir(parents=True)
    idle.go()
    await stack.start_worker()
    first = await stack.append("one")
    await stack.until_idle(first)

    view = await stack.fleet.sessions.view(first.session.sid)
    assert view is not None
    assert view.size == ContextSize(9_000, 200_000)
    change = "The conversation was summarized (160,000 → 9,000 tokens)."
    assert await record_of(stack, first, "notice") == [change]
    assert await record_of(stack, first, "summary") == ["what was said"]
    (used,) = (await stack.fleet.usage.agents()).values()
    assert (used.turns, used.input_tokens, used.output_tokens) == (1, 160_100, 50)
    assert await stack.ask("two") == f"two\n\n{MADE_ROOM}"
    assert await stack.ask("three") == "three"


async def test_any_hint_of_another_session_ends_a_compaction(stack: Stack) -> None:
    """Also one of the background lane, which waits for a message otherwise."""
    idle = Idle(stack)
    await stack.start_worker()
    await stack.append("one")
    await idle.begins()

    other = await stack.append("other", lane="background", channel_id="other")
    assert said(await stack.outcome(other)) == "other"

    assert idle.log()[:4] == ["one", "/compact", "interrupted", "other"]


@pytest.mark.parametrize("agent", [{"compact_at": 0}, {"compact_at": 0.81}])
async def test_compact_at_decides_from_when_on(stack: Stack, agent: dict[str, Any]) -> None:
    idle = Idle(stack, **agent)
    await stack.start_worker()
    first = await stack.append("one")
    await stack.until_idle(first)

    assert idle.log() == ["one"]


async def test_a_conversation_with_an_unfinished_task_is_left_alone(stack: Stack) -> None:
    idle = Idle(stack)
    first = await stack.append("one")
    child = SessionKey.of(message("a task", channel_id="child"), agent="main")
    task = await stack.write(child, "a task", "session")  # nothing tells a worker of it
    client: Any = stack.fleet.scripts.client
    await client.zadd(keys.children(first.session.sid), {child.sid: 1})
    await client.hset(keys.state(child.sid), "task_entry", task)

    await stack.start_worker()
    await stack.until_idle(first)

    assert idle.log() == ["one"]


async def test_nothing_is_summarized_once_a_budget_is_used_up(stack: Stack) -> None:
    idle = Idle(stack)
    budget = '[[budgets]]\nof = "all"\ntokens = 100\nper = "day"\n'
    stack.home.config_file.write_text(f"{stack.home.config_file.read_text()}\n{budget}")
    await stack.start_worker()
    first = await stack.append("one")
    await stack.until_idle(first)

    assert idle.log() == ["one"]
