"""Changes of the configuration file: checked first, atomic, and the rest of the file is kept."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.config.edit import MAX_BYTES, ConfigFile, FileChanged, PlannedChange
from remoteclaw.config.home import Home
from remoteclaw.config.load import load_config
from remoteclaw.config.merge_patch import apply_patch, patch_toml
from remoteclaw.config.reload import CurrentConfig
from remoteclaw.config.secrets import redacted
from remoteclaw.errors import ConfigError
from tests.support.rows import for_each

COMMENTED = """\
# What we have agreed on.
[queue]  # busy sessions
drop = "old"
mode = "collect"   # or followup

# The one on the laptop.
[agents.main]
runtime = "demo"
env = { KEY = "canary", B = "2" }  # secret

[agents."main".tools]
deny = [
  "message_send",  # too loud
]

[channels.test]
owners = ["alice"]
"""


@pytest.fixture
def file(home: Home) -> ConfigFile:
    home.config_file.write_text(COMMENTED)
    return ConfigFile(home.config_file)


async def patch(file: ConfigFile, change: dict[str, Any]) -> PlannedChange:
    async with file.locked():
        plan = file.plan_patch(file.read(), change)
        await file.write(plan)
        return plan


# -- what changes ---------------------------------------------------------------------------------


async def test_a_change_keeps_comments_and_order(file: ConfigFile) -> None:
    await patch(file, {"queue": {"mode": "steer", "cap": 3}, "agents": {"main": {"model": "x"}}})

    wanted = COMMENTED.replace('"collect"', '"steer"').replace("followup\n", "followup\ncap = 3\n")
    wanted = wanted.replace('"2" }  # secret\n', '"2" }  # secret\nmodel = "x"\n')
    assert file.file.read_text() == wanted


async def test_null_removes_and_an_array_replaces(file: ConfigFile) -> None:
    change = {"queue": {"drop": None}, "channels": {"test": {"owners": ["bob", "eve"]}}}
    plan = await patch(file, change)

    tree = tomllib.loads(file.file.read_text())
    assert tree["queue"] == {"mode": "collect"}
    assert tree["channels"] == {"test": {"owners": ["bob", "eve"]}}
    assert plan.paths == ("queue.drop", "channels.test.owners")


async def test_a_change_can_add_a_table(file: ConfigFile) -> None:
    await patch(file, {"queue": {"channels": {"web": {"mode": "steer", "cap": None}}}})

    assert load_config(file.file, {}).queue.of("web").mode == "steer"
    assert file.file.read_text().startswith(COMMENTED[:40])


async def test_a_new_configuration_file_is_private(home: Home) -> None:
    file = ConfigFile(home.config_file)
    await patch(file, {"queue": {"mode": "steer"}})

    assert file.file.stat().st_mode & 0o777 == 0o600
    assert load_config(file.file, {}).queue.mode == "steer"
    assert not file.backup.exists()


async def test_a_change_keeps_the_file_mode_and_the_symlink(home: Home, directory: Path) -> None:
    real = directory / "elsewhere" / "real.toml"
    real.parent.mkdir()
    real.write_text(COMMENTED)
    real.chmod(0o640)
    home.config_file.symlink_to(real)
    await patch(ConfigFile(home.config_file), {"queue": {"mode": "steer"}})

    assert home.config_file.is_symlink()
    assert 'mode = "steer"' in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640
    assert (real.parent / "real.toml.bak").read_text() == COMMENTED


NAMES = st.text(alphabet='ab."# é', min_size=1, max_size=4)
SCALARS = (
    st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, width=16)
    | st.text(max_size=6).filter(lambda text: text.isprintable() or "\n" in text)
)
TREES = st.recursive(
    st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=2), max_size=3),
    lambda inner: st.dictionaries(NAMES, SCALARS | inner, max_size=3),
    max_leaves=12,
)
PATCHES = st.recursive(
    st.dictionaries(NAMES, st.none() | SCALARS | st.lists(SCALARS, max_size=2), max_size=3),
    lambda inner: st.dictionaries(NAMES, st.none() | SCALARS | inner, max_size=3),
    max_leaves=8,
)


@given(TREES, PATCHES)
def test_a_change_has_the_result_of_rfc_7396(tree: dict[str, Any], change: dict[str, Any]) -> None:
    content = tomlkit.dumps(tree).encode()
    if tomllib.loads(content.decode()) != tree:
        return
    try:
        result = patch_toml(content, change)
    except ConfigError:
        return  # refused, and nothing was changed
    assert tomllib.loads(result.decode()) == apply_patch(tree, change)


@for_each(
    "text",
    [
        COMMENTED,
        'queue = { mode = "steer", cap = 2 }\n',
        'queue.mode = "steer"\nqueue.cap = 2\nagents.main.model = "x"\n',
        '[agents.main]\nmodel = "x"\n[queue]\nmode = "steer"\n[agents.other]\nmodel = "y"\n',
        '[agents.main.tools]\nprofile = "full"\n\n[agents.main]\nmodel = "x"\n',
        '[queue]\r\nmode = "steer" # windows\r\n\r\n[agents.main]\r\nmodel = "x"\r\n',
        "",
        "# nothing yet",
    ],
)
def test_files_as_people_write_them_can_be_changed(text: str) -> None:
    change: dict[str, Any] = {}
    change["queue"] = {"mode": "collect", "cap": None, "channels": {"web": {"cap": 1}}}
    change["agents"] = {"main": {"model": "z", "timezone": "UTC"}}
    result = patch_toml(text.encode(), change).decode()

    assert tomllib.loads(result) == apply_patch(tomllib.loads(text), change)
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in result.splitlines() if line.startswith("#")
    ]


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"queue": {"mode": "loud"}}, "[queue] mode is not valid"),
        ({"queue": {"mod": "steer"}}, "did you mean 'mode'?"),
        ({"tools": {"deny": ["mesage_send"]}}, "did you mean 'message_send'?"),
        ({"agents": None, "x": 1}, "has no key 'x'"),
        ({"agents": {"main": {"env": {"KEY": "x" * 32_768}}}}, "A change has 32 KB at most"),
        ({"agents": {"main": {"warm_s": 1e308}}}, "warm_s is not valid"),
        ({"queue": 3}, "queue is not valid"),
        ({"channels": {"test": {"owners": [None]}}}, "has a null in it"),
        ({"agents": {"main": {"model": "\ud800"}}}, "can't be written to a file"),
        ({"agents": {"main": {"model": "--dangerous"}}}, "must be a model's name"),
        ({"agents": {"main": {"env": {"KEY": "x", "B": "***"}}}}, None),
        ({"agents": {"main": {"env": {"NEW": "***"}}}}, "'agents.main.env.NEW' has *** in it"),
    ],
)
async def test_an_invalid_change_is_refused_and_writes_nothing(
    file: ConfigFile, change: dict[str, Any], why: str | None
) -> None:
    if why is None:
        await patch(file, change)
        env = load_config(file.file, {}).agents["main"].env
        assert env == {"KEY": "x", "B": "2"}
        return
    with pytest.raises(ConfigError) as refusal:
        await patch(file, change)
    assert why in str(refusal.value)
    assert file.file.read_text() == COMMENTED
    assert not file.backup.exists()


async def test_a_change_that_makes_the_file_too_large_is_refused(file: ConfigFile) -> None:
    file.file.write_text(COMMENTED + f"# {'x' * MAX_BYTES}\n")
    with pytest.raises(ConfigError, match="would be larger than 256 KB"):
        await patch(file, {"queue": {"mode": "steer"}})


@pytest.mark.parametrize("depth", [200, 900])
async def test_a_change_nested_too_deeply_is_refused(file: ConfigFile, depth: int) -> None:
    deep: dict[str, Any] = {}
    for _ in range(depth):
        deep = {"a": deep}
    with pytest.raises(ConfigError, match=r"has no key|can't be written"):
        await patch(file, {"x": {"y": deep | {"b": 1}}} | deep)
    async with file.locked():
        with pytest.raises(ConfigError, match=r"has no key|can't be written"):
            file.plan_replacement(file.read(), deep | {"b": {"c": deep}})


async def test_a_file_that_is_valid_only_with_a_variable_can_be_changed(home: Home) -> None:
    """An agent's command may be only in the environment, because it can contain a secret."""
    home.config_file.write_text('[agents.main]\nruntime = "acp"\n')
    environment = {"REMOTECLAW__AGENTS__MAIN__COMMAND": '["x"]'}
    file = ConfigFile(home.config_file, environment)
    await patch(file, {"queue": {"mode": "steer"}})
    with pytest.raises(ConfigError, match="mode is not valid"):
        await patch(file, {"queue": {"mode": "loud"}})

    assert load_config(file.file, environment).queue.mode == "steer"


