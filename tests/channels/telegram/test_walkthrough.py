"""End to end: a person in Telegram, `remoteclaw channel run`, a worker, an agent, and back."""

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.channels.changes import EDIT_LATE
from remoteclaw.fleet import keys
from remoteclaw.fleet.turns.inbound import decode_entry
from remoteclaw.gateway.methods.messages import HANDLERS
from remoteclaw.messages import SessionKey
from tests.support.agents import AgentCli
from tests.support.bridges import script
from tests.support.cli import run
from tests.support.conversations import AGENT, prompts
from tests.support.stack import Stack
from tests.support.telegram import TelegramBot, file
from tests.support.telegram.channel import ANN, GROUP, Channel
from tests.support.turns import ask, gateway, operator
from tests.support.waiting import HANG_S, eventually


@pytest.fixture
def channel(stack: Stack, bot: TelegramBot) -> Iterator[Channel]:
    channel = Channel(stack, bot)
    yield channel
    channel.end()
    assert bot.token not in channel.log.read_text()


async def settled(stack: Stack) -> None:
    """Wait until every reply has its receipt."""
    client: Any = stack.fleet.scripts.client

    async def is_empty() -> bool:
        return not await client.xlen(keys.replies("telegram", "default"))

    await eventually(is_empty)


async def test_a_person_writes_in_telegram_and_the_agent_answers(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    bot.say("hello", chat=ANN)
    await eventually(lambda: "message 1 of our conversation" in "".join(bot.texts(ANN)))
    bot.say("look", chat=ANN, files=[file("plan.txt", b"the plan")])
    await eventually(lambda: "I have plan.txt" in bot.texts(ANN)[-1])
    bot.say("/status", chat=ANN)
    await eventually(lambda: bot.texts(ANN)[-1].startswith("Idle."))
    bot.say("file", chat=ANN)
    await eventually(lambda: bot.files(ANN))

    assert bot.files(ANN).keys() == {"hello-from-the-demo.txt"}
    assert {"status", "stop"} <= {one["command"] for one in bot.commands()}
    assert not [call for call in bot.calls() if "refused" in call]


async def test_a_message_in_a_group_shows_its_state_as_a_reaction_of_the_bot(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    channel.start()
    message = bot.say(f"@{bot.username} hello", chat=GROUP, by=ANN)

    async def shows(emoji: str) -> None:
        def shown() -> list[str]:
            return [
                one.get("reaction", "") for one in bot.chat(GROUP) if one["message_id"] == message
            ]

        await eventually(lambda: shown() == [emoji])

    await shows("👀")
    await stack.start_worker()
    await shows("👍")
    assert not [call for call in bot.calls() if "refused" in call]


async def test_a_reply_to_a_picture_or_file_reaches_the_agent_with_it(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    """In a group, the agent has not received the file before; the bot's own file is a file, too."""
    await stack.start_worker()
    channel.start()
    picture = bot.say(chat=GROUP, by=8, files=[file("x", b"picture", kind="photo")])
    bot.say(f"@{bot.username} what is this?", chat=GROUP, by=9, reply_to=picture)
    await eventually(lambda: f"I have photo-{picture}.jpg" in "".join(bot.texts(GROUP)))
    bot.say("file", chat=ANN)
    await eventually(lambda: bot.files(ANN))
    (sent,) = [one["message_id"] for one in bot.chat(ANN) if "document" in one]
    bot.say("what is in it?", chat=ANN, reply_to=sent)

    await eventually(lambda: "I have hello-from-the-demo.txt" in "".join(bot.texts(ANN)))
    await settled(stack)


async def test_a_very_long_answer_is_few_messages_and_a_file(
    stack: Stack, bot: TelegramBot, directory: Path
) -> None:
    body = (
        "turn()\n"
        "for number in range(150): say(type='text', text=f'{number} ' + 'word ' * 199 + '\\n\\n')\n"
        "say(type='done')\n"
        "turn()\n"
    )
    channel = Channel(stack, bot)
    channel.configure(agent={"runtime": "demo", "command": list(script(directory, body))})
    await stack.start_worker()
    process = channel.start()
    try:
        bot.fault("sendDocument", "held")
        bot.say("go", chat=ANN)
        await eventually(bot.held)
        process.kill()
        process.wait()
        bot.release()
        channel.start()
        await eventually(lambda: bot.files(ANN))
        await settled(stack)
    finally:
        channel.end()

    ours = [one for one in bot.chat(ANN) if one["from"]["id"] == bot.id]
    assert len(ours) == 8, "50 without the limit"
    (whole,) = bot.files(ANN).values()
    assert whole.decode().split("\n\n") == [
        *(f"{number} " + "word " * 199 for number in range(150)),
        "",
    ]
    assert bot.texts(ANN)[0].startswith("0 word")
    assert bot.texts(ANN)[-2].split()[-200] == "149"


async def test_long_code_is_shown_by_its_beginning_and_sent_as_a_file(
    stack: Stack, bot: TelegramBot, directory: Path
) -> None:
    """Also where the group allows no files: then as text."""
    body = (
        "code = ''.join(f'step({number})\\n' for number in range(400))\n"
        "while turn():\n"
        "    for piece in ('Here it is:\\n\\n', '```python run.py\\n', code, '```\\n', 'Good?'):\n"
        "        say(type='text', text=piece)\n"
        "    say(type='done')\n"
    )
    channel = Channel(stack, bot)
    channel.configure(agent={"runtime": "demo", "command": list(script(directory, body))})
    await stack.start_worker()
    channel.start()
    try:
        bot.say("go", chat=ANN)
        await eventually(lambda: bot.texts(ANN)[-1:] == ["Good?"])
        shown = bot.texts(ANN)
        bot.fault("sendDocument", "refused", code=400, description="Bad Request: no files here")
        bot.say("go", chat=ANN)
        await eventually(lambda: bot.texts(ANN).count("Good?") == 2)
        await settled(stack)
    finally:
        channel.end()

    code = "".join(f"step({number})\n" for number in range(400))
    assert shown[0].startswith("Here it is:\n\nstep(0)\nstep(1)\n")
    assert shown[0].endswith("step(9)\n\n(… 400 lines: run.py)")
    assert bot.files(ANN) == {"run.py": code.encode()}
    again = "\n".join(bot.texts(ANN))
    assert "The file run.py could not be sent: " in again
    assert "step(399)" in again


async def test_a_burst_in_a_group_is_one_turn_and_delays_no_direct_chat(
    stack: Stack, bot: TelegramBot, directory: Path
) -> None:
    """Five people write twelve messages to each other: one question to the agent, one answer."""
    people = (ANN, 8, 9, 10, 11)
    about = {
        "allow": [str(person) for person in people],
        "groups": {str(GROUP): {"require_mention": False}},
    }
    channel = Channel(stack, bot, settings=about)
    # The time limits are long, so that only the twelfth message ends the wait.
    queue = {"debounce_ms": 0, "gather_ms": 60_000, "gather_most_ms": 60_000, "cap": 12}
    agent = {"runtime": "demo", "command": list(script(directory, AGENT))}
    channel.configure(agent=agent, queue=queue)
    await stack.start_worker()
    channel.start()
    try:
        for person in people:
            bot.say(f"I am {person}", chat=person, by=person)
        for person in people:
            await eventually(lambda: f"heard I am {person}," in "".join(bot.texts(person)))  # noqa: B023
        for number in range(12):
            bot.say(f"message {number}", chat=GROUP, by=people[number % 5])
        await eventually(lambda: "heard message 0 + " in "".join(bot.texts(GROUP)))
        await settled(stack)
    finally:
        channel.end()

    (answer,) = bot.texts(GROUP)
    assert answer == f"heard {' + '.join(f'message {n}' for n in range(12))}, knew -"
    assert prompts(stack).count("message 0") == 1


async def test_a_stranger_and_a_group_are_answered_as_configured(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    bot.say("let me in", chat=9)
    await eventually(lambda: "Your code is" in "".join(bot.texts(9)))
    bot.say("talking to others", chat=GROUP, by=8)
    bot.say(f"@{bot.username} hello", chat=GROUP, by=8)
    # The text may appear in a preview first.
    await eventually(lambda: "message 1 of our conversation" in "".join(bot.texts(GROUP)))
    await settled(stack)

    assert len(bot.texts(9)) == len(bot.texts(GROUP)) == 1


async def test_the_access_of_a_group_ends_when_the_bot_is_removed_from_it(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    other = {"id": -100_600, "type": "supergroup", "title": "Others"}
    ann = {"id": ANN, "is_bot": False, "first_name": "Ann"}

    def change(status: str, chat: dict[str, Any]) -> None:
        now = {"user": {"id": bot.id, "is_bot": True, "first_name": "Bot"}, "status": status}
        bot.tell({"my_chat_member": {"chat": chat, "from": ann, "date": 1, "new_chat_member": now}})

    channel.start()
    bot.say(f"/pair@{bot.username}", chat=-100_600, by=ANN)
    await eventually(lambda: "Everybody in this group" in "".join(bot.texts(-100_600)))
    change("administrator", other)
    change("kicked", {"id": 8, "type": "private", "first_name": "Bo"})
    change("kicked", other)
    change("member", other)
    bot.say(f"@{bot.username} hello", chat=-100_600, by=ANN)
    await eventually(lambda: "This group has no access yet" in bot.texts(-100_600)[-1])

    log = channel.log.read_text()
    assert "7 removed telegram/default from the group -100600: it has no access any more" in log
    assert log.count("is left out: a change of the bot's membership (private, kicked)") == 1
    assert not await stack.fleet.pairings.list()


async def test_a_voice_message_is_transcribed_silently_and_answered(
    stack: Stack, bot: TelegramBot
) -> None:
    channel = Channel(stack, bot, settings={"transcribe": ["cat"]})
    await stack.start_worker()
    channel.start()
    try:
        bot.say(chat=ANN, files=[file("", b"how are you", kind="voice")])
        await eventually(lambda: "I have voice-1.ogg" in "".join(bot.texts(ANN)))
        await settled(stack)
    finally:
        channel.end()

    assert len(bot.texts(ANN)) == 2
    (echo,) = [call for call in bot.calls("sendMessage") if "You said" in call["text"]]
    assert (echo["text"], echo["disable_notification"]) == ("You said: how are you", "true")


async def read(stack: Stack, chat: int, thread: str | None = None) -> list[dict[str, Any]]:
    """Return a chat's messages as an agent reads them, once all replies are delivered."""
    await settled(stack)
    door = gateway(stack.fleet, stack.home, HANDLERS)
    key = SessionKey("main", "telegram", "default", str(chat), "7", thread)
    history, _ = await ask(door, operator("read"), "message.read", session_key=str(key))
    assert "passed through RemoteClaw" in history["note"]
    return list(history["messages"])


async def test_telegram_messages_are_read_back_with_their_reactions(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    channel.start()
    asked = bot.say("hello", chat=ANN)
    await eventually(lambda: "message 1 of our conversation" in "".join(bot.texts(ANN)))
    bot.say("let me in", chat=9)
    await settled(stack)
    (answer,) = [one["message_id"] for one in bot.chat(ANN) if one["from"]["id"] == bot.id]
    bot.react("👍", chat=ANN, message=answer)
    bot.react("👎", chat=ANN, message=answer, by=9, name="Bo")  # he has no access
    bot.react("🔥", chat=ANN, message=asked)  # to the sender's own message
    edited = bot.say("look again", chat=ANN, edits=asked, name="Ann")
    await eventually(lambda: EDIT_LATE in bot.texts(ANN))

    first, second, third, fourth = await read(stack, ANN)
    assert (first["id"], first["from"], first["name"], first["text"]) == (
        str(asked),
        "7",
        "Ann",
        "hello",
    )
    assert first["at"] == bot.chat(ANN)[0]["date"] * 1000
    assert (second["id"], second["from"]) == (str(answer), "you")
    assert second["reactions"] == [{"from": "7", "name": "Ann", "emoji": "👍"}]
    assert "message 1 of our conversation" in second["text"]
    assert (third["replaces"], third["text"], third["reactions"]) == (str(edited), "look again", [])
    assert fourth["from"] == "you"

    bot.react("", chat=ANN, message=answer)
    bot.say("/status", chat=ANN)
    await eventually(lambda: bot.texts(ANN)[-1].startswith("Idle."))
    *_, command, status = await read(stack, ANN)
    assert (command["text"], status["text"][:5]) == ("/status", "Idle.")
    assert [one["reactions"] for one in await read(stack, ANN)] == [[]] * 6

    channel.configure(record={"keep_days": 0})
    bot.say("/whoami", chat=ANN)
    await eventually(lambda: "an owner" in bot.texts(ANN)[-1])
    assert len(await read(stack, ANN)) == 6


async def test_a_reaction_is_passed_with_the_next_message_and_starts_no_turn(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    worker = await stack.start_worker()
    channel.start()
    bot.say("hello", chat=ANN)
    await eventually(lambda: "message 1 of our conversation" in "".join(bot.texts(ANN)))
    await settled(stack)
    client: Any = stack.fleet.scripts.client
    inbound = keys.inbound(SessionKey("main", "telegram", "default", str(ANN), str(ANN)).sid)

    async def are_waiting(count: int) -> bool:
        return int(await client.xlen(inbound)) == count

    await eventually(partial(are_waiting, 0))
    worker.kill()
    answer = bot.chat(ANN)[-1]
    for emoji in ("👎", "👍"):
        bot.react(emoji, chat=ANN, message=answer["message_id"])
    for text in ("/status", "thanks", "bye"):
        bot.say(text, chat=ANN)

    await eventually(partial(are_waiting, 2))
    thanks, bye = [decode_entry(*entry).message for entry in await client.xrange(inbound)]
    (reaction,) = thanks.reactions
    assert (reaction.from_, reaction.emoji) == ("7", "👍")
    assert reaction.message_id == str(answer["message_id"])
    assert (reaction.text or "")[:20] == answer["text"][:20]
    assert bye.reactions == ()


async def test_a_topic_has_its_own_project(
    stack: Stack, bot: TelegramBot, channel: Channel, tmp_path: Path
) -> None:
    (tmp_path / "of-the-web.txt").write_text("")
    with stack.home.config_file.open("a") as file:
        file.write(f'[projects]\nweb = "{tmp_path}"\n')
    await stack.start_worker()
    channel.start()
    bot.chat(GROUP, topics=[5, 6])
    bot.say(f"/project@{bot.username} web", chat=GROUP, by=ANN, thread=5)
    await eventually(lambda: "this chat works in web" in "".join(bot.texts(GROUP)))
    for topic in (5, 6):
        bot.say(f"@{bot.username} hello", chat=GROUP, by=ANN, thread=topic)
    await eventually(lambda: "".join(bot.texts(GROUP)).count("message 1 of our") == 2)
    await settled(stack)

    texts = dict.fromkeys((5, 6), "")
    for message in bot.chat(GROUP):
        if message["from"]["id"] == bot.id:
            texts[message["message_thread_id"]] += message["text"]
    assert "of-the-web.txt" in texts[5]
    assert "of-the-web.txt" not in texts[6]


async def test_in_a_topic_the_bot_is_mentioned_once_also_across_a_restart(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    channel.configure(queue={"gather_ms": 0})
    await stack.start_worker()
    process = channel.start()
    bot.chat(GROUP, topics=[5, 6])
    bot.say(f"@{bot.username} hello", chat=GROUP, by=8, thread=5)
    await eventually(lambda: "message 1 of our" in "".join(bot.texts(GROUP)))
    process.kill()
    process.wait()
    bot.say("to somebody else", chat=GROUP, by=9, thread=6)
    bot.say("and to you", chat=GROUP, by=9, thread=5)
    channel.start()
    await eventually(lambda: "message 2 of our" in "".join(bot.texts(GROUP)))
    await settled(stack)

    ours = [one for one in bot.chat(GROUP) if one["from"]["id"] == bot.id]
    assert {one["message_thread_id"] for one in ours} == {5}
    assert len(await stack.fleet.sessions.list(limit=9)) == 1


async def test_a_telegram_process_killed_during_a_send_loses_nothing(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    bot.say("one", chat=ANN)
    process = channel.start()
    await eventually(lambda: stack.fleet.sessions.list(limit=9))
    process.terminate()
    process.wait()
    await stack.start_worker()
    (session,) = await stack.fleet.sessions.list(limit=9)
    asked = str(session.last_entry)
    assert await stack.fleet.outcomes.wait(session.sid, asked, timeout_s=HANG_S)
    bot.fault("sendMessage", "mute")  # for the answer; a slow turn would have a preview
    process = channel.start()
    await eventually(bot.held)
    process.kill()
    process.wait()
    bot.release()
    bot.say("two", chat=ANN)
    channel.start()
    await eventually(lambda: "message 2 of our" in "".join(bot.texts(ANN)))
    await settled(stack)

    first, again, second = bot.texts(ANN)
    assert again == f"(perhaps a second time)\n{first}"
    assert "message 1 of our" in first
    assert "message 2 of our" in second
    assert bot.pending() == []


async def test_a_second_telegram_process_takes_over_when_the_first_is_killed(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    first = channel.start()
    await eventually(bot.is_polled)
    channel.start()
    bot.say("one", chat=ANN)
    await eventually(lambda: "message 1 of our" in "".join(bot.texts(ANN)))
    await settled(stack)
    first.kill()
    first.wait()
    bot.say("two", chat=ANN)
    await eventually(lambda: "message 2 of our" in "".join(bot.texts(ANN)))
    await settled(stack)

    assert len(bot.texts(ANN)) == 2
    assert [call["method"] for call in bot.calls("getMe")] == ["getMe"] * 2
    assert "Another program" not in channel.log.read_text()


async def test_a_frozen_telegram_process_sends_and_reads_nothing_more(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    await stack.start_worker()
    frozen = channel.start()
    await eventually(bot.is_polled)
    frozen.send_signal(signal.SIGSTOP)
    channel.start()
    await eventually(lambda: bot.polls() == 2)  # the second poll ends the first with a conflict
    bot.say("one", chat=ANN)
    await eventually(lambda: "message 1 of our" in "".join(bot.texts(ANN)))
    frozen.send_signal(signal.SIGCONT)
    await eventually(lambda: "stops reading messages" in channel.log.read_text())
    bot.say("two", chat=ANN)
    await eventually(lambda: "message 2 of our" in "".join(bot.texts(ANN)))
    await settled(stack)

    assert len(bot.texts(ANN)) == 2
    assert "Another program" not in channel.log.read_text()
    assert "runs" in run(stack, "channel", "list").stdout


async def test_one_poll_that_a_waking_process_has_ended_is_no_problem_of_the_account(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    """A process that was frozen may poll once more before it notices that its claim is gone."""
    words = "Conflict: terminated by other getUpdates request"
    bot.fault("getUpdates", "refused", code=409, description=words)
    channel.start()
    bot.say("/whoami", chat=ANN)
    await eventually(lambda: "an owner" in "".join(bot.texts(ANN)))
    assert "Another program" not in channel.log.read_text()

    bot.fault("getUpdates", "refused", code=409, description=words, times=2)
    bot.say("/whoami", chat=ANN)
    await eventually(lambda: "Another program" in channel.log.read_text())


async def test_the_real_claude_answers_in_telegram(
    stack: Stack, bot: TelegramBot, claude: AgentCli
) -> None:
    stack.agent = claude.config()
    channel = Channel(stack, bot)
    await stack.start_worker()
    channel.start()
    try:
        bot.say("say hello in Telegram", chat=ANN)
        await eventually(lambda: "say hello in Telegram" in "".join(bot.texts(ANN)))
    finally:
        channel.end()


async def test_one_act_of_a_person_is_one_turn(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    """A long paste, a comment with forwarded messages, and an edit that a reaction causes."""
    origin = {"type": "hidden_user", "sender_user_name": "Eve", "date": 1}
    for piece in ("a" * 4096, "b" * 4096, "c"):
        pasted = bot.say(piece, chat=ANN)
    bot.say("and that?", chat=ANN)
    for text in ("one", "two", "three"):
        bot.say(text, chat=ANN, forward_origin=origin)
    bot.react("👍", chat=ANN, message=pasted, by=ANN)
    await stack.start_worker()
    channel.start()
    await eventually(lambda: "message 2 of our conversation" in "".join(bot.texts(ANN)))
    bot.react("🔥", chat=ANN, message=bot.say("three", chat=ANN), by=ANN)
    await eventually(lambda: "message 3 of our conversation" in "".join(bot.texts(ANN)))
    await eventually(lambda: not bot.pending())

    assert len(bot.texts(ANN)) == 3


async def test_a_mention_that_is_added_to_a_group_message_counts(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    """The agent gets the text without the mention, so only the mention has changed."""
    await stack.start_worker()
    channel.start()
    said = bot.say("build it", chat=GROUP, by=ANN)
    bot.say("build it", chat=GROUP, by=ANN, edits=said)
    bot.say(f"@{bot.username} build it", chat=GROUP, by=ANN, edits=said)
    await eventually(lambda: "message 1 of our conversation" in "".join(bot.texts(GROUP)))
    await eventually(lambda: not bot.pending())
    assert len(bot.texts(GROUP)) == 1


async def test_a_slow_file_and_a_strangers_flood_hold_up_nobody_else(
    stack: Stack, bot: TelegramBot, channel: Channel
) -> None:
    """Telegram returns at most 100 updates from a position."""
    await stack.start_worker()
    channel.start()
    bot.fault("getFile", "mute")
    bot.say("look", chat=ANN, files=[file("plan.txt", b"the plan")])
    await eventually(bot.held)
    for number in range(120):
        bot.say(f"spam {number}", chat=99)
    bot.say(f"@{bot.username} hello", chat=GROUP, by=ANN)
    await eventually(lambda: "message 1 of our conversation" in "".join(bot.texts(GROUP)))

    assert bot.held()
    bot.release()
    await eventually(lambda: "I have plan.txt" in "".join(bot.texts(ANN)))
