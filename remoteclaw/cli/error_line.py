"""The edge of the command line: one line for an error, no traceback."""

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click

from remoteclaw.cli.output import complain
from remoteclaw.errors import RemoteClawError, first_of
from remoteclaw.host.run_main import run_and_end
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    import asyncio

#: How much of an unexpected error is shown, in characters: its line has 300 with the rest.
MAX_SHOWN = 160


class Edge(click.Group):
    """A group of commands in sections, whose errors are one line each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections: dict[str, Sequence[click.Command]] = {}

    def add_section(self, title: str, commands: Sequence[click.Command]) -> None:
        """Add commands, which the help lists below a title."""
        self._sections[title] = commands
        for command in commands:
            self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        names = max(map(len, self.list_commands(ctx)))
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (
                            f"{command.name:<{names}}",
                            command.get_short_help_str(formatter.width - names - 6),
                        )
                        for command in commands
                    ]
                )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Be the program."""
        run_and_end(lambda: self.main(*args, **kwargs))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # LC_ALL=POSIX has no "×" and no "…"
        return super().main(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the arguments that stand before the command."""
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            raise _shown(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; no traceback reaches a person."""
        try:
            return super().invoke(ctx)
        except* RemoteClawError as errors:
            _fail(str(first_of(errors)))
        except* (click.ClickException, click.exceptions.Exit, click.Abort) as errors:
            raise _shown(first_of(errors)) from None
        except* KeyboardInterrupt:
            sys.exit(130)
        except* BrokenPipeError:
            sys.exit(0)  # the reader has seen enough
        except* Exception as errors:  # noqa: BLE001 - the edge of the process
            what = one_line(repr(first_of(errors)), most=MAX_SHOWN)
            kept = _keep_traceback(errors, f"{ctx.command_path} {ctx.invoked_subcommand}")
            _fail(f"An unexpected error, {what}: {kept}")
        finally:
            _flush()


def leave_event() -> "asyncio.Event":
    """Return an event that a signal to end sets."""
    import asyncio

    leave = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, leave.set)
    return leave


def _fail(text: str) -> NoReturn:
    complain(text)
    sys.exit(1)


def _shown(error: BaseException) -> BaseException:
    """Return an error that click shows; it quotes arguments, which may be others' words."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error  # the help itself
    if isinstance(error, click.ClickException):
        error.message = one_line(error.message)  # type: ignore[misc]
    return error


def _keep_traceback(error: BaseException, command: str) -> str:
    """Write a traceback where an operator finds it, and say where.

    The command is named without its arguments, which may be a message.
    """
    from remoteclaw.config.home import Home

    try:
        file = Home.default().create().logs / "crash.log"
        with file.open("a", encoding="utf-8", errors="backslashreplace") as log:
            file.chmod(0o600)
            log.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z} {command}\n")
            traceback.print_exception(error, file=log)
    except (OSError, RemoteClawError):
        return "it could not be written down."
    return f"please report it with the end of {file}."


def _flush() -> None:
    """Leave nothing for Python to write at its end to a terminal or a reader that is gone."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
