"""Rules of the repository: names in documents exist, and forbidden code and text doesn't."""

import ast
import dataclasses
import functools
import itertools
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from remoteclaw import protocols
from remoteclaw.cli import main
from remoteclaw.errors import RemoteClawError
from remoteclaw.protocols import ChannelProfile, Incoming, PollResult, channel, platform
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
    """Return every file that is in the repository or can be added to it."""
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


def test_every_decision_page_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\]\(([^)]+)\)", (folder / "README.md").read_text()))

    assert listed == {file.name for file in folder.glob("0*.md")}


def test_architecture_md_names_every_package_and_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {f"remoteclaw/{file.parent.name}" for file in (ROOT / "remoteclaw").glob("*/*.py")}
    rooms |= {f"remoteclaw/{file.name}" for file in (ROOT / "remoteclaw").glob("[a-z]*.py")}

    assert {name for name in rooms if f"`{name}" not in text} == set()


def test_every_redis_key_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "keys.md").read_text()
    prefixes = re.findall(r'"(rc:\w+)', (ROOT / "remoteclaw" / "fleet" / "keys.py").read_text())

    assert {prefix for prefix in prefixes if f"`{prefix}" not in text} == set()


def test_the_worker_command_is_the_same_in_every_document() -> None:
    """Without one of its flags, a worker would run foreign jobs, or end when Redis is away."""
    command = "rq " + " ".join(worker_command()[1:])
    documents = ("Procfile", "docs/operations.md", "workers/settings.py")

    assert all(command in (ROOT / name).read_text() for name in documents)


def test_every_command_is_in_the_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()

    assert {name for name in main.commands if not re.search(rf"\b{name}\b", text)} == set()


@pytest.mark.parametrize("room", rooms())
def test_every_mutant_matches_one_place_and_names_one_test(room: str) -> None:
    """`scripts/mutants` takes minutes; this test checks that each mutant can be made."""
    sources, tests = sources_of(room), index_of_tests()
    lua = import_module("lupa.lua51").LuaRuntime()
    parse = {".py": ast.parse, ".lua": lua.compile, ".js": str}
    for mutant in mutants_of(room):
        found = places(mutant, sources)
        assert len(found) == 1, f"{mutant.name}: {found or mutant.before}"
        file = found[0].file
        parse[file.suffix](mutated(mutant, found[0], sources[file]))
        assert file_of_test(mutant, tests), f"{mutant.name}: {mutant.test}"


