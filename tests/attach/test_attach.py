"""`remoteclaw attach` in a real pseudo-terminal, with a scripted gateway."""

import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.attach.paint import plain
from remoteclaw.attach.window import ENTER, LEAVE, WHEEL_OFF, WHEEL_ON
from remoteclaw.config.home import Home
from remoteclaw.runtimes.terminal import main_argument
from tests.support.command import REMOTECLAW, run_command
from tests.support.escapes import ESCAPES
from tests.support.remote import HOSTILE_INPUT, OURS, SID, RemoteGateway, Witness, attached
from tests.support.terminal import env

#: The sequences with which `attach` changes the terminal, and restores it, in their order.
ON = (b"\x1b[22;2t", b"\x1b[?1049h", b"\x1b[>1u", b"\x1b[>4;1m", b"\x1b[?2004h", b"\x1b[?1007s")
OFF = (
    *(b"\x1b[<u", b"\x1b[>4m", b"\x1b[?2004l", b"\x1b[?1007r", b"\x1b[?7h", b"\x1b[0 q"),
    *(b"\x1b[?25h", b"\x1b[?1049l", b"\x1b[23;2t"),
)


@pytest.fixture
def gateway() -> RemoteGateway:
    return RemoteGateway()


def assert_restored(screen: Witness) -> None:
    """Check that the person's terminal is restored."""
    assert screen.is_sane
    _, _, rest_of_output = screen.raw.rpartition(ON[-1])
    found = [rest_of_output.rfind(sequence) for sequence in OFF]
    assert -1 not in found, (found, rest_of_output[-300:])
    assert found == sorted(found)
    assert not re.search(rb"\x1b\[\?(1049|2004|100[0-6])h", rest_of_output[found[0] :])


def test_a_person_types_into_an_agents_program(gateway: RemoteGateway, home: Home) -> None:
    gateway.show({0: [["Welcome", {"fg": "#ff8800", "b": 1}], [" back"]]}, title="a program")
    with attached(gateway, "--agent", "main", "--prompt", "hi", env=env(home)) as screen:
        screen.see("Welcome back")
        screen.until(gateway, "terminals.take")
        assert gateway.of("terminals.open")[0] == {
            **{"agent": "main", "name": "main", "prompt": "hi", "cols": 80, "rows": 23}
        }
        assert b"\x1b]2;a program\x07" in screen.raw

        screen.see("idle · Ctrl-] ?")
        screen.type("lös 5\r\x1b[A\x1b[1;5C\x1b[13;2u\x1b")
        typed = ("t:lös 5", "k:enter", "k:up", "k:ctrl+right", "k:shift+enter", "k:esc")
        screen.until_typed(gateway, *typed)
        screen.type("\x1b[200~two\nlines\x1b[201~")
        screen.until_typed(gateway, *typed, "p:two\nlines")

        screen.type("\x1a")
        screen.see("Ctrl-Z is not typed")
        screen.type("\x1d?")
        screen.see("d leaves")
        screen.type("\x1b[93;5u]\x1b[27;5;93~]")
        screen.until_typed(gateway, *typed, "p:two\nlines", "k:ctrl+]", "k:ctrl+]")

        gateway.show({0: [["你好", {"w": 2}], ["ok"]], 5: [["below"]]})
        screen.see("你好ok\n\n\n\n\nbelow")
        lost = {"sid": SID, "since": 1, "revision": 2}
        gateway.tell("terminal.screen", lost)
        screen.until(gateway, "terminals.watch", 2)
        screen.narrow(60)
        screen.until(gateway, "terminals.resize")
        assert gateway.of("terminals.resize") == [{"sid": SID, "cols": 60, "rows": 23}]

        screen.type("\x1dd")
        assert screen.leave() == 0
        assert f"remoteclaw attach {SID[:8]}" in screen.raw.decode()
        assert_restored(screen)
    assert gateway.asked[-1][0] == "terminals.leave"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_killed_attach_restores_the_terminal(
    gateway: RemoteGateway, home: Home, number: signal.Signals
) -> None:
    with attached(gateway, env=env(home)) as screen:
        screen.until(gateway, "terminals.take")
        is_over = threading.Event()

        def flood() -> None:
            for count in range(1_000_000):
                if is_over.is_set():
                    return
                gateway.show({row: [[f"{count} " * 9, {"l": "https://x.y"}]] for row in range(23)})

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            screen.see("9 ")
            screen.kill(number)
            assert screen.leave() == 128 + number
        finally:
            is_over.set()
            gateway.close()
            flooding.join()
        assert_restored(screen)