# -- configurations with hidden secrets -----------------------------------------------------------


async def test_writing_back_the_shown_configuration_changes_nothing(file: ConfigFile) -> None:
    shown = json.loads(json.dumps(redacted(load_config(file.file))))
    async with file.locked():
        plan = file.plan_replacement(file.read(), shown)

    assert plan.paths == ()
    assert plan.after.data == COMMENTED.encode()


async def test_writing_a_whole_configuration_changes_only_the_differences(file: ConfigFile) -> None:
    shown = json.loads(json.dumps(redacted(load_config(file.file))))
    shown["queue"]["mode"] = "steer"
    del shown["queue"]["drop"]
    shown["agents"]["main"]["env"]["B"] = "3"
    del shown["channels"]["test"]
    async with file.locked():
        plan = file.plan_replacement(file.read(), shown)
        await file.write(plan)

    assert set(plan.paths) == {
        *("queue.mode", "queue.drop", "agents.main.env.B"),
        *("channels.test", "channels.test.owners"),
    }
    config = load_config(file.file, {})
    assert config.agents["main"].env == {"KEY": "canary", "B": "3"}
    assert (config.queue.mode, config.queue.drop, config.channels) == ("steer", "summarize", {})


async def test_a_secret_written_back_in_hidden_form_is_kept(home: Home) -> None:
    text = "[redis]\nurl = 'redis://me:canary@localhost/1'\n[agents.main]\nruntime = 'acp'\n"
    home.config_file.write_text(f"{text}command = ['x', 'canary']\n")
    file = ConfigFile(home.config_file)
    change: dict[str, Any] = {
        "redis": {"url": "***"},
        "agents": {"main": {"command": ["***", "***"]}},
    }
    async with file.locked():
        assert file.plan_patch(file.read(), change).paths == ()
        change["agents"]["main"]["command"] = ["y", "***"]
        with pytest.raises(ConfigError, match=r"agents\.main\.command"):
            file.plan_patch(file.read(), change)