def test_every_promise_and_right_has_a_mutant_and_every_mutant_guards_one() -> None:
    """The tables "The promise" and "Rights" name the tests, as files or as `FILE::TEST`."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    promises, rights = (
        re.search(rf"^## {heading}$.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
        for heading in ("The promise", "Rights")
    )
    assert promises
    assert rights
    rows = {
        row: set(re.findall(r"`(tests/[^`]+)`", row))
        for section in (promises, rights)
        for row in re.findall(r"^\| (?!promise|right|-).*$", section[0], re.MULTILINE)
    }
    index, guards = index_of_tests(), {}
    for mutant in itertools.chain.from_iterable(map(mutants_of, rooms())):
        file = file_of_test(mutant, index)
        assert file
        name = str(file.relative_to(ROOT))
        test = mutant.test.partition("[")[0].rpartition("::")[2]
        guards[mutant.name] = {name, f"{name}::{test}"}

    named, tested = set().union(*rows.values()), set().union(*guards.values())
    assert [row for row, tests in rows.items() if not tests & tested] == []
    assert [name for name, tests in guards.items() if not tests & named] == []
    tests = {f"{file.relative_to(ROOT)}::{test}" for test in index for file in index[test]}
    assert {name for name in named if "::" in name} <= tests


def test_the_procfile_starts_existing_programs() -> None:
    """The programs are installed, and accept the first argument."""
    commands = [
        line.partition(": ")[2]
        for line in (ROOT / "Procfile").read_text().splitlines()
        if line and not line.startswith("#")
    ]

    assert commands
    for command in commands:
        program, *arguments = shlex.split(command)
        subprocess.run(
            [ROOT / ".venv" / "bin" / program, *arguments[:1], "--help"],
            check=True,
            capture_output=True,
        )


def test_honcho_starts_the_processes_of_the_procfile_in_the_given_numbers() -> None:
    text = (ROOT / "Procfile").read_text()
    (line,) = re.findall(r"`honcho ([^`]+)`", text)

    command, environ = import_module("honcho.command"), import_module("honcho.environ")
    options = command.parser.parse_args(shlex.split(line))
    concurrency = command._parse_concurrency(options.concurrency)
    declared = environ.parse_procfile(text).processes
    started = environ.expand_processes(declared, concurrency=concurrency)

    assert options.command == "start"
    names = [process.name for process in started]
    assert names[:4] == [f"worker.{number}" for number in (1, 2, 3, 4)]
    assert names[4:] == ["gateway.1", "sweep.1", "channels.1"]


def test_no_file_has_a_secret_or_a_path_outside_the_repository() -> None:
    """The repository has no path of a developer's machine, no registry address and no secret."""
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
    """Code that tests share belongs in `tests/support/`, and a fixture in a `conftest.py`."""
    imported = re.compile(r"^(?:from|import) tests\.[\w.]*\btest_\w+", re.MULTILINE)
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in (ROOT / "tests").rglob("*.py")
        for match in imported.finditer(file.read_text())
    ]

    assert found == []


def test_processes_that_work_for_long_import_nothing_of_ours_later() -> None:
    """After `git pull`, a module that is imported late does not fit those that are loaded."""
    late = {
        "remoteclaw/config/home.py",  # a module that all processes have loaded
        "remoteclaw/connector/start.py",
        "remoteclaw/gateway/methods/push.py",  # cryptography, which is slow, for a subscription
        "remoteclaw/gateway/page/notifier.py",
    }
    short = {"cli", "chat"}  # commands, and a chat that can be opened again
    found = {
        str(file.relative_to(ROOT))
        for file in [*(ROOT / "remoteclaw").rglob("*.py"), *(ROOT / "workers").glob("*.py")]
        if file.relative_to(ROOT).parts[1] not in short
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("remoteclaw")
    }

    assert found - late == set()


def test_no_module_assigns_a_global_name_twice() -> None:
    """A second constant of the same name would also change the functions above it."""
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


def test_tests_take_redis_key_names_from_keys_py() -> None:
    """A rename of a key in `fleet/keys.py` then reaches the tests."""
    files = (ROOT / "tests").rglob("test_*.py")

    assert [file.name for file in files if re.search(r"""["']rc:[a-z]""", file.read_text())] == []


def test_tests_use_the_common_time_limit() -> None:
    """A shorter limit fails on a busy machine; HANG_S only ends a test that hangs."""
    own = re.compile(
        r"mark\.timeout\(|asyncio\.timeout\([1-9]|within_s=\d+\b(?! \*)|\bwait\([1-9]\d*\)"
    )
    # Each of these files gives the reason for its own limit.
    allowed = {"load.py", "test_leaving.py", "test_doors.py", "test_session_access.py"}
    # They take as long as three tests.
    allowed |= {"test_conversation.py", "test_upgrade.py", "test_host_stops.py"}
    # A dialog can drop a key press while it is being drawn, so the tests press Enter again.
    allowed |= {"tty.py", "dialogs.py"}
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name not in allowed]
    found = [
        f"{file.name}: {match[0]}" for file in files for match in own.finditer(file.read_text())
    ]

    assert found == []