def test_attach_with_read_only_sends_no_input(gateway: RemoteGateway, home: Home) -> None:
    gateway.history = [[[f"past {row}"]] for row in range(50)]
    gateway.show({0: [["now"]], 22: [["end"]]}, history=50)
    gateway.change(writer="Bo")
    with attached(gateway, "5e55", "--read-only", env=env(home)) as screen:
        screen.see("read-only, Bo types")
        screen.type(b"".join(HOSTILE_INPUT))
        screen.type(bytes({*range(256)} - {0x1B, 0x1D}))
        screen.type("\x1b[F\x1b[200~pasted\x1b[201~\x1dcq")
        screen.see("You are attached with --read-only.")

        screen.type("\x1b[5~")
        screen.see("past 49\nnow")
        screen.type("\x1b[F")
        screen.see_gone("past 49")
        screen.type("\x1d")
        screen.type("d")
        assert screen.leave() == 0
    assert {method for method, _ in gateway.asked} == {
        *("terminals.get", "terminals.watch", "terminals.history", "terminals.leave")
    }


def test_a_window_that_is_too_small_shows_that_the_screen_is_cut(
    gateway: RemoteGateway, home: Home
) -> None:
    cursor = {"row": 22, "col": 1, "visible": True, "shape": "bar"}
    gateway.show({0: [["top"]], 22: [["bottom"]]}, cursor=cursor)
    with attached(gateway, "--read-only", env=env(home), columns=70, rows=10) as screen:
        screen.see("cut: screen is 80 × 23")
        assert "bottom" in screen.shown()
        assert "top" not in screen.shown()


def test_after_a_flood_of_frames_the_latest_screen_is_shown(
    gateway: RemoteGateway, home: Home
) -> None:
    """While the person's terminal reads nothing, frames are skipped."""
    with attached(gateway, env=env(home)) as screen:
        screen.until(gateway, "terminals.take")
        for count in range(3000):
            gateway.show({row: [[f"{count}:{row} " * 8]] for row in range(23)})
        screen.see("2999:22")
        painted = {int(found) for found in re.findall(rb"(\d+):0 ", screen.raw)}
        assert len(painted) < 1500, len(painted)


def test_attach_reconnects_to_a_restarted_gateway(gateway: RemoteGateway, home: Home) -> None:
    gateway.show({0: [["before"]]})
    with attached(gateway, env=env(home)) as screen:
        screen.see("before")
        screen.until(gateway, "terminals.take")
        gateway.close()
        screen.type("rm -rf\r")
        screen.see("what you type is not kept")
        gateway.show({0: [["after"]]})
        gateway.open()
        screen.see("after")
        screen.see_gone("away")
        screen.until(gateway, "terminals.take", 2)
        screen.type("ls")
        screen.until_typed(gateway, "t:ls")


def test_the_keyboard_can_be_taken_back_from_another_person(
    gateway: RemoteGateway, home: Home
) -> None:
    gateway.refuses["terminals.take"] = ("CONFLICT", "Bo types here.")
    gateway.change(writer="Bo")
    with attached(gateway, env=env(home)) as screen:
        screen.see("Bo types (Ctrl-] c: you)")
        screen.type("x")
        screen.see("The keyboard isn't yours")
        gateway.refuses.clear()
        screen.type("\x1dc")
        screen.until(gateway, "terminals.take", 2)
        assert [params["force"] for params in gateway.of("terminals.take")] == [False, True]
        screen.see_gone("Bo types")
        screen.type("y")
        screen.until_typed(gateway, "t:y")
        gateway.change(writer="Bo")
        screen.see("Bo types")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"state": "exited", "exit": 7}, 7, "The program has ended with status 7."),
        ({"state": "exited", "exit": 0}, 0, "The program has ended."),
        ({"state": "crashed", "reason": "it was killed"}, 1, "has ended: it was killed."),
        ({"state": "crashed", "reason": "No such file."}, 1, "has ended: No such file."),
        ({"state": "parked"}, 3, "to continue: remoteclaw attach 5e555e55"),
    ],
)
def test_attach_exits_with_the_status_of_the_program(
    gateway: RemoteGateway, home: Home, changes: dict[str, Any], status: int, words: str
) -> None:
    with attached(gateway, env=env(home)) as screen:
        screen.until(gateway, "terminals.take")
        gateway.show({3: [["The API key is missing."]]})
        gateway.gone(**changes)
        assert screen.leave() == status
        printed = " ".join(screen.raw.decode().split())
        assert words in printed
        assert f"{words}." not in printed, "a sentence has one full stop"
        after = printed.rpartition("\x1b")[2]
        assert ("API key is missing" in after) == (status == 7), "the reason is still there"
        assert_restored(screen)


def test_the_status_line_shows_what_the_terminal_waits_for(
    gateway: RemoteGateway, home: Home
) -> None:
    gateway.record |= {"state": "starting"}
    gateway.waits = True
    gateway.refuses["terminals.take"] = ("UNAVAILABLE", "It starts.")
    with attached(gateway, env=env(home)) as screen:
        screen.see("waits: a turn is running")
        screen.until(gateway, "terminals.take")
        gateway.change(reason="a login")
        screen.see("needs you: a login")
        gateway.gives.clear()
        gateway.refuses.clear()
        gateway.change(state="live", reason="", activity="waiting", waitingFor="Bash: make")
        screen.see("needs you: Bash: make")
        gateway.overtakes = {"waitingFor": "Bash: test"}
        screen.type("x\x1d?")
        screen.see("d leaves")
        gateway.gives.set()
        screen.until_typed(gateway, "t:x")
        screen.type("\x1d\x1b")
        screen.see_gone("d leaves")
        gateway.show({0: [["a dialog"]]})
        assert "needs you: Bash: test" in screen.see("a dialog")
        gateway.tell("terminal.clipboard", {"sid": SID, "text": "copied"})
        screen.see("Ctrl-] y")
        assert b"]52;" not in screen.raw
        screen.type("\x1dy")
        screen.see("Copied.")
        assert b"\x1b]52;c;Y29waWVk\x07" in screen.raw


