"""Maps and rules of the repository: names in documents exist, and forbidden things don't."""

import ast
import re
import shlex
import subprocess
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from remoteclaw.cli import main
from remoteclaw.errors import RemoteClawError
from remoteclaw.up.supervisor import worker_command
from tests.mutants import (
    file_of_test,
    index_of_tests,
    mutants_of,
    mutated,
    places,
    rooms,
    sources_of,
)
from tests.support.agents import ROOT


def tracked(suffix: str = "") -> list[Path]:
    """Return every file that is, or is about to be, in the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        ROOT / name
        for name in names.splitlines()
        if name.endswith(suffix) and (ROOT / name).is_file()
    ]


def test_files_that_a_document_names_exist() -> None:
    rooms = "|".join(file.parent.name for file in (ROOT / "remoteclaw").glob("*/__init__.py"))
    path = re.compile(r"(?<![\w./])(?:remoteclaw|workers|tests|scripts|docs)/[\w./-]*\w")
    for document in tracked(".md"):
        text = document.read_text()
        named = set(path.findall(text))
        named |= {
            f"remoteclaw/{name}" for name in re.findall(rf"`((?:{rooms})/[\w./]+\.\w+)`", text)
        }

        assert {name for name in named if not (ROOT / name).exists()} == set(), document


def test_links_between_documents_lead_somewhere() -> None:
    for document in tracked(".md"):
        for target in re.findall(r"\]\((?!https?://)([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document}: {target}"


def test_every_decision_is_in_the_list() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\]\(([^)]+)\)", (folder / "README.md").read_text()))

    assert listed == {file.name for file in folder.glob("0*.md")}


def test_every_room_is_on_a_level() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {f"remoteclaw/{file.parent.name}" for file in (ROOT / "remoteclaw").glob("*/*.py")}
    rooms |= {f"remoteclaw/{file.name}" for file in (ROOT / "remoteclaw").glob("[a-z]*.py")}

    assert {name for name in rooms if f"`{name}" not in text} == set()


def test_every_key_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "keys.md").read_text()
    prefixes = re.findall(r'"(rc:\w+)', (ROOT / "remoteclaw" / "fleet" / "keys.py").read_text())

    assert {prefix for prefix in prefixes if f"`{prefix}" not in text} == set()


def test_the_workers_command_is_everywhere_the_same() -> None:
    """Without one of its flags it would run other people's jobs, or end when Redis is away."""
    command = "rq " + " ".join(worker_command()[1:])
    documents = ("Procfile", "compose.yaml", "docs/operations.md", "workers/settings.py")

    assert all(command in (ROOT / name).read_text() for name in documents)


def test_every_command_is_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()

    assert {name for name in main.commands if not re.search(rf"\b{name}\b", text)} == set()


@pytest.mark.parametrize("room", rooms())
def test_every_mutant_has_its_place(room: str) -> None:
    """`scripts/mutants` takes minutes; that each of them can be made is seen here."""
    sources, tests = sources_of(room), index_of_tests()
    lua = import_module("lupa.lua51").LuaRuntime()
    parse = {".py": ast.parse, ".lua": lua.compile, ".js": str}
    for mutant in mutants_of(room):
        found = places(mutant, sources)
        assert len(found) == 1, f"{mutant.name}: {found or mutant.before}"
        file = found[0].file
        parse[file.suffix](mutated(mutant, found[0], sources[file]))
        assert file_of_test(mutant, tests), f"{mutant.name}: {mutant.test}"


