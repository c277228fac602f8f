"""The life of a message in the logs of a fleet, found by its reference."""

import re
from pathlib import Path

from tests.support.bridges import claude_script
from tests.support.cli import run
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot
from tests.support.telegram.channel import ANN, Channel
from tests.support.waiting import eventually

#: A claude whose model is busy at the first try, and which fails if the message asks it to.
AGENT = """
while True:
    message = heard()
    echo(message)
    if 'break' in json.dumps(message):
        result('a secret of the CLI', is_error=True)
    elif not os.path.exists('tried'):
        open('tried', 'w')
        result('busy', is_error=True, api_error_status=529)
    else:
        result('the answer', usage=dict(input_tokens=1200, output_tokens=34))
"""
SECRETS = ("confidential", "the answer", "a secret of the CLI")


def life_of(stack: Stack, reference: str) -> list[str]:
    """Return the lines of all logs that name a message, in order, without time and module."""
    lines = [
        line
        for file in stack.home.logs.glob("*.log")
        for line in file.read_text().splitlines()
        if reference in line
    ]
    return [line.partition(f" {reference}")[2] for line in sorted(lines)]


async def test_the_reference_of_a_message_finds_its_whole_life_in_the_logs(
    stack: Stack, bot: TelegramBot, directory: Path
) -> None:
    """An adapter and two workers; the turn is retried once."""
    stack.agent = {"runtime": "claude", "command": list(claude_script(directory, AGENT))}
    channel = Channel(stack, bot)
    for _ in range(2):
        await stack.start_worker()
    channel.start()
    try:
        bot.fault("sendMessage", "held")
        bot.say("confidential", chat=ANN)
        await eventually(bot.held)
        (session,) = await stack.fleet.sessions.list(limit=9)
        reference = f"{session.sid[:8]}-{session.last_entry}"
        await eventually(lambda: "ends" in "".join(life_of(stack, reference)))
        bot.release()
        await eventually(lambda: "delivered" in "".join(life_of(stack, reference)))
        bot.say("break", chat=ANN)
        told = await eventually(lambda: re.findall(r"\((\S+-\d+-\d+)\)", bot.texts(ANN)[-1]))
        await eventually(lambda: "delivered" in "".join(life_of(stack, told[0])))
    finally:
        channel.end()

    accepted, begins, waits, ends, delivered = life_of(stack, reference)
    assert accepted == ": accepted from telegram/default for main"
    assert re.fullmatch(r": begins: main in telegram, attempt 1, worker \S+ on \S+", begins)
    assert re.fullmatch(r": waits for [12]\.\d s: retryable", waits)
    assert re.fullmatch(
        r": ends: main in telegram, done, \d+\.\d s, 1200 tokens read, 34 written", ends
    )
    assert delivered == ": delivered to telegram/default"

    assert ": ends: main in telegram, failed (fatal), " in "".join(life_of(stack, told[0]))
    assert told[0] in run(stack, "sessions", "trace", told[0]).stdout
    logs = "".join(file.read_text() for file in stack.home.logs.glob("*.log"))
    assert [secret for secret in (*SECRETS, bot.token) if secret in logs] == []
