"""Closed and full standard streams, full disks and read-only places: one sentence for each."""

import errno
import os
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from remoteclaw.cli import main
from remoteclaw.cli.error_line import ErrorLineGroup
from remoteclaw.config.home import Home
from tests.support.command import REMOTECLAW
from tests.support.stack import Stack
from tests.support.terminal import env
from tests.support.waiting import HANG_S

CLOSED = (
    "remoteclaw: The output can't be written (it is closed); what was done before stays done. "
    "Redirect it elsewhere.\n"
)
FULL = CLOSED.replace("it is closed", "No space left on device")


def shell(line: str, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Run a line of a shell, in which `remoteclaw` is ours."""
    return subprocess.run(
        ["/bin/sh", "-c", line.replace("remoteclaw", shlex.quote(REMOTECLAW))],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("command", ["send hello", "send --json hello", "status", "up", "--help"])
async def test_output_that_cannot_be_written_is_reported_in_one_sentence(
    stack: Stack, command: str
) -> None:
    await stack.start_worker()
    # Python then keeps nothing that it could not write.
    unbuffered = {"PYTHONUNBUFFERED": "1"} if command in ("status", "up") else {}

    for redirection, expected in ((">&-", CLOSED), (">/dev/full", FULL)):
        result = shell(f"remoteclaw {command} {redirection}", stack.env(**unbuffered))
        assert (result.returncode, result.stdout, result.stderr) == (1, "", expected), redirection


@pytest.mark.usefixtures("gateway")
@pytest.mark.parametrize("redirection", ["<&-", "2>&-", "<&- 2>&-", "2>/dev/full"])
async def test_commands_work_without_standard_input_and_error(
    stack: Stack, redirection: str
) -> None:
    """Nothing that is opened gets the descriptor of a closed stream."""
    await stack.start_worker()

    for command, status, word in (("send hello", 0, "RemoteClaw's demo agent"), ("chat", 2, "")):
        result = shell(f"remoteclaw {command} {redirection}", stack.env())
        assert result.returncode == (1 if "full" in redirection and status else status)
        assert word in result.stdout
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("number", "file", "sentence"),
    [
        (errno.ENOSPC, "/data/file", "The disk with /data/file is full: make room."),
        (errno.EDQUOT, None, "The disk with HOME is full: make room."),
        (errno.EROFS, "/data/file", "/data/file can't be used (Read-only file system): change"),
        (errno.EACCES, "/data/file", "/data/file can't be used (Permission denied): change"),
    ],
)
def test_an_error_of_the_disk_is_one_sentence(
    home: Home, number: int, file: str | None, sentence: str
) -> None:
    @click.group(cls=ErrorLineGroup)
    def group() -> None:
        pass

    @group.command()
    def fail() -> None:
        raise OSError(number, os.strerror(number), file)

    result = CliRunner().invoke(group, ["fail"])

    assert result.exit_code == 1
    assert result.stderr.startswith(f"remoteclaw: {sentence.replace('HOME', str(home.path))}")
    assert not (home.logs / "crash.log").exists()


def test_up_and_doctor_say_that_the_disk_is_full(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.config.home.MIN_ROOM_BYTES", 1 << 60)
    full = f"The disk with {home.path} is full: make room, or set REMOTECLAW_HOME to another."

    up, doctor = (CliRunner().invoke(main, [command]) for command in ("up", "doctor"))

    assert (up.exit_code, up.stderr) == (1, f"remoteclaw: {full}\n")
    assert doctor.exit_code == 1
    assert full in doctor.stdout
    assert not list(home.redis_data.iterdir())


ON_A_DISK = """
mount -t tmpfs -o size=2m none "$1"
[ "$2" = new ] || mkdir -m 700 "$1/home"
case $3 in
  full) dd if=/dev/zero of="$1/fill" bs=4k status=none 2>/dev/null || : ;;
  ro) mount -o remount,ro "$1" ;;
esac
for command in up doctor "config set queue.mode steer" "send hello" status service; do
  timeout 60 "$REMOTECLAW" $command 2>&1 | grep "^remoteclaw:\\|^NO\\|Traceback"
done
"""


@pytest.mark.thorough("full-new", "ro-old")
@pytest.mark.skipif(
    not shutil.which("unshare")
    or subprocess.run(["unshare", "-rm", "true"], check=False).returncode != 0,
    reason="this machine lets nobody mount a disk",
)
@pytest.mark.parametrize("age", ["new", "old"])
@pytest.mark.parametrize("state", ["full", "ro"])
def test_no_command_fails_unexpectedly_on_a_full_or_read_only_disk(
    directory: Path, age: str, state: str
) -> None:
    variables = env(Home(directory / "home"), REMOTECLAW=REMOTECLAW)

    printed = subprocess.run(
        ["unshare", "-rm", "sh", "-c", ON_A_DISK, "sh", directory, age, state],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    ).stdout

    why = "is full" if state == "full" else "Read-only file system"
    up, doctor, change, *others = printed.splitlines()
    assert up.startswith("remoteclaw: The ")
    assert why in up
    assert doctor.startswith("NO  state directory ")
    assert why in doctor
    assert change.startswith("remoteclaw: ")
    assert len(others) == 2
    for line in (change, *others):
        assert line.startswith("remoteclaw: ")
        assert "unexpected" not in line