def test_the_processes_that_are_named_are_real() -> None:
    """Procfile and compose.yaml start programs that are installed, with flags that work."""
    commands = [
        line.partition(": ")[2]
        for line in (ROOT / "Procfile").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    composed = (ROOT / "compose.yaml").read_text()

    assert commands
    for command in commands:
        assert command in composed
    for command in commands:
        program, *arguments = shlex.split(command)
        subprocess.run(
            [ROOT / ".venv" / "bin" / program, *arguments[:1], "--help"],
            check=True,
            capture_output=True,
        )


def test_honcho_starts_what_the_procfile_says_as_often_as_it_says() -> None:
    text = (ROOT / "Procfile").read_text()
    (line,) = re.findall(r"`honcho ([^`]+)`", text)

    command, environ = import_module("honcho.command"), import_module("honcho.environ")
    asked = command.parser.parse_args(shlex.split(line))
    numbers = command._parse_concurrency(asked.concurrency)
    found = environ.parse_procfile(text).processes
    started = environ.expand_processes(found, concurrency=numbers)

    assert asked.command == "start"
    names = [process.name for process in started]
    assert names[:4] == [f"worker.{number}" for number in (1, 2, 3, 4)]
    assert names[4:] == ["gateway.1", "sweep.1", "channels.1"]


def test_nothing_points_out_of_the_repository() -> None:
    """No path of a person's machine, no package registry's address, no secret."""
    forbidden = re.compile(
        r"\.\./shared|/root/|/home/(?!me/)[a-z]+/|/Users/|files\.pythonhosted|registry\.npmjs|"
        r"pypi\.org/simple|--index-url|-----BEGIN|sk-ant-|ghp_[A-Za-z0-9]{20}"
    )
    allowed = {Path(__file__), ROOT / "scripts" / "requirements"}
    found = []
    for file in tracked():
        if file in allowed:
            continue
        text = file.read_text(errors="replace")
        found += [f"{file.relative_to(ROOT)}: {match[0]}" for match in forbidden.finditer(text)]

    assert found == []


def test_no_test_imports_a_test() -> None:
    """What two tests share is in `tests/support/`; a fixture is in a `conftest.py`."""
    imported = re.compile(r"^(?:from|import) tests\.[\w.]*\btest_\w+", re.MULTILINE)
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in (ROOT / "tests").rglob("*.py")
        for match in imported.finditer(file.read_text())
    ]

    assert found == []


def test_a_module_gives_a_name_once() -> None:
    """A second constant of the same name would count for all that stands above it, too."""
    found = []
    for file in (ROOT / "remoteclaw").rglob("*.py"):
        names = Counter(
            target.id
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        )
        found += [f"{file.relative_to(ROOT)}: {name}" for name, count in names.items() if count > 1]

    assert found == []


def test_tests_name_redis_keys_as_the_product_does() -> None:
    """A key that is renamed in `fleet/keys.py` is renamed everywhere."""
    files = (ROOT / "tests").rglob("test_*.py")

    assert [file.name for file in files if re.search(r"""["']rc:[a-z]""", file.read_text())] == []


def test_tests_wait_with_one_patience() -> None:
    """A bound that a busy machine meets is no promise; HANG_S only ends what hangs."""
    own = re.compile(
        r"mark\.timeout\(|asyncio\.timeout\([1-9]|within_s=\d+\b(?! \*)|\bwait\([1-9]\d*\)"
    )
    # Each of these has its reason where it stands.
    allowed = {"chaos.py", "load.py", "test_leaving.py", "test_doors.py", "test_session_access.py"}
    allowed |= {"test_conversation.py"}  # as long as three tests
    allowed |= {"tty.py", "dialogs.py"}  # a dialog that is drawn loses an Enter: it is tried again
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name not in allowed]
    found = [
        f"{file.name}: {match[0]}" for file in files for match in own.finditer(file.read_text())
    ]

    assert found == []


def test_requirements_are_exact_and_hashed() -> None:
    files = ("requirements.txt", "requirements-dev.txt", "requirements-terminals.txt")
    for name in (*files, ".ci/requirements.txt"):
        packages = re.findall(r"^\S.*", (ROOT / name).read_text(), re.MULTILINE)
        assert packages
        assert all(re.match(r"[\w.\[\]-]+==\S+ ", package) for package in packages), name


def test_every_error_is_documented() -> None:
    for error in RemoteClawError.__subclasses__():
        assert (error.__doc__ or "").startswith("Raised "), error.__name__


def test_every_trap_has_the_test_that_is_named() -> None:
    page = (ROOT / "docs" / "agents.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)

    assert len(named) > 12
    for file, test in named:
        assert f"def {test}" in (ROOT / file).read_text(), f"{file}::{test}"
