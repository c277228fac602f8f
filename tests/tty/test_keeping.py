"""What a gateway leaves with a terminal's holder for the one that comes next."""

from pathlib import Path

import pytest

from remoteclaw.holder.terminal_client import TerminalClient
from remoteclaw.runtimes.codex_terminal import CodexTerminal
from remoteclaw.tty.watch import Hearer, Watching
from tests.support.holders import Reader, attach, end, sh
from tests.support.shown import Nobody

pytest.importorskip("pyghostty")

#: Begins a sequence, and goes on with it for longer than any is kept.
LONG = (
    "stty -echo; echo begin; read x; printf '\\033]7501;'; "
    "head -c 300000 /dev/zero | tr '\\0' x; printf '!'; exec sleep 1000"
)


async def watched(client: TerminalClient, directory: Path, hearer: Hearer) -> Watching:
    watch = CodexTerminal().watch(
        run_dir=directory, workspace=str(directory), env={}, conversation=None
    )
    watching = Watching(client, watch, hearer)
    await watching.restore()
    return watching


async def test_a_picture_that_cant_be_made_leaves_the_one_before(directory: Path) -> None:
    """In the middle of a long sequence nothing is lost: the picture before, and all that came."""
    first = Reader(await sh(directory, LONG))
    await first.until(b"begin")
    client = await attach(first.terminal)
    reader, early = Reader(client), await watched(client, directory, Nobody())
    await early.keep()
    assert await client.write(b"\n")
    await reader.until(b"!")
    later = await attach(client)
    known = (later.picture, later.output)
    watching = await watched(later, directory, Nobody())
    assert watching.screen.picture() == b""
    await watching.keep()
    last = await attach(later)

    assert (last.picture, last.output) == known
    assert (await watched(last, directory, Nobody())).screen.text().startswith("begin")
    await end(last, later, client, first.terminal)


class Counting(Nobody):
    """Counts what it hears."""

    news = 0

    def changed(self) -> None:
        self.news += 1


async def test_a_wheel_that_turns_in_a_title_is_no_news(directory: Path) -> None:
    """It turns ten times a second: to tell all of each, and Redis, would be most of the work."""
    titles = "".join(f"\\033]0;{sign} works\\007" for sign in "⠂⠐⠂")
    wheel = f"printf '{titles}turned'; exec sleep 1000"
    first = Reader(await sh(directory, wheel))
    await first.until(b"turned")
    client, hearer = await attach(first.terminal), Counting()

    watching = await watched(client, directory, hearer)

    assert (watching.watch.activity, watching.screen.title) == ("busy", "⠂ works")
    assert hearer.news == 1
    await end(client, first.terminal)
