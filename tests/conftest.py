"""Fixtures of all tests: private directories, real servers, real workers."""

import contextlib
import gc
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import fakeredis
import pytest
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis

from remoteclaw.config.home import Home
from remoteclaw.fleet import Fleet
from remoteclaw.fleet.connection import Scripts, open_redis
from remoteclaw.up.embedded import ServerProgram
from tests.support.agents import AgentCli, ModelServerProcess, find_cli
from tests.support.command import ROOT, share_servers
from tests.support.doors import gateway_process
from tests.support.installed import missing
from tests.support.matrix import Homeserver, synapse
from tests.support.matrix.server import VARIABLE as SYNAPSE
from tests.support.memory import PARENT
from tests.support.servers import Server, installed_servers, running_server
from tests.support.slack import Slack, SlackWorkspace
from tests.support.stack import Stack, running_stack
from tests.support.telegram import Telegram, TelegramBot

#: Set before a release: also run the tests that are marked `thorough`.
THOROUGH = os.environ.get("REMOTECLAW_TEST_THOROUGH") == "1"

PROGRAMS = installed_servers()
#: Each start of these CLIs takes one to three seconds of processor time.
SLOW_CLIS = ("gemini", "opencode")
#: The contracts that each run shows with each CLI, since they depend most on the CLI itself. The
#: others are shown with the slow CLIs before a release.
WITH_EACH_CLI = tuple(
    f"tests/contracts/test_{name}.py"
    for name in ("canaries", "own_files", "requests", "runtimes", "session_map")
)
#: The modules whose tests take half a minute and more.
SLOWEST = tuple(
    f"tests/contracts/test_{name}.py" for name in ("canaries", "conversation", "cockpit", "usage")
)


def shifted(source: str) -> str:
    """Return a script whose time is Redis' clock plus the time that `let_pass` has added."""
    now = "return time[1] * 1000"
    assert now in source
    return source.replace(now, f"return (redis.call('GET', 'test:shift') or 0) + {now[7:]}")


# A shell ignores SIGINT in its background jobs, and the processes that they start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run three tests per core: a test spends most of its time waiting for processes and clocks."""
    return 3 * len(os.sched_getaffinity(0))


def pytest_configure(config: pytest.Config) -> None:
    """Fork the workers of a run; they share the process that forks programs."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        share_servers()
        python = shlex.join([sys.executable, str(ROOT / "tests" / "support" / "worker.py")])
        config.option.tx = [f"{worker}//python={python}" for worker in config.option.tx]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip tests marked `thorough`: they repeat a proof for one more CLI or one more form."""
    if THOROUGH:
        return
    params = f"-{item.callspec.id}-" if hasattr(item, "callspec") else ""
    marker = item.get_closest_marker("thorough")
    is_marked = marker is not None and (
        not marker.args or any(f"-{each}-" in params for each in marker.args)
    )
    if is_marked or _repeats_a_contract(item, set(params.split("-"))):
        item.add_marker(pytest.mark.skip("REMOTECLAW_TEST_THOROUGH=1 runs it"))


def _repeats_a_contract(item: pytest.Item, params: set[str]) -> bool:
    """Whether a test shows with a slow CLI what it shows with claude and codex as well."""
    is_contract = item.nodeid.startswith("tests/contracts/")
    is_slow = not params.isdisjoint(SLOW_CLIS) and params.isdisjoint(("claude", "codex"))
    return is_contract and is_slow and not item.nodeid.startswith(WITH_EACH_CLI)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each worker begin with its share of the slow tests, those with a state directory.

    xdist gives each worker a part of the list in its order, so that no slow test runs last. The
    slowest come first: one of them that begins last would run alone for a minute.
    """

    def order(item: pytest.Item) -> tuple[bool, bool]:
        fixtures = getattr(item, "fixturenames", ())
        return not item.nodeid.startswith(SLOWEST), "home" not in fixtures

    items.sort(key=order)
    count = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = [item for number in range(count) for item in items[number::count]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from scanning thousands of tests, here and in forks."""
    gc.disable()
    collected = yield
    gc.enable()
    gc.collect()
    gc.freeze()
    return collected