# -- concurrent changes, and kills in the middle --------------------------------------------------


async def test_concurrent_changes_of_two_processes_are_all_kept(file: ConfigFile) -> None:
    """Two processes change different keys."""
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from remoteclaw.config.edit import ConfigFile\n"
        "async def main():\n"
        "    file = ConfigFile(Path(sys.argv[1]))\n"
        "    for number in range(8):\n"
        "        async with file.locked():\n"
        "            change = {'queue': {'channels': {f'{sys.argv[2]}{number}': {'cap': 1}}}}\n"
        "            await file.write(file.plan_patch(file.read(), change))\n"
        "asyncio.run(main())\n"
    )
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(file.file), name)
        for name in "ab"
    ]
    assert [await process.wait() for process in processes] == [0, 0]

    assert len(load_config(file.file, {}).queue.channels) == 16


async def test_a_concurrent_change_by_an_editor_is_not_overwritten(file: ConfigFile) -> None:
    async with file.locked():
        plan = file.plan_patch(file.read(), {"queue": {"mode": "steer"}})
        file.file.write_text(f"{COMMENTED}# from an editor\n")
        with pytest.raises(FileChanged, match="has changed meanwhile"):
            await file.write(plan)

    assert file.file.read_text() == f"{COMMENTED}# from an editor\n"
    assert not list(file.file.parent.glob(".*.new"))


