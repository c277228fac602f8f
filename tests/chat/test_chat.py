"""The chat program on a real terminal."""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from remoteclaw.chat.editor import Interrupts
from remoteclaw.commands.status import MODES
from remoteclaw.config.home import Home
from remoteclaw.fleet.replies.reader import CLAIM_MS
from tests.support.agents import AgentCli
from tests.support.bridges import acp_script, script
from tests.support.chat import chatting, demo
from tests.support.command import REMOTECLAW
from tests.support.doors import gateway_process
from tests.support.pages import OPERATOR
from tests.support.stack import Stack
from tests.support.terminal import Terminal, env
from tests.support.up import address, gateway_of, remoteclaw, running
from tests.support.waiting import HANG_S, eventually

# -- Ctrl-C ---------------------------------------------------------------------------------------


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_second_ctrl_c_within_two_seconds_leaves_the_chat() -> None:
    clock = Clock()
    interrupts = Interrupts(clock)

    assert not interrupts.press()
    clock.now += 2.1
    assert not interrupts.press()
    clock.now += 1.9
    assert interrupts.press()


def test_typing_between_two_ctrl_c_presses_keeps_the_chat_open() -> None:
    interrupts = Interrupts(Clock())

    assert not interrupts.press()
    interrupts.reset()
    assert not interrupts.press()


# -- on a real screen -----------------------------------------------------------------------------

#: An agent that answers each turn once a test has created the file with the turn's number.
ANSWERING = """
number = 0
while True:
    turn()
    number += 1
    while not os.path.exists(f'DIRECTORY/{number}'): time.sleep(0.01)
    say(type='text', text=f'Answer {number}.')
    say(type='done')
"""
INDICATOR = "Ctrl-C stops\n"
#: The maximum time from Enter until the indicator is shown, in seconds.
AT_ONCE_S = 0.2
#: The maximum time until a hanging gateway is reported, in seconds, on a busy machine.
SOON_S = 15.0


def with_agent(home: Home, command: tuple[str, ...]) -> dict[str, str]:
    """Configure an agent with `command`; return the environment of a chat with it."""
    home.config_file.write_text(f"[agents.main]\ncommand = {json.dumps(command)}\n")
    return env(home)


