"""The cost of the command line: what a command imports before it does anything."""

from collections.abc import Iterator

import click
from click.testing import CliRunner

from remoteclaw.cli import main
from tests.support.cli import loaded_by

#: Half of a second of processor time, together.
DEAR = ("asyncio", "pydantic", "prompt_toolkit", "redis", "rich", "rq", "starlette")


def test_help_loads_no_library_but_its_own() -> None:
    assert not loaded_by("--help") & set(DEAR)


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