async def test_a_configuration_lock_held_too_long_is_reported(
    file: ConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.config.edit.LOCK_S", 0.05)
    async with file.locked():
        with pytest.raises(ConfigError, match="is being changed by another process: try again"):
            async with ConfigFile(file.file).locked():
                pass
    async with file.locked():
        pass


#: Forks a child for each number that it reads. The child kills itself before the system call with
#: that number, counted from the first one of the write. The program prints the child's exit code.
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from remoteclaw.config.edit import ConfigFile

def counted(name):
    real = getattr(os, name)
    def call(*arguments, **more):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **more)
    setattr(os, name, call)

async def main():
    file = ConfigFile(Path(sys.argv[1]))
    async with file.locked():
        plan = file.plan_patch(file.read(), {"queue": {"mode": "steer"}})
        for name in ("open", "write", "fsync", "fchmod", "rename", "unlink", "close"):
            counted(name)
        await file.write(plan)

for line in sys.stdin:
    left = int(line)
    child = os.fork()
    if not child:
        asyncio.run(main())
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_write_killed_at_any_step_leaves_the_old_or_the_new_file(file: ConfigFile) -> None:
    old, new = COMMENTED, COMMENTED.replace('"collect"', '"steer"')
    texts = []
    argv = [sys.executable, "-c", KILLED, str(file.file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as killing:
        assert killing.stdin is not None
        assert killing.stdout is not None
        for step in range(1, 60):
            file.file.write_text(old)
            file.backup.write_text("# an earlier one\n")
            killing.stdin.write(f"{step}\n")
            killing.stdin.flush()
            code = int(killing.stdout.readline())
            text = file.file.read_text()
            assert text in (old, new), f"killed at step {step}"
            assert file.backup.read_text() in ("# an earlier one\n", old)
            if text == new:
                assert file.backup.read_text() == old
            texts.append(text)
            if code == 0:
                break
            assert code == -signal.SIGKILL
        else:
            pytest.fail("the write never finished")

    assert len(texts) > 14  # two files, each with at least seven steps
    assert (texts[0], texts[-1]) == (old, new)
    assert texts == sorted(texts, key=lambda text: text == new)


def test_a_new_configuration_file_is_synced_before_it_is_renamed(
    file: ConfigFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure after a rename must not leave an empty file."""
    calls: list[str] = []

    def recorded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            if name == "fsync":
                assert os.fstat(arguments[0]).st_size, "its content is written"
            calls.append(name)
            return real(*arguments, **more)

        return call

    for name in ("fsync", "rename"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))

    async def change() -> None:
        async with file.locked():
            plan = file.plan_patch(file.read(), {"queue": {"mode": "steer"}})
            calls.clear()
            file._write(plan)

    asyncio.run(change())
    assert calls == ["fsync", "rename", "fsync"] * 2


async def test_an_unwritable_configuration_directory_is_reported(file: ConfigFile) -> None:
    if os.geteuid() == 0:
        file.file.unlink()
        file.file.mkdir()
        why = "is no regular file"
    else:
        file.file.parent.chmod(0o500)
        why = "can't be changed"
    with pytest.raises(ConfigError, match=why):
        await patch(file, {"queue": {"mode": "steer"}})
    file.file.parent.chmod(0o700)


# -- an earlier valid version ---------------------------------------------------------------------


async def test_an_invalid_file_names_the_backup_of_the_last_valid_version(file: ConfigFile) -> None:
    await patch(file, {"queue": {"mode": "steer"}})
    file.file.write_text("[queue\n")

    with pytest.raises(
        ConfigError, match=r"An earlier valid version is .*remoteclaw\.toml\.bak\.$"
    ):
        load_config(file.file)
    assert file.backup.read_text() == COMMENTED


def test_a_change_between_loading_and_watching_the_file_is_noticed(home: Home) -> None:
    """In between, a worker imports hooks and a gateway connects to Redis, which takes seconds."""
    home.config_file.write_text(COMMENTED)
    config = load_config(home.config_file)
    home.config_file.write_text('[queue]\nmode = "steer"\n')
    now = CurrentConfig(home, config)

    assert (now().queue.mode, now().queue.drop) == ("steer", "summarize")
    assert now.problem is None
