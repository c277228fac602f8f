"""The root of the command line: one line for an error, not a traceback."""

import contextlib
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

import click

from remoteclaw.cli.output import complain
from remoteclaw.errors import RemoteClawError, first_of
from remoteclaw.host.run_main import run_and_exit
from remoteclaw.host.terminal import one_line

#: The line of an unexpected error quotes at most this many characters of the error.
MAX_ERROR_CHARS = 160


class ErrorLineGroup(click.Group):
    """The root group of commands: lists them in sections, and prints each error as one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections: dict[str, Sequence[click.Command]] = {}

    def add_section(self, title: str, commands: Sequence[click.Command]) -> None:
        """Add commands; the help lists them under `title`."""
        self._sections[title] = commands
        for command in commands:
            self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of each section to the help."""
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
        """Run the command line as this process's program, and exit."""
        run_and_exit(lambda: self.main(*args, **kwargs))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line; characters that the locale can't encode become `?`."""
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # LC_ALL=POSIX has no "×" and no "…"
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # of --help and --version, which no command prints
            _exit_for(error, self.name or "")

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments; the message of an error is one line."""
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            raise _on_one_line(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and print an error as one line on standard error."""
        try:
            return super().invoke(ctx)
        except BaseException as error:  # noqa: BLE001 - nothing above this catches it
            _exit_for(error, f"{ctx.command_path} {ctx.invoked_subcommand}")
        finally:
            _flush()


def _exit_for(error: BaseException, command: str) -> NoReturn:
    """Exit for an error, or for an exception group with an error; print one line about it.

    This is no `except*` block: before Python 3.11.4, an exit from such a block becomes part of an
    exception group, which the interpreter prints with a traceback.
    """
    match _cause_of(error):
        case RemoteClawError() as expected:
            _exit_with_error(str(expected))
        case click.ClickException() | click.exceptions.Exit() | click.Abort() as of_click:
            raise _on_one_line(of_click) from None
        case KeyboardInterrupt():
            sys.exit(130)
        case BrokenPipeError():
            sys.exit(0)  # the reader, such as `head`, has stopped reading
        case OSError(filename=None) if why := _output_problem():
            _exit_with_error(
                f"The output can't be written ({why}); what was done before stays done. "
                "Redirect it elsewhere."
            )
        case OSError(errno=errno.ENOSPC | errno.EDQUOT, filename=file):
            from remoteclaw.config.home import Home

            _exit_with_error(f"The disk with {file or Home.default().path} is full: make room.")
        case OSError(errno=errno.EROFS | errno.EACCES | errno.EPERM, filename=str(file)) as refused:
            _exit_with_error(
                f"{file} can't be used ({refused.strerror}): change its owner or mode, or use "
                "another place."
            )
        case Exception() as unexpected:
            what = one_line(repr(unexpected), max_chars=MAX_ERROR_CHARS)
            _exit_with_error(f"An unexpected error, {what}: {_save_traceback(error, command)}")
        case exiting:
            raise exiting


def _cause_of(error: BaseException) -> BaseException:
    """Return an error itself; of a group, the first `RemoteClawError`, or else the first error."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    expected = error.subgroup(RemoteClawError)
    return first_of(expected) if expected else first_of(error)


def _exit_with_error(text: str) -> NoReturn:
    with contextlib.suppress(OSError):  # only the exit status can tell, then
        complain(text)
    sys.exit(1)


def _open_closed_streams() -> None:
    """Open the standard streams that were closed at the start, as with `>&-`.

    Otherwise a socket or file would get such a descriptor, and whatever prints would write to it.
    Standard input is empty, what is written to standard error is discarded, and writing to standard
    output fails.
    """
    for number, (name, flags) in enumerate(
        (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    ):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, flags)
            if null == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(null, number)
                os.close(null)
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _output_problem() -> str | None:
    """Return why standard output can't be written; None if it can.

    Only a further write tells: what failed may not be in a buffer any longer.
    """
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as error:
        return "it is closed" if error.errno == errno.EBADF else error.strerror
    return None


def _on_one_line(error: BaseException) -> BaseException:
    """Return an error of click with its message on one line.

    The message quotes arguments, which may contain control sequences.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error  # its message is the help
    if isinstance(error, click.ClickException):
        error.message = one_line(error.message)  # type: ignore[misc]
    return error


def _save_traceback(error: BaseException, command: str) -> str:
    """Append a traceback to `crash.log`; return the rest of the error's sentence.

    `command` is the command without its arguments, which may contain a message.
    """
    from remoteclaw.config.home import Home

    try:
        file = Home.default().create().logs / "crash.log"
        with file.open("a", encoding="utf-8", errors="backslashreplace") as log:
            file.chmod(0o600)
            log.write(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z} {command}\n")
            traceback.print_exception(error, file=log)
    except (OSError, RemoteClawError):
        return "its traceback could not be saved."
    return f"please report it with the end of {file}."


def _flush() -> None:
    """Flush the output. If its reader is gone, discard the rest.

    Otherwise Python would try to write it at exit, and fail with a message.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