def test_the_persons_terminal_obeys_nothing_that_a_program_prints(
    gateway: RemoteGateway, home: Home
) -> None:
    """Also if the gateway passes control characters on, in rows, names, clipboards and reasons."""
    texts = [each.decode(errors="replace") for each in ESCAPES.values()]
    hostile = "\x1b]0;x\x07\x1b[5n\x9b6n\u202e\x1bP$qm\x1b\\\r\nrm"
    with attached(gateway, env=env(home)) as screen:
        screen.until(gateway, "terminals.take")
        for first in range(0, len(texts), 20):
            rows = dict(enumerate(texts[first : first + 20]))
            lines = {row: [[text, {"l": text, "fg": text}], [text]] for row, text in rows.items()}
            gateway.show({**lines, 21: [[f"seen {first}"]]}, title=texts[first])
            gateway.tell("terminal.clipboard", {"sid": SID, "text": texts[first]})
            screen.see(f"seen {first}")
        gateway.change(writer=hostile, waitingFor=hostile, title=hostile, activity="waiting")
        screen.see("needs you:")
        gateway.gone(state="crashed", reason=hostile)
        assert screen.leave() == 1
    raw = screen.raw.decode()
    for written in (ENTER, LEAVE, WHEEL_ON, WHEEL_OFF):
        raw = raw.replace(written, "")
    rest = OURS.sub("", raw).replace("\r\n", "")
    assert rest == plain(rest)


def test_the_status_line_hides_nothing_of_what_a_program_asks(
    gateway: RemoteGateway, home: Home
) -> None:
    command = "git status #\u3164\n" + " " * 400 + "touch p0" + " x" * 50
    with attached(gateway, env=env(home)) as screen:
        screen.until(gateway, "terminals.take")
        gateway.change(
            state="live", activity="waiting", waitingFor=main_argument({"command": command})
        )
        assert re.search("touch p0( x)*…", screen.see("needs you: git status #\\u3164 ⏎ touch p0"))
        gateway.gone(state="crashed", reason="it ended")
        assert screen.leave() == 1


def test_attach_in_a_workspace_uses_its_agent(
    gateway: RemoteGateway, home: Home, directory: Path
) -> None:
    below = directory / "work" / "inner" / "src"
    below.mkdir(parents=True)
    home.config_file.write_text(
        f'[agents.first]\nruntime = "demo"\n[agents.outer]\nruntime = "demo"\n'
        f'workspace = "{directory}/work"\n[agents.inner]\nruntime = "demo"\n'
        f'workspace = "{directory}/work/inner"\n'
    )
    environment = env(home)
    del environment["REMOTECLAW__AGENTS__MAIN__RUNTIME"]
    opened: list[dict[str, Any]] = []
    for where in (below, below.parents[1], directory):
        gateway.open_privately(home)
        with Witness.running(REMOTECLAW, "attach", env=environment, directory=where) as screen:
            assert isinstance(screen, Witness)
            screen.until(gateway, "terminals.take", len(opened) + 1)
            screen.type("\x1dd")
            assert screen.leave() == 0
        opened.append(gateway.of("terminals.open")[-1])
        gateway.close()
    assert [params.get("agent") for params in opened] == ["inner", "outer", None]
    assert not any("subdir" in params for params in opened), (
        "a subdirectory is another conversation"
    )


def test_a_reason_not_to_attach_is_one_sentence(home: Home) -> None:
    for arguments, more, words, code in (
        ((), {}, "`attach` needs a terminal;", 2),
        ((), {"REMOTECLAW_HOLDER": "1:2:3"}, "This is a terminal of RemoteClaw already", 2),
        (("x", "--agent", "main"), {}, "Name a session or an agent, not both.", 2),
        (("--read-only", "--prompt", "hi"), {}, "--read-only starts no program", 2),
    ):
        result = run_command("attach", *arguments, env=env(home, **more))
        assert result.returncode == code
        assert words in result.stderr


def test_a_refused_terminal_leaves_the_window_unchanged(gateway: RemoteGateway, home: Home) -> None:
    gateway.refuses["terminals.open"] = ("INVALID_REQUEST", "There is no agent x.")
    with attached(gateway, "--agent", "x", env=env(home)) as screen:
        assert screen.leave() == 1
        assert screen.raw == b"remoteclaw: There is no agent x.\r\n"