def test_nothing_is_raised_within_an_except_star_block() -> None:
    """Before Python 3.11.4, `raise`, `sys.exit()` and a cancelled `await` there raise a group.

    Such a block may only note and log what it caught; the code after it raises.
    """
    calls = {"first_of", "frames_of"}
    found = []
    for room in ("remoteclaw", "workers", "tests"):
        for file in (ROOT / room).rglob("*.py"):
            for block in ast.walk(ast.parse(file.read_text())):
                if not isinstance(block, ast.TryStar):
                    continue
                found += [
                    f"{file.relative_to(ROOT)}:{node.lineno}"
                    for handler in block.handlers
                    for statement in handler.body
                    for node in ast.walk(statement)
                    if isinstance(node, ast.Raise | ast.Await | ast.AsyncFor | ast.AsyncWith)
                    or (
                        isinstance(node, ast.Call)
                        and (name := ast.unparse(node.func)) not in calls
                        and not name.startswith("log.")
                    )
                ]

    assert found == []


def test_requirements_are_exact_and_hashed() -> None:
    for name in (*(file.name for file in ROOT.glob("requirements*.txt")), ".ci/requirements.txt"):
        packages = re.findall(r"^\S.*", (ROOT / name).read_text(), re.MULTILINE)
        assert packages
        assert all(re.match(r"[\w.\[\]-]+==\S+ ", package) for package in packages), name


def test_every_error_class_documents_when_it_is_raised() -> None:
    for error in RemoteClawError.__subclasses__():
        assert (error.__doc__ or "").startswith("Raised "), error.__name__


