"""The cost of the command line: what a command imports before it does anything."""

import subprocess
import sys
from collections.abc import Iterator

import click
from click.testing import CliRunner

from remoteclaw.cli import main

#: Half of a second of processor time, together.
DEAR = ("asyncio", "pydantic", "prompt_toolkit", "redis", "rich", "rq", "starlette")


def loaded(program: str) -> set[str]:
    """Return the modules that a Python program has loaded at its end."""
    told = "import sys; print(*sys.modules, file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", f"{program}\n{told}"], capture_output=True, text=True, check=True
    )
    return set(result.stderr.split())


def test_help_loads_no_library_but_its_own() -> None:
    program = "from remoteclaw.cli import main\nmain(['--help'], standalone_mode=False)"

    assert not loaded(program) & set(DEAR)


def test_every_command_explains_itself_with_h() -> None:
    for words in words_of(main):
        result = CliRunner().invoke(main, [*words, "-h"])

        assert result.exit_code == 0, words
        assert result.output.startswith(" ".join(("Usage: main", *words)))


def words_of(group: click.Group) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command, groups included."""
    for name, command in group.commands.items():
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, *words) for words in words_of(command))
