"""What a gateway leaves with a terminal's holder for the one that comes next."""

from pathlib import Path

import pytest

from remoteclaw.holder.terminal_client import TerminalClient
from remoteclaw.runtimes.codex_terminal import CodexTerminal
from remoteclaw.tty.watching import Watching
from tests.support.holders import Reader, attach, end, sh
from tests.support.shown import Nobody

pytest.importorskip("pyghostty")

#: Begins a sequence, and goes on with it for longer than any is kept.
LONG = (
    "stty -echo; echo begin; read x; printf '\\033]7501;'; "
    "head -c 300000 /dev/zero | tr '\\0' x; printf '!'; exec sleep 1000"
)


async def watched(client: TerminalClient, directory: Path) -> Watching:
    watch = CodexTerminal().watch(
        run_dir=directory, workspace=str(directory), env={}, conversation=None
    )
    watching = Watching(client, watch, Nobody())
    await watching.restore()
    return watching


async def test_a_picture_that_cant_be_made_leaves_the_one_before(directory: Path) -> None:
    """In the middle of a long sequence nothing is lost: the picture before, and all that came."""
    first = Reader(await sh(directory, LONG))
    await first.until(b"begin")
    client = await attach(first.terminal)
    early = await watched(client, directory)
    await early.keep()
    assert await client.write(b"\n")
    await Reader(client).until(b"!")
    later = await attach(client)
    watching = await watched(later, directory)
    assert watching.screen.picture() == b""
    await watching.keep()
    last = await attach(later)

    assert last.picture == later.picture
    assert last.output == later.output
    assert (await watched(last, directory)).screen.text().startswith("begin")
    await end(last, later, client, first.terminal)