def test_tests_named_with_workarounds_exist() -> None:
    page = (ROOT / "docs" / "reference" / "workarounds.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)

    assert len(named) > 12
    for file, test in named:
        assert f"def {test}" in (ROOT / file).read_text(), f"{file}::{test}"


#: The modules that may read a chat from a session's key, and why. All others get it from a turn, so
#: that a turn can be answered in another chat than the one that its session's key names.
READS_CHAT_OF_KEY = {
    "messages/session.py": "composes and parses keys",
    "fleet/turns/inbound.py": "makes the message that stands for an unreadable entry",
    "config/": "looks up the settings of a session's own channel, which hold in each of its turns",
    "bridge/prompt.py": "a system prompt is the same in all turns of a session",
    "session/tool_access.py": "the environment of an agent's process outlives its turns",
    "session/terminal_requests.py": "a terminal's holder knows the session's key only",
    "gateway/terminals/held_terminal.py": "a terminal's holder knows the session's key only",
    "gateway/page/notifier.py": "a terminal's holder knows the session's key only",
    "gateway/call.py": "an operator's call has no turn: its chat is the session's",
    "gateway/rights.py": "an operator's call has no turn: its chat is the session's",
    "gateway/methods/": "shows and filters sessions, and moves a key to another chat",
    "commands/call.py": "a command has no turn: its chat is the session's",
    "commands/status.py": "lists sessions with their channels",
    "commands/cron.py": "lists jobs with the chats that they write to",
    "channels/task_progress.py": "the session above all tasks may have no turn now",
    "fleet/budgets/": "a request about a budget has no turn",
    "fleet/chats.py": "a session has the rights of its own chat",
    "fleet/sessions/task_tree.py": "the session above all tasks may have no turn now",
    "fleet/sessions/records.py": "forgets the history of the chat, long after its turns",
    "fleet/replies/replies.py": "counts what `/stop` drops, of all turns of a session",
    "cron/settle.py": "an alert about a run is no part of its turn",
}


def test_only_a_turn_says_in_which_chat_it_is_answered() -> None:
    """Elsewhere, a reply, live text, a request or a notice would go to the chat of the key."""
    found = [
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for module, tree in product_modules().items()
        if not any(module.startswith(name) for name in READS_CHAT_OF_KEY)
        for function in filter(is_function, ast.walk(tree))
        for names in [names_of_keys(function)]
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and node.attr in ("provider", "account", "place")
        and is_key(node.value, names)
    ]

    assert sorted({*found}) == []


@functools.cache
def product_modules() -> dict[str, ast.Module]:
    """Return the syntax tree of each module, by its path."""
    room = ROOT / "remoteclaw"
    return {
        str(file.relative_to(room)): ast.parse(file.read_text())
        for file in sorted(room.rglob("*.py"))
    }


@functools.cache
def attributes_with_keys() -> frozenset[str]:
    """Return the names of all fields and properties that are declared as a session's key."""
    classes = [
        node
        for tree in product_modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    return frozenset(name for node in classes for name in declared_keys(node.body))


def declared_keys(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that `nodes` declare as a session's key."""
    for node in nodes:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=declared):
                pass
            case (
                ast.arg(arg=name, annotation=declared)
                | ast.FunctionDef(name=name, returns=declared)
            ):
                pass
            case _:
                continue
        if declared and "SessionKey" in re.split(r"\W+", ast.unparse(declared))[:1]:
            yield name


def names_of_keys(function: ast.AST) -> frozenset[str]:
    """Return the names that are a session's key in a function: declared, or assigned from one."""
    names = {"session", "key", *declared_keys(ast.walk(function))}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_key(value, names):
                names.add(name)
    return frozenset(names)


def is_key(node: ast.expr, names: Collection[str]) -> bool:
    """Whether an expression is a session's key; `names` are the variables that are."""
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(attr=name):
            return name in attributes_with_keys()
        case ast.Call(func=ast.Name(id="replace"), args=[first, *_]):
            return is_key(first, names)
        case ast.Call(func=function):
            return ast.unparse(function).startswith("SessionKey")
        case ast.IfExp(body=one, orelse=other):
            return is_key(one, names) or is_key(other, names)
    return False


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


#: The modules that may hold the whole `Fleet`, and why. All others take the parts that they use, so
#: that a signature says what a function reads and writes.
HOLDS_THE_FLEET = {
    "cli/": "each command is a program",
    "fleet/": "makes it",
    "up/": "starts the parts of a machine, and checks them",
    "session/drain.py": "gives each part of a turn what it uses",
    "channels/process.py": "starts the adapters",
    "channels/report.py": "is what all reports of an account share",
    "commands/call.py": "is what all chat commands share",
    "gateway/gateway.py": "makes the parts of the gateway",
    "gateway/server.py": "starts the gateway",
    "gateway/dispatch.py": "makes the calls",
    "gateway/call.py": "is what all methods share",
    "gateway/methods/": "pass on parts of the fleet of their call",
    "gateway/agent_scope.py": "is what the checks of a call share",
    "gateway/conversations.py": "is what the operations on a person's conversations share",
    "gateway/chats.py": "starts the page's adapter",
    "gateway/feeds.py": "reads all that a session's followers see",
    "gateway/metrics.py": "counts everything",
    "gateway/page/notifier.py": "reads what a notification shows",
    "gateway/terminals/": "runs the terminals of a host, with all that they write",
    "gateway/traces.py": "follows a message through the whole fleet",
}


def test_only_the_named_modules_hold_the_whole_fleet() -> None:
    found = [
        f"{module}:{node.lineno}"
        for module, tree in product_modules().items()
        if not any(module.startswith(name) for name in HOLDS_THE_FLEET)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == "remoteclaw.fleet"
        and any(alias.name == "Fleet" for alias in node.names)
    ]

    assert found == []


def named_in(section: str) -> set[str]:
    """Return what the first column of the tables in a section of the guide for channels names."""
    page = (ROOT / "docs" / "guides" / "adding-a-channel.md").read_text()
    tables = page.partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", tables, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def fields_of(kind: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_the_guide_for_channels_names_everything_that_an_adapter_can_have() -> None:
    optional = {
        name
        for name in (*channel.__all__, *platform.__all__)
        if getattr(getattr(protocols, name), "_is_runtime_protocol", False)
    }

    assert named_in("The profile") == fields_of(ChannelProfile)
    assert named_in("Optional protocols") == optional
    by_intake = {"parts", "current_chat"}
    assert named_in("Receive") == fields_of(PollResult) | fields_of(Incoming) - by_intake