# A busy machine must not fail a test; the time limit ends a test that hangs.
settings.register_profile(
    "ours",
    deadline=None,
    max_examples=100 if THOROUGH else 25,
    suppress_health_check=(HealthCheck.too_slow,),
)
settings.load_profile("ours")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory whose path is short enough for unix sockets; the one of pytest is not.

    It is not in /dev, of which codex' sandbox shows nothing.
    """
    path = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A state directory for one test, also used by code that the test calls in this process."""
    for name in list(os.environ):
        if name.startswith("REMOTECLAW_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("REMOTECLAW_HOME", str(directory / "home"))
    monkeypatch.setenv("HOME", str(directory / "user"))
    monkeypatch.setenv("REMOTECLAW__GATEWAY__PORT", "0")  # tests run in parallel
    (directory / "user").mkdir()
    return Home.default().create()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of leases, queues and scripts on each server, and tests of cron jobs on one."""
    programs: list[ServerProgram | None] = [*PROGRAMS]
    if metafunc.module.__name__.startswith("tests.cron."):
        del programs[1:]
    elif "any_client" in metafunc.fixturenames:
        programs.append(None)
    for name in {"any_server", "any_client"} & set(metafunc.fixturenames):
        ids = [program.name if program else "fakeredis" for program in programs]
        metafunc.parametrize(name, programs, ids=ids, indirect=True, scope="session")


@pytest.fixture(scope="session")
def any_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each installed server, in turn."""
    with _running(request.param) as server:
        yield server


@pytest.fixture(scope="session")
def any_client(request: pytest.FixtureRequest) -> Iterator[Callable[[], Redis]]:
    """A function that opens a client of each installed server in turn, and of fakeredis.

    fakeredis is fast and shows what a single script does, but not that the script is atomic.
    """
    if request.param is None:
        yield fakeredis.FakeAsyncRedis
        return
    with _running(request.param) as server:
        yield lambda: open_redis(server.url)


@contextlib.contextmanager
def _running(program: ServerProgram) -> Iterator[Server]:
    path = Path(tempfile.mkdtemp(prefix="rc-", dir=PARENT))
    with running_server(program, path) as server:
        yield server
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def fleet(any_client: Callable[[], Redis]) -> AsyncIterator[Fleet]:
    """A fleet on an empty server; `let_pass` shifts the server's clock."""
    client = any_client()
    await client.flushall()
    scripts = Scripts(client, edit=shifted)
    fleet = Fleet.open("unix:///nobody", scripts=scripts)
    yield fleet
    await fleet.aclose()


@pytest.fixture
async def stack(home: Home, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    """A Redis and a state directory for one test; the test starts the workers."""
    async with running_stack(home, monkeypatch) as stack:
        yield stack


@pytest.fixture
async def swept(stack: Stack) -> AsyncIterator[Stack]:
    """A stack whose sweeper releases the sessions of dead owners at once."""
    async with stack.swept():
        yield stack


@pytest.fixture
async def gateway(stack: Stack) -> AsyncIterator[None]:
    """A gateway of the stack, for commands that call one."""
    async with gateway_process(stack):
        yield


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServerProcess]:
    """The scripted model on loopback."""
    path = Path(tempfile.mkdtemp(prefix="rc-", dir="/tmp"))
    with ModelServerProcess.running(path) as server:
        yield server
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def of_run(worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all workers of a run have in common."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def telegram(of_run: Path) -> Iterator[Telegram]:
    """A fake Telegram on loopback; all workers of a run share it."""
    with Telegram.shared(of_run / "telegram") as server:
        yield server


@pytest.fixture
def bot(telegram: Telegram) -> TelegramBot:
    """A bot of the fake Telegram that has no messages."""
    return telegram.bot()


@pytest.fixture(scope="session")
def slack(of_run: Path) -> Iterator[Slack]:
    """A fake Slack on loopback; all workers of a run share it."""
    with Slack.shared(of_run / "slack") as server:
        yield server


@pytest.fixture
def team(slack: Slack) -> SlackWorkspace:
    """A workspace of the fake Slack in which nobody is but the app."""
    return slack.workspace()


@pytest.fixture(scope="session")
def homeserver(of_run: Path) -> Iterator[Homeserver]:
    """A real Matrix homeserver; all workers of a run share it. The test is skipped without one."""
    if synapse() is None:
        missing(f"${SYNAPSE} names no Python with Synapse; CONTRIBUTING.md says how to install it")
    with Homeserver.shared(of_run / "matrix") as server:
        yield server


def required(name: str, model: ModelServerProcess) -> AgentCli:
    """Return a real CLI that uses the scripted model; skip the test if it is not installed."""
    program = find_cli(name)
    if program is None:
        missing(f"{name} is not installed (looked on PATH and in $REMOTECLAW_TEST_CLIS)")
    return AgentCli(name, program, model)


@pytest.fixture
def claude(model_server: ModelServerProcess) -> AgentCli:
    """The real claude, using the scripted model."""
    return required("claude", model_server)


@pytest.fixture
def codex(model_server: ModelServerProcess) -> AgentCli:
    """The real codex, the fastest of the CLIs, using the scripted model."""
    return required("codex", model_server)
