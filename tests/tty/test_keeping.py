"""The state that a gateway saves in a terminal's holder for the next gateway."""

from pathlib import Path

import pytest

from remoteclaw.holder.terminal_client import TerminalClient
from remoteclaw.runtimes.codex.terminal import CodexTerminal
from remoteclaw.tty.watch import TerminalListener, WatchedTerminal
from tests.support.holders import Reader, attach, end, sh
from tests.support.terminal_program import Nobody

pytest.importorskip("pyghostty")

#: Begins an escape sequence that becomes longer than the emulator keeps.
LONG = (
    "stty -echo; echo begin; read x; printf '\\033]7501;'; "
    "head -c 300000 /dev/zero | tr '\\0' x; printf '!'; exec sleep 1000"
)


async def watched(
    client: TerminalClient, directory: Path, listener: TerminalListener
) -> WatchedTerminal:
    watch = CodexTerminal().watch(
        run_dir=directory, workspace=str(directory), env={}, conversation=None
    )
    watching = WatchedTerminal(client, watch, listener)
    await watching.restore()
    return watching


async def test_a_snapshot_that_cannot_be_taken_leaves_the_previous_one(directory: Path) -> None:
    """Within a long sequence, the holder keeps the previous snapshot and all later output."""
    first = Reader(await sh(directory, LONG))
    await first.until(b"begin")
    client = await attach(first.terminal)
    reader, early = Reader(client), await watched(client, directory, Nobody())
    await early.save()
    assert await client.write(b"\n")
    await reader.until(b"!")
    later = await attach(client)
    known = (later.picture, later.output)
    watching = await watched(later, directory, Nobody())
    assert watching.screen.snapshot() == b""
    await watching.save()
    last = await attach(later)

    assert (last.picture, last.output) == known
    assert (await watched(last, directory, Nobody())).screen.text().startswith("begin")
    await end(last, later, client, first.terminal)


class Counting(Nobody):
    """Counts changes of the status."""

    change_count = 0

    def status_changed(self) -> None:
        self.change_count += 1


async def test_a_spinner_in_a_title_is_no_change_of_status(directory: Path) -> None:
    """A spinner turns ten times a second; publishing each turn would be most of the work."""
    titles = "".join(f"\\033]0;{sign} works\\007" for sign in "⠂⠐⠂")
    spinner = f"printf '{titles}turned'; exec sleep 1000"
    first = Reader(await sh(directory, spinner))
    await first.until(b"turned")
    client, listener = await attach(first.terminal), Counting()

    watching = await watched(client, directory, listener)

    assert (watching.program.activity, watching.screen.title) == ("busy", "⠂ works")
    assert listener.change_count == 1
    await end(client, first.terminal)
