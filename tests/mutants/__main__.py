"""Breaks one promise at a time and sees that the test which holds it turns red.

    python -m tests.mutants [ROOM | NAME …]

Each mutant is a small change to a copy of the product.
A test that stays green although its promise is broken proves nothing, so that is a failure here; so
is a test that is red without the mutant.
"""

import compileall
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.mutants import (
    ROOT,
    file_of_test,
    index_of_tests,
    mutants_of,
    mutated,
    places,
    rooms,
    sources_of,
)


def run(test: str, directory: Path) -> bool | None:
    """Run one test in a copy; return whether it is green, None if it was skipped."""
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", "-p", "no:randomly", test]
    env = {
        **os.environ,
        "REMOTECLAW_TEST_THOROUGH": "1",
        "PYTHONPATH": str(directory),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    result = subprocess.run(
        argv, cwd=directory, env=env, capture_output=True, text=True, check=False
    )
    if result.returncode not in (0, 1):
        raise SystemExit(f"{test} can't be run:\n{result.stdout}{result.stderr}")
    if " passed" not in result.stdout and " skipped" in result.stdout:
        return None
    return result.returncode == 0


def copy_to(directory: Path) -> None:
    """Copy what a test needs, and compile it: a mutant differs from its bytecode by its hash."""
    for name in ("remoteclaw", "workers", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
        compileall.compile_dir(
            directory / name,
            quiet=1,
            invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
        )
    shutil.copy(ROOT / "pyproject.toml", directory)


def main(names: Sequence[str]) -> int:
    """Run all mutants, or those of the rooms and names given; return how many survived."""
    wanted = [
        (room, mutant)
        for room in rooms()
        for mutant in mutants_of(room)
        if not names or room in names or any(name in mutant.name for name in names)
    ]
    for name in names:
        if not any(name == room or name in mutant.name for room, mutant in wanted):
            raise SystemExit(f"No room and no mutant has the name {name!r}: see tests/mutants.")
    survivors = []
    with tempfile.TemporaryDirectory(prefix="rc-mutants-", dir="/tmp") as name:
        directory = Path(name)
        copy_to(directory)
        files = index_of_tests(directory)
        is_green: dict[str, bool | None] = {}
        for room, mutant in wanted:
            file = file_of_test(mutant, files)
            if file is None:
                raise SystemExit(f"{mutant.name}: correct its test's name, {mutant.test}")
            test = f"{file.relative_to(directory)}::{mutant.test.rpartition('::')[2]}"
            if test not in is_green:
                is_green[test] = run(test, directory)
            if is_green[test] is None:
                sys.stdout.write(f"left out {mutant.name}: a CLI is not installed\n")
                continue
            if not is_green[test]:
                raise SystemExit(f"{test} is red without any mutant")
            sources = sources_of(room, directory)
            found = places(mutant, sources)
            if len(found) != 1:
                raise SystemExit(f"{mutant.name}: {room} has {len(found)} places for it, not 1")
            original = sources[found[0].file]
            found[0].file.write_text(mutated(mutant, found[0], original))
            is_noticed = not run(test, directory)
            found[0].file.write_text(original)
            sys.stdout.write(f"{'noticed ' if is_noticed else 'SURVIVED'} {mutant.name}\n")
            sys.stdout.flush()
            if not is_noticed:
                survivors.append(mutant)
    for mutant in survivors:
        sys.stdout.write(f"{mutant.name}: {mutant.test} stays green\n")
    return len(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
