"""The cost of the command line: the modules that a command imports before it does anything."""

from collections.abc import Iterator

import click
from click.testing import CliRunner

from remoteclaw.cli import main
from tests.support.cli import loaded_by

#: Libraries whose import takes half a second of processor time, all together.
SLOW_LIBRARIES = (
    *("asyncio", "orjson", "prompt_toolkit", "pydantic"),
    *("redis", "rich", "rq", "starlette"),
)


def test_help_loads_no_slow_library() -> None:
    assert not loaded_by("--help") & set(SLOW_LIBRARIES)


def test_every_command_has_the_option_h() -> None:
    for path in command_paths(main):
        result = CliRunner().invoke(main, [*path, "-h"])

        assert result.exit_code == 0, path
        assert result.output.startswith(" ".join(("Usage: main", *path)))


def command_paths(group: click.Group) -> Iterator[tuple[str, ...]]:
    """Yield the names that lead to each command and group."""
    for name, command in group.commands.items():
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, *path) for path in command_paths(command))
