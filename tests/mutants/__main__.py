"""Breaks one promise at a time, and checks that the test of the promise fails.

    python -m tests.mutants [ROOM | NAME …]
    python -m tests.mutants --pure [PART OF A CHANGE …]

Each mutant is a small change to a copy of the product; several copies are tested at once.
A test that passes although its promise is broken proves nothing, so that is a failure here; so is a
test that fails without the mutant.
With `--pure`, every small change to the pure modules is tested instead.
"""

import compileall
import contextlib
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import (
    ROOT,
    Mutant,
    file_of_test,
    index_of_tests,
    mutants_of,
    mutated,
    places,
    rooms,
    sources_of,
)
from tests.mutants._operators import EQUIVALENT, PURE, Change, changes

#: The number of mutants tested at once: most tests wait for an event that the mutant prevents.
COPIES = 3 * len(os.sched_getaffinity(0))
#: The time limits in a copy with a mutant, of one wait and of the whole test, in seconds.
WAIT_S = 20
MAX_S = 100


def pytest(
    directory: Path, *arguments: str, hang_s: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy."""
    env = {
        **os.environ,
        **({"REMOTECLAW_TEST_HANG_S": str(hang_s)} if hang_s else {}),
        "REMOTECLAW_TEST_THOROUGH": "1",
        "PYTHONPATH": str(directory),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *arguments]
    result = subprocess.run(
        argv, cwd=directory, env=env, capture_output=True, text=True, check=False
    )
    if result.returncode not in (0, 1):
        raise SystemExit(f"{arguments} can't be run:\n{result.stdout}{result.stderr}")
    return result


def run(test: str, directory: Path) -> bool | None:
    """Run one test in a copy; return whether it passes, or None if it is skipped."""
    result = pytest(directory, "-n", "0", test)
    if " passed" not in result.stdout and " skipped" in result.stdout:
        return None
    return result.returncode == 0


def unbroken(tests: Iterable[str], directory: Path) -> dict[str, bool | None]:
    """Run tests in a copy without a mutant: all in one run, and those that don't pass alone."""
    result = pytest(directory, "-rA", *sorted(set(tests)))
    lines = [line.partition(" ") for line in result.stdout.splitlines()]

    def tests_with(*results: str) -> set[str]:
        return {name.partition(" - ")[0] for word, _, name in lines if word in results}

    passed, failed = tests_with("PASSED"), tests_with("FAILED", "ERROR")

    def has(test: str, names: set[str]) -> bool:
        return test in names or any(name.startswith(f"{test}[") for name in names)

    return {
        test: True if has(test, passed) and not has(test, failed) else run(test, directory)
        for test in set(tests)
    }


def copy_to(directory: Path) -> None:
    """Copy and compile the code; bytecode is checked by hash, so that mutants are recompiled."""
    for name in ("remoteclaw", "workers", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
        compileall.compile_dir(
            directory / name,
            quiet=1,
            invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
        )
    shutil.copy(ROOT / "pyproject.toml", directory)


@contextlib.contextmanager
def copied() -> Iterator[tuple[ThreadPoolExecutor, SimpleQueue[Path]]]:
    """Make copies of the code, and as many threads."""
    copies = SimpleQueue[Path]()
    with (
        tempfile.TemporaryDirectory(prefix="rc-mutants-", dir="/tmp") as parent,
        ThreadPoolExecutor(COPIES) as pool,
    ):
        copy_to(Path(parent, "0"))
        for number in range(COPIES):
            directory = Path(parent, str(number))
            if number:
                shutil.copytree(Path(parent, "0"), directory)
            copies.put(directory)
        yield pool, copies


def is_noticed(room: str, mutant: Mutant, test: str, directory: Path) -> bool:
    """Whether a mutant's test fails in a copy with the mutant."""
    sources = sources_of(room, directory)
    matches = places(mutant, sources)
    if len(matches) != 1:
        raise SystemExit(f"{mutant.name}: {room} has {len(matches)} places for it, not 1")
    (place,) = matches
    original = sources[place.file]
    place.file.write_text(mutated(mutant, place, original))
    try:
        limits = ("-n", "0", "-x", f"--timeout={MAX_S}")
        return pytest(directory, *limits, test, hang_s=WAIT_S).returncode != 0
    finally:
        place.file.write_text(original)


def tests_of(mutants: Iterable[Mutant]) -> dict[Mutant, str]:
    """Return the pytest id of each mutant's test."""
    files = index_of_tests()
    tests = {}
    for mutant in mutants:
        file = file_of_test(mutant, files)
        if file is None:
            raise SystemExit(f"{mutant.name}: correct its test's name, {mutant.test}")
        tests[mutant] = f"{file.relative_to(ROOT)}::{mutant.test.rpartition('::')[2]}"
    return tests


def main(names: Sequence[str]) -> int:
    """Test all mutants, or those of the named rooms and titles; return the number of survivors."""
    wanted = {
        mutant: room
        for room in rooms()
        for mutant in mutants_of(room)
        if not names or room in names or any(name in mutant.name for name in names)
    }
    for name in names:
        if not any(name == room or name in mutant.name for mutant, room in wanted.items()):
            raise SystemExit(f"No room and no mutant has the name {name!r}: see tests/mutants.")
    tests = tests_of(wanted)
    survivors = []
    with copied() as (pool, copies):
        directory = copies.get()
        has_passed = unbroken(tests.values(), directory)
        copies.put(directory)
        for test in [test for test, passed in has_passed.items() if passed is False]:
            raise SystemExit(f"{test} fails without any mutant")

        def test_mutant(mutant: Mutant) -> tuple[Mutant, bool | None]:
            if has_passed[tests[mutant]] is None:
                return mutant, None
            copy = copies.get()
            try:
                return mutant, is_noticed(wanted[mutant], mutant, tests[mutant], copy)
            finally:
                copies.put(copy)

        for mutant, noticed in pool.map(test_mutant, wanted):
            word = {True: "caught  ", False: "SURVIVED", None: "skipped "}[noticed]
            reason = ": a CLI is not installed" if noticed is None else ""
            sys.stdout.write(f"{word} {mutant.name}{reason}\n")
            sys.stdout.flush()
            if noticed is False:
                survivors.append(mutant)
    for mutant in survivors:
        sys.stdout.write(f"{mutant.name}: {mutant.test} passes\n")
    return len(survivors)


def main_pure(names: Sequence[str]) -> int:
    """Test all changes to the pure modules, or those with a part of the name; return survivors."""
    wanted = [
        change
        for file in PURE
        for change in changes(file)
        if str(change) not in EQUIVALENT and (not names or any(n in str(change) for n in names))
    ]
    with copied() as (pool, copies):

        def is_noticed(change: Change) -> bool:
            copy = copies.get()
            file = copy / change.file
            original = file.read_text()
            file.write_text(change.applied(original))
            try:
                limits = ("-n", "0", "-x", f"--timeout={MAX_S}")
                return pytest(copy, *limits, PURE[change.file]).returncode != 0
            except SystemExit:  # the tests can't even be collected
                return True
            finally:
                file.write_text(original)
                copies.put(copy)

        survivors = 0
        for change, noticed in zip(wanted, pool.map(is_noticed, wanted), strict=True):
            if not noticed:
                survivors += 1
                sys.stdout.write(f"SURVIVED {change}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{len(wanted)} changes, {survivors} survived\n")
    return survivors


if __name__ == "__main__":
    arguments = sys.argv[1:]
    survived = main_pure(arguments[1:]) if arguments[:1] == ["--pure"] else main(arguments)
    sys.exit(min(survived, 1))