def run_turns(
    screen: Terminal,
    count: int,
    text: str,
    tool: str = "",
    let: Callable[[int], None] = lambda _: None,
) -> None:
    """Run some turns; each has an indicator at once and throughout, and none afterwards."""
    delays = []
    for number in range(1, count + 1):
        screen.type(text)
        screen.see_so_often(rf"^› {re.escape(text)}$", number)
        pressed = time.monotonic()
        screen.type("\r")
        screen.see(INDICATOR)
        delays.append(time.monotonic() - pressed)
        if tool:
            screen.see_match(rf"⎿ {re.escape(tool)}.*\n.*{INDICATOR.rstrip()}$")
        let(number)
        screen.see_so_often(r"^\d+ s( · |$)", number)  # the line below each answer
        screen.see_none(INDICATOR, for_s=0.3)
    # On a busy machine, other processes may delay a few of them.
    assert sorted(delays)[count // 2] <= AT_ONCE_S, delays


async def test_the_indicator_is_shown_from_enter_until_the_answer(
    stack: Stack, directory: Path
) -> None:
    command = script(directory, ANSWERING.replace("DIRECTORY", str(directory)))
    async with chatting(stack, demo(command)) as (screen, _):

        def answer(number: int) -> None:
            (directory / str(number)).touch()
            screen.see(f"main\nAnswer {number}.")

        run_turns(screen, 10, "hello", let=answer)


@pytest.mark.thorough
async def test_tools_plan_and_tokens_of_claude_are_shown(stack: Stack, claude: AgentCli) -> None:
    """Turns with one tool each, a secret in a command, a plan, and the tokens so far."""
    async with chatting(stack, claude.config(permissions="auto")) as (screen, _):
        run_turns(screen, 3, "SHELL:sleep 1", "Bash sleep 1 (")

        screen.type('SHELL:echo "nobody\'s key"; sleep 2\r')
        screen.see('⎿ Bash echo "[secret]"; sleep 2 (')
        screen.see_so_often(r"^\d+ s · [\d,]+ tokens( · |$)", 4)
        screen.see_gone("⎿ Bash")

        task = json.dumps({"subject": "look around", "description": "d", "activeForm": "looking"})
        screen.type(f"TOOL:TaskCreate:{task} SHELL:sleep 3\r")
        screen.see_match(r"^  ☐ look around\n[^›]* s · [\d,]+ tokens · .*Ctrl-C stops$")
        screen.see_so_often(r"^\d+ s · [\d,]+ tokens( · |$)", 5)
        screen.see_gone(INDICATOR)
        screen.see_gone("☐")


#: An agent that uses one tool, and another one during its answer. A test ends each by a file.
USING_TOOLS = """
def until(name):
    while not os.path.exists(f'DIRECTORY/{name}'): time.sleep(0.01)
while True:
    turn()
    say(type='tool_use', id='1', name='Bash', input={'command': 'deploy --key swordfish-1234'})
    until('one')
    say(type='tool_result', id='1', output='')
    until('two')
    say(type='text', text='It is deployed. Now I ')
    until('three')
    say(type='tool_use', id='2', name='Read', input={'file_path': '/etc/hosts'})
    until('four')
    say(type='tool_result', id='2', output='')
    say(type='text', text='look.')
    say(type='done')
"""


def seconds_of(shown: str) -> int:
    (seconds,) = re.findall(r"^  ⎿ .* \((\d+) s\)$", shown, re.MULTILINE)
    return int(seconds)


async def test_a_running_tool_is_shown_with_its_elapsed_seconds(
    stack: Stack, directory: Path
) -> None:
    agent = demo(script(directory, USING_TOOLS.replace("DIRECTORY", str(directory))))
    async with chatting(stack, agent | {"env": {"DEPLOY_KEY": "swordfish-1234"}}) as (screen, _):
        screen.type("hello\r")
        line = r"^  ⎿ Bash deploy --key \[secret\] \({} s\)$"
        first = seconds_of(screen.see_match(line.format(r"\d+")))
        # A busy machine may skip a second.
        screen.see_match(line.format(rf"(?!{first} )\d+"))
        assert seconds_of(screen.shown()) > first
        (directory / "one").touch()
        screen.see_still("⎿ Bash deploy --key [secret] (", for_s=1.5)
        (directory / "two").touch()
        screen.see("\nIt is deployed. Now I")
        screen.see_gone("Bash")
        (directory / "three").touch()
        screen.see("\nIt is deployed. Now I\n  ⎿ Read /etc/hosts (")
        (directory / "four").touch()

        screen.see("main\nIt is deployed. Now I look.")

        screen.see_gone("⎿ Read")
        assert b"swordfish" not in screen.raw


#: An agent that sends a first text, and accepts further messages until a test ends it by a file.
STEERED = """
import queue, threading
messages = queue.Queue()
def listen():
    for line in sys.stdin: messages.put(json.loads(line))
    os._exit(0)
threading.Thread(target=listen, daemon=True).start()
while True:
    messages.get()
    say(type='text', text='I begin.\\n\\n')
    is_stopped = False
    while not is_stopped and not os.path.exists('DIRECTORY/go'):
        try: message = messages.get(timeout=0.01)
        except queue.Empty: continue
        if message['type'] == 'interrupt': is_stopped = True
        else:
            say(type='steered', id=message['id'])
            say(type='text', text='Heard.\\n\\n')
    if not is_stopped: say(type='text', text='Answer.')
    say(type='done', aborted=is_stopped)
"""
#: An agent that sends a plan, and uses a tool until a test ends it by a file.
PLANNING = """
prompt = begin()
update('plan', entries=[dict(content='look for swordfish-1234', status='completed'),
    dict(content='mend', status='in_progress'), dict(content='test', status='pending')])
update('tool_call', toolCallId='1', title='Build it', status='in_progress', rawInput={})
while not os.path.exists('DIRECTORY/go'): time.sleep(0.01)
update('tool_call_update', toolCallId='1', status='completed')
text('It is mended.')
answer(prompt, stopReason='end_turn')
asked()
"""
PLAN = "  ☑ look for [secret]\n  ▸ mend\n  ☐ test\n  ⎿ Build it ("


async def test_a_chat_opened_during_a_turn_shows_its_plan_and_tools(
    stack: Stack, directory: Path
) -> None:
    """Also after the gateway was killed, although the agent sends no new event."""
    command = acp_script(directory, PLANNING.replace("DIRECTORY", str(directory)))
    agent = {"runtime": "acp", "command": list(command), "env": {"DEPLOY_KEY": "swordfish-1234"}}
    async with chatting(stack, agent) as (first, gateway):
        first.type("hello\r")
        first.see(PLAN)
        begun = seconds_of(first.see_match(r"⎿ Build it \(([2-9]|\d\d+) s\)$"))
        gateway.kill()
        async with gateway_process(stack):
            with Terminal.running(REMOTECLAW, "chat", env=stack.env()) as second:
                shown = second.see_match(rf"{re.escape(PLAN)}.*\n\S \d+ s · .*Ctrl-C stops$")
                assert min(indicator_seconds(shown), seconds_of(shown)) >= begun
                assert "› hello" in shown, "what it works on"
                (directory / "go").touch()
                for screen in (first, second):
                    assert screen.see("\nIt is mended.").count("main\nIt is mended.") == 1
                    screen.see_gone(INDICATOR)
                    screen.see_gone("☑")
        assert b"swordfish" not in first.raw


def indicator_seconds(shown: str) -> int:
    """Return the elapsed seconds in the indicator."""
    return int(re.findall(r"^\S (\d+) s · .*Ctrl-C stops$", shown, re.MULTILINE)[-1])


def test_the_reply_of_a_cron_job_is_labelled_and_has_an_indicator(
    home: Home, directory: Path
) -> None:
    command = script(directory, ANSWERING.replace("DIRECTORY", str(directory)))
    environment = with_agent(home, command)
    with Terminal.running(REMOTECLAW, "up", env=environment) as screen:
        screen.see("›")
        screen.type("hello\r")
        (directory / "1").touch()
        screen.see("main\nAnswer 1.")
        screen.see_gone(INDICATOR)
        job = succeeds(environment, "cron", "add", "every hour", "Look.", "--name", "nightly")
        succeeds(environment, "cron", "run", job)
        # The indicator is shown at once, before the first notice of a silent model.
        assert "No word from the model" not in screen.see(INDICATOR)
        (directory / "2").touch()

        screen.see("main · cron job nightly\nAnswer 2.")

        screen.see_gone(INDICATOR)


def succeeds(environment: dict[str, str], *arguments: str) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run(
        (REMOTECLAW, *arguments), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


#: By queue mode: the text shown for waiting messages, and the texts after they were handled.
SHOWN_BY_MODE = {
    "collect": ("2 before it", ["Answer.\n\nanswers 2 messages · "]),
    "steer": (
        "Heard.\n\nHeard.",
        ["(Added to the turn that ran: second)", "(Added to the turn that ran: third)"],
    ),
    "interrupt": ("(I left this for your next message.)", ["interrupted by a newer message · "]),
}


async def test_the_chat_shows_how_messages_sent_during_a_turn_are_handled(
    stack: Stack, directory: Path
) -> None:
    command = script(directory, STEERED.replace("DIRECTORY", str(directory)))
    async with chatting(stack, demo(command)) as (screen, _):
        for mode, (waiting, notes) in SHOWN_BY_MODE.items():
            screen.type(f"/queue {mode}\r")
            screen.see_words(f"From now on: {MODES[mode]}.")
            begun = screen.words().count("I begin.")
            screen.type("first\r")
            screen.see_words("I begin.", begun + 1)
            screen.type("second\rthird\r")
            screen.see(waiting)
            (directory / "go").touch()
            for note in notes:
                screen.see(note)
            screen.see_gone(INDICATOR)
            (directory / "go").unlink()


async def test_esc_stops_an_answer_but_alt_and_arrow_keys_do_not(
    stack: Stack, directory: Path
) -> None:
    command = script(directory, STEERED.replace("DIRECTORY", str(directory)))
    async with chatting(stack, demo(command)) as (screen, _):
        screen.type("first\r")
        screen.see("I begin.")
        screen.type("\x1b\r")
        screen.type("two")
        screen.see("›\n  two")
        screen.type("\x03")
        screen.see_gone("  two")
        screen.type("\x1b[A")
        screen.see_words("› first", 2)
        screen.type("\x03")
        (directory / "go").touch()
        screen.see("Answer.")
        (directory / "go").unlink()
        screen.type("second\r")
        screen.see_words("I begin.", 2)
        screen.type("\x1b")
        screen.see("Stopped.")
        screen.see_gone(INDICATOR)


def test_a_narrower_terminal_shows_each_line_once(home: Home, directory: Path) -> None:
    """With the output of `up` above it: in an emptier screen, doubled lines would not be seen."""
    command = script(directory, STEERED.replace("DIRECTORY", str(directory)))
    with Terminal.running(REMOTECLAW, "up", env=with_agent(home, command)) as screen:
        screen.see("›")
        screen.type("first\r")
        screen.see("I begin.")
        screen.type("a line that is not sent yet")
        screen.see("› a line that is not sent yet")
        for columns in (60, 26, 20):
            screen.narrow(columns)
            # After 20 s without output, a notice is between the text and the indicator.
            screen.see_match(
                r"^main\nI begin\.\n(main\n\(No [^›]*)?\S [\d min]+ s · .*\n› a line that is"
            )
            screen.see_so_often(r"^main$(?!\n\(No )|^I begin\.$| s · ", 3)


async def test_two_terminals_share_one_chat(stack: Stack) -> None:
    async with chatting(stack) as (first, _):
        first.type("hello\r")
        first.see("what happens when an agent dies.")
        with Terminal.running(REMOTECLAW, "chat", env=stack.env()) as second:
            second.see_match(r"\(earlier: \d+ s ago\)\n\n› hello\n\nmain\nThis is")
            second.type("memory\r")
            first.see("› memory")
            for screen in (first, second):
                assert screen.see("You said before:").count("› memory") == 1
            second.type("exit\r")
            assert second.leave() == 0
        first.type("quit\r")
        assert first.leave() == 0


async def test_the_input_line_has_line_breaks_and_completion_and_accepts_invalid_utf_8(
    stack: Stack, directory: Path
) -> None:
    """Files are those of the agent's workspace: the agent reads a path from there."""
    (workspace := directory / "workspace").mkdir()
    (workspace / "notes-of-ada.txt").touch()
    (here := directory / "here").mkdir()
    (here / "ada-is-here.txt").touch()
    agent = {"runtime": "demo", "workspace": str(workspace)}
    async with chatting(stack, agent, directory=here) as (screen, _):
        screen.type("one\x1b\rtwo\x0athree")
        screen.see("› one\n  two\n  three")
        screen.type("\r")
        screen.see("You wrote 13 characters")
        screen.type("/sta")
        screen.see("Show what the session does now.")
        screen.type("\t\r\r")
        screen.see("• agent: main (demo)")
        screen.type(b"caf\xe9 \xff\r")
        assert "› caf� �" in screen.see("You wrote 6 characters")
        screen.type("see @ada")
        assert "ada-is-here" not in screen.see("  notes-of-ada.txt")
        screen.type("\t")
        screen.see("see @notes-of-ada.txt")


# -- failures -------------------------------------------------------------------------------------


def test_a_signal_or_a_revoked_token_ends_the_chat_and_restores_the_terminal(
    home: Home,
) -> None:
    with running(home):
        with Terminal.running(REMOTECLAW, "chat", env=env(home)) as screen:
            screen.see("›")
            assert not screen.is_sane
            screen.kill(signal.SIGTERM)
            assert screen.leave() == 0
            assert screen.is_sane

        printed = remoteclaw(home, "token", "create", "ada", "--scope", "admin").stdout
        (token,) = re.findall(r"rc\w_\w+", printed)
        url = address(home)
        environment = env(home, REMOTECLAW_GATEWAY_TOKEN=token)
        with Terminal.running(REMOTECLAW, "chat", "--url", url, env=environment) as screen:
            screen.see("›")
            assert remoteclaw(home, "token", "revoke", token.split("_")[1]).returncode == 0
            screen.type("hello\r")
            assert screen.leave() == 1
            assert "Traceback" not in screen.shown()
            assert "valid token" in screen.shown()
            assert screen.is_sane


def test_an_answer_given_while_disconnected_is_shown_once(home: Home, directory: Path) -> None:
    """Also the text that was shown before is not repeated."""
    agent = ANSWERING.replace(
        "number += 1", "number += 1; say(type='text', text='Begun.\\n\\n# Then\\n\\nMore: ')"
    )
    command = script(directory, agent.replace("DIRECTORY", str(directory)))
    environment = with_agent(home, command)
    with running(home) as up:
        (directory / "1").touch()
        sent = remoteclaw(home, "send", "hi", "--channel", "telegram", "--json")
        session = json.loads(sent.stdout)["reference"].split("-")[0]
        with Terminal.running(REMOTECLAW, "chat", session, env=environment) as screen:
            screen.see("›")
            screen.type("hello\r")
            screen.see_so_often("^More:", 2)
            gateway = gateway_of(up.pid)
            os.kill(up.pid, signal.SIGSTOP)  # otherwise it starts another gateway
            try:
                os.kill(gateway, signal.SIGKILL)
                (directory / "2").touch()
                until = time.monotonic() + HANG_S
                show = ("sessions", "show", session, "--json")
                while json.loads(remoteclaw(home, *show).stdout)["waiting"]:
                    assert time.monotonic() < until
            finally:
                os.kill(up.pid, signal.SIGCONT)

            screen.see("More: Answer 2.")
            assert screen.see_gone(INDICATOR).count("Begun.") == 2


async def test_an_answer_that_arrives_before_the_send_is_confirmed_is_shown(
    stack: Stack,
) -> None:
    await stack.start_worker()
    first = await stack.append("hello")
    await stack.outcome(first)
    proxy = await stack.proxied()
    environment = stack.env()
    async with gateway_process(stack, REMOTECLAW__REDIS__URL=proxy.url) as (_, gateway):
        with Terminal.running(REMOTECLAW, "chat", first.session.sid, env=environment) as screen:
            await asyncio.to_thread(screen.see, "what happens when an agent dies.")
            accepted = proxy.arm("append", "after")
            screen.type("memory\r")
            await accepted.wait()
            gateway.kill()
            accepted.cut()
            view = await stack.fleet.sessions.view(first.session.sid)
            assert view is not None
            assert view.last_entry is not None
            await stack.fleet.waker.hint(view.sid, "test", queue="agents")
            assert await stack.fleet.outcomes.wait(view.sid, view.last_entry, timeout_s=HANG_S)
            async with gateway_process(stack):
                shown = await asyncio.to_thread(screen.see, "You said before:")
                await asyncio.to_thread(screen.see_gone, INDICATOR)
    assert shown.count("› memory") == 1


async def test_a_hanging_gateway_is_reported_and_the_message_is_answered_once(
    stack: Stack,
) -> None:
    async with chatting(stack, columns=40) as (screen, gateway):
        gateway.send_signal(signal.SIGSTOP)
        try:
            typed = time.monotonic()
            screen.type("hello\r")
            screen.see(INDICATOR)
            screen.see_words("(The gateway does not answer. Trying again.)")
            assert time.monotonic() - typed < SOON_S
        finally:
            gateway.send_signal(signal.SIGCONT)
        screen.see_words("to see what happens when an agent dies.")
        shown = screen.see_gone("does not answer")
        assert (shown.count("› hello"), shown.count("agent dies.")) == (1, 1)


async def test_exit_during_a_turn_works_after_a_gateway_restart(
    stack: Stack, directory: Path
) -> None:
    command = script(directory, ANSWERING.replace("DIRECTORY", str(directory)))
    async with chatting(stack, demo(command)) as (screen, gateway):
        screen.type("hello\r")
        screen.see(INDICATOR)
        gateway.kill()
        async with gateway_process(stack):
            screen.type("/whoami\r")
            screen.see("an owner")
            screen.type("exit\r")

            assert screen.leave() == 0


async def test_exit_before_a_message_is_sent_says_that_it_waits(stack: Stack) -> None:
    async with chatting(stack) as (screen, gateway):
        gateway.send_signal(signal.SIGSTOP)
        try:
            screen.type("hello\r")
            screen.see(INDICATOR)
            screen.type("exit\r")
            screen.see("(Waiting until it is sent. Ctrl-C leaves without that.)")
            screen.type("\x03")
            assert screen.leave() == 0
            assert screen.is_sane
        finally:
            gateway.send_signal(signal.SIGCONT)


# -- conversations and files ----------------------------------------------------------------------


async def test_files_are_saved_when_they_arrive_and_earlier_ones_on_request(stack: Stack) -> None:
    async with chatting(stack) as (first, _):
        first.type("file\r")
        first.see_words("39 bytes, saved as")
        assert len([*stack.home.downloads.iterdir()]) == 1
        with Terminal.running(REMOTECLAW, "chat", env=stack.env()) as second:
            second.see_words("`/save 1` saves it.)")
            assert len([*stack.home.downloads.iterdir()]) == 1
            second.type("/save 1\r")
            second.see_words("39 bytes, saved as")
            second.type("/save 2\r")
            second.see_words("/save needs the number of a file")
    assert len([*stack.home.downloads.iterdir()]) == 2


async def test_new_and_switch_begin_conversations_that_the_other_terminal_does_not_show(
    stack: Stack,
) -> None:
    async with chatting(stack) as (first, _):
        first.type("my colour is green\r")
        first.see("message 1 of our conversation")
        with Terminal.running(REMOTECLAW, "chat", "--new", env=stack.env()) as second:
            second.see("›")
            second.type("my colour is red\r")
            second.see_words("what happens when an agent dies.")
            second.type("/switch my colour is green\r")
            second.see("This is my colour is green.")
            second.see_match(r"\(earlier: .*\)\n(.*\n)*› my colour is green")
            second.type("/switch new\r")
            second.see("This is a new conversation.")
            second.type("my colour is blue\r")
            second.see_so_often("message 1 of our conversation", 3)
        assert "red" not in first.shown()
        assert "blue" not in first.shown()
    assert len(await stack.fleet.sessions.list(limit=9)) == 3


async def test_a_terminal_opens_with_the_newest_screenful(stack: Stack) -> None:
    for number in range(30):
        said = {"from": "agent", "text": f"number {number}.", "sid": "0" * 32, "files": []}
        await stack.fleet.web.add(OPERATOR, "message", said, once="", keep_ms=60_000)
    async with chatting(stack) as (screen, _):
        shown = screen.see("number 29.")

    assert "number 25." in shown
    assert "number 5." not in shown


# -- a frozen gateway -----------------------------------------------------------------------------


async def test_while_the_gateway_with_the_claim_is_frozen_others_show_each_answer_once(
    stack: Stack,
) -> None:
    """Another gateway takes the claim, and delivers in order; nor is anything shown again when the
    first one wakes."""
    await stack.start_worker()
    token, _ = await stack.fleet.tokens.create("ada", "admin", None)
    environment = stack.env(REMOTECLAW_GATEWAY_TOKEN=token)
    texts = [f"number {number}" for number in range(4)]
    async with gateway_process(stack) as (_, frozen):
        await eventually(lambda: is_claimed(stack))
        async with gateway_process(stack) as (door, _):
            chat = (REMOTECLAW, "chat", "--url", door.url)
            with Terminal.running(*chat, env=environment, rows=200) as screen:
                screen.see("›")
                screen.type(f"{texts[0]}\r")
                screen.see_words("what happens when an agent dies.")
                frozen.send_signal(signal.SIGSTOP)
                try:
                    begun = time.monotonic()
                    for number, text in enumerate(texts[1:], 2):
                        screen.type(f"{text}\r")
                        screen.see(f"message {number} of our conversation")
                    assert time.monotonic() - begun < CLAIM_MS / 1000 + SOON_S
                finally:
                    frozen.send_signal(signal.SIGCONT)
                screen.type("memory\r")
                shown = screen.see("You said before:")
    answers = re.findall(r"message (\d) of our conversation", shown)
    assert answers == ["1", "2", "3", "4"]


async def is_claimed(stack: Stack) -> bool:
    return (await stack.fleet.replies.readers()).is_read("web", "default")
