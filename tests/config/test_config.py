"""Errors in the configuration: one line that names the place, the mistake and the correction."""

import os
from pathlib import Path
from typing import Any

import pytest

from remoteclaw.config.home import Home, private_directory
from remoteclaw.config.load import load_config
from remoteclaw.config.model import AgentConfig
from remoteclaw.config.model.redis import redis_address
from remoteclaw.errors import ConfigError, StateDirectoryError
from remoteclaw.up.agents import agent_problem, tools_problem
from tests.support.rows import for_each


def refusal(home: Home, text: str = "", **environment: str) -> str:
    home.config_file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(home.config_file, environment)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_a_file_there_is_one_agent(home: Home) -> None:
    config = load_config(home.config_file, {})

    assert config.agent(None)[0] == "main"
    assert config.redis.url is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[fleet]\nworker = 3", "[fleet] has no key 'worker'; did you mean 'workers'?"),
        ("[xyz]\na = 1", "has no key 'xyz'; it has 'redis', 'gateway'"),
        ("[agents.main]\nmodell = 'x'", "[agents.main] has no key 'modell'; did you mean 'model'?"),
        ("[agents.main.mcp_servers.files]\ncomand = 'x'", "did you mean 'command'?"),
    ],
)
def test_an_unknown_key_suggests_the_nearest_key(home: Home, text: str, why: str) -> None:
    error = refusal(home, text)

    assert error.startswith(f"{home.config_file}: ")
    assert why in error


@for_each(
    ("text", "why"),
    [
        ("[fleet]\nworkers = 0", "workers is not valid"),
        ("[fleet]\nlease_s = 'long'", "lease_s is not valid"),
        ("[agents.main]\nruntime = 'chatgpt'", "runtime is not valid"),
        ("[agents.main]\ncommand = []", "command is not valid"),
        ("[agents.'../evil']", "use letters, digits"),
        ("[agents]", "agents is not valid: is empty"),
        (
            "[channels.telegram.groups.1.tools]\ndeny = 'x'",
            "[channels.telegram.groups.1.tools] deny",
        ),
        ("[agents]\nmain = 3", "[agents] main is not valid: must be a table, not a value."),
        *(
            (f"[agents.main]\n{key} = 'a'", f'{key} is not valid: must be a list: write ["a"].')
            for key in ("identity", "fallbacks", "allow", "env_pass")
        ),
        ("[agents.main]\nidentity.a = 'b'", 'must be a list: write ["…"].'),
        ("[agents.main]\ncommand = 'run me'", 'command is not valid: must be a list: write ["…"].'),
        (
            "[agents.main.mcp_servers.x]\ncommand = 'y'\nargs = '--key=k'",
            'args is not valid: must be a list: write ["…"].',
        ),
        ("[channels.telegram]\nowners = '7'", 'owners is not valid: must be a list: write ["7"].'),
        ("[agents.main]\nmemory = 'maybe'", "memory is not valid: must be true or false."),
        ("[agents.main]\ncompact_at = 75", "is not valid: must be from 0 to 1: 0.75 is 75 %."),
        ("[agents.main]\ncompact_at = -0.1", "is not valid: must be from 0 to 1: 0.75 is 75 %."),
        (
            "[agents.main]\ncompact_at = true",
            "compact_at is not valid: must be a number, not true.",
        ),
        ("[fleet]\nworkers = true", "[fleet] workers is not valid: must be a number, not true."),
        (
            "[agents.main]\nenv_pass = ['A=b']",
            "has 'A' with more than a name: values belong in env",
        ),
        ("[agents.main]\nenv_pass = ['REMOTECLAW_HOME']", "own variables are never passed"),
        ("[agents.main.mcp_servers.a]", "needs either a command or a url"),
        ("[agents.main.mcp_servers.a]\nurl = 'ftp://x'", "must begin with http://"),
        ("[redis]\nmaxmemory = '2 GB'", "must be a size such as 512mb or 2gb"),
        ("[redis]\nmaxmemory = '-1'", "must be a size such as 512mb or 2gb"),
        ("[redis]\nmaxmemory = '1mb'", "must be 16mb or more"),
        ("[redis\nurl = 1", "is not valid TOML"),
        ("[agents.main]\nworkspace = 'work'", "workspace is not valid: must begin with / or ~"),
        ("[agents.main]\nworkspace = ''", "workspace is not valid: must begin with / or ~"),
        ("[projects]\nweb = 'code'", "projects is not valid: web must begin with / or ~"),
        ("[projects]\nnone = '/code'", "has the name 'none', by which a chat leaves its project"),
        ("[agents.main]\nworkspace = '~nobody-of-that-name'", "its ~ names no home directory"),
    ],
)
def test_an_invalid_value_is_refused_with_the_reason(home: Home, text: str, why: str) -> None:
    assert why in refusal(home, text)


@for_each(
    "url",
    [
        "localhost:6379",
        "redis://127.0.0.1:notaport",
        "redis://127.0.0.1:0",
        "redis://[::1",
        "redis://",
        "redis://127.0.0.1/abc",
        "redis://:hush/hush@127.0.0.1/0",
        "redis://user:1234/hush@127.0.0.1:6379/0",
        "redis://:hush#hush@127.0.0.1",
        "rediss://:hush?hush@127.0.0.1",
        "redis://127.0.0.1 ",
        "redis://127.0.0.1\u200b",
        "redis://127.0.0.1?decode_responses=1",
        "redis://127.0.0.1/0?db=zz",
        "redis://127.0.0.1/0?db=",
        "rediss://127.0.0.1?ssl_cert_reqs=hush",
        "unix://hush/redis.sock",
        "unix://",
        "redis+sentinel://:hush@127.0.0.1:26379",
        "redis+sentinel://:hush@127.0.0.1:0/mymaster",
        "redis+sentinel://:hu/sh@127.0.0.1/mymaster/0",
        "redis+sentinel://:hush@127.0.0.1,/mymaster/0",
        "redis+sentinel://127.0.0.1/mymaster/0?socket_timeout=hush",
        "unix+sentinel://:hush@/mymaster/0",
    ],
)
def test_an_invalid_redis_url_is_refused_without_showing_its_password(home: Home, url: str) -> None:
    text = refusal(home, f"[redis]\nurl = '{url}'")

    assert "[redis] url is not valid: must be redis://[USER:PASSWORD@]HOST" in text
    assert "a password has them, write / as %2F" in text
    assert "hush" not in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1", "redis://127.0.0.1"),
        ("redis://user:hush@[::1]:6380/2", "redis://[::1]:6380/2"),
        ("redis://127.0.0.1/0?password=hush&db=1", "redis://127.0.0.1/0"),
        ("rediss://:a%2Fb%23@redis.example:6380?ssl_cert_reqs=none", "rediss://redis.example:6380"),
        ("unix://:hush@/run/my redis.sock?db=1", "unix:///run/my redis.sock"),
        (
            "redis+sentinel://me:hush@one:26380,[::1]/mymaster/1?sentinel_password=hush",
            "redis+sentinel://one:26380,[::1]/mymaster/1",
        ),
    ],
)
def test_a_redis_address_is_shown_without_its_secrets(home: Home, url: str, shown: str) -> None:
    home.config_file.write_text(f"[redis]\nurl = '{url}'")

    assert load_config(home.config_file, {}).redis.url == url
    assert redis_address(url) == shown


@pytest.mark.parametrize(
    ("text", "size"),
    [("100m", 100_000_000), ("100MB", 104_857_600), ("20000000", 20_000_000), ("2g", 2 * 10**9)],
)
def test_a_size_has_the_units_of_redis(home: Home, text: str, size: int) -> None:
    home.config_file.write_text(f"[redis]\nmaxmemory = '{text}'")

    assert load_config(home.config_file, {}).redis.memory_limit == size


def test_a_binary_configuration_file_is_refused(home: Home) -> None:
    home.config_file.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_config(home.config_file, {})


def test_a_missing_file_named_by_the_variable_is_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMOTECLAW_CONFIG", "/nonexistent.toml")

    with pytest.raises(ConfigError, match=r"names /nonexistent\.toml, which does not exist"):
        load_config(home.config_file, {"REMOTECLAW_CONFIG": "/nonexistent.toml"})


def test_a_variable_overrides_the_file(home: Home) -> None:
    home.config_file.write_text("[fleet]\nworkers = 2\nlinger_s = 1")

    config = load_config(
        home.config_file,
        {
            "REMOTECLAW__FLEET__WORKERS": "5",
            "REMOTECLAW__AGENTS__MAIN__COMMAND": '["claude", "--x"]',
            "REMOTECLAW__AGENTS__MAIN__MODEL": "opus",
            "REMOTECLAW_SESSION_KEY": "not a setting",
        },
    )

    assert (config.fleet.workers, config.fleet.linger_s) == (5, 1)
    assert config.agents["main"].command == ("claude", "--x")
    assert config.agents["main"].model == "opus"


def test_an_unknown_agent_error_lists_the_existing_agents(home: Home) -> None:
    home.config_file.write_text("[agents.a]\n[agents.b]")
    config = load_config(home.config_file, {})

    with pytest.raises(ConfigError, match=r"There is no agent 'c': the configuration has 'a', 'b'"):
        config.agent("c")


@pytest.mark.parametrize(
    ("agents", "default"),
    [
        ("[agents.helper]", "helper"),
        ("[agents.b]\n[agents.a]", "b"),
        ("[agents.a]\n[agents.main]", "main"),
    ],
)
def test_the_default_agent_is_main_or_else_the_first_one(
    home: Home, agents: str, default: str
) -> None:
    home.config_file.write_text(agents)

    assert load_config(home.config_file, {}).agent(None)[0] == default


# -- the state directory --------------------------------------------------------------------------


def test_an_empty_state_directory_is_made_private(directory: Path) -> None:
    (directory / "home").mkdir()
    (directory / "home").chmod(0o755)

    home = Home(directory / "home").create()

    assert home.path.stat().st_mode & 0o777 == 0o700


def test_a_state_directory_open_to_other_users_is_refused_and_unchanged(home: Home) -> None:
    home.path.chmod(0o755)

    for use in (home.create, home.check):
        with pytest.raises(StateDirectoryError) as error:
            use()
        assert str(error.value) == (
            f"The state directory {home.path} is open to other users (mode 755): "
            f"`chmod 700 {home.path}` if only RemoteClaw uses it, "
            "else set REMOTECLAW_HOME to another directory."
        )

    assert home.path.stat().st_mode & 0o777 == 0o755


def test_a_workspace_whose_mode_an_agent_changed_is_still_usable(home: Home) -> None:
    agent = load_config(home.config_file, {}).agents["main"]
    home.workspace("main", agent).chmod(0o755)

    assert home.workspace("main", agent).is_dir()


def test_checking_a_state_directory_does_not_create_it(directory: Path) -> None:
    home = Home(directory / "home").check()
    agent = load_config(home.config_file, {}).agents["main"]

    names = (home.sockets, home.runs, home.logs, home.redis_data, home.redis_socket)

    assert not any(path.exists() for path in (*names, home.workspace_path("main", agent)))
    assert not home.path.exists()


def test_a_relative_state_directory_becomes_absolute(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory)
    monkeypatch.setenv("REMOTECLAW_HOME", "home")

    assert Home.default().path == directory / "home"


def test_an_unknown_user_in_remoteclaw_home_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMOTECLAW_HOME", "~nobody-of-that-name/home")

    with pytest.raises(StateDirectoryError, match="set REMOTECLAW_HOME to an absolute path"):
        Home.default()


@pytest.mark.parametrize("name", ["a#b", "a%20b", "a?b", "a (b)", "a[b]", "a\\b", "a\nb"])
def test_socket_paths_are_valid_in_urls_and_rules(directory: Path, name: str) -> None:
    home = Home(directory / name)

    url = home.redis_url(load_config(home.config_file, {}))

    assert redis_address(url) == url
    assert url.startswith(f"unix:///tmp/remoteclaw-{os.getuid()}-")


@pytest.mark.parametrize("path", ["/proc/remoteclaw", "/dev/null/remoteclaw", "/dev/null"])
def test_a_state_directory_that_cannot_be_created_is_refused(path: str) -> None:
    with pytest.raises(StateDirectoryError, match=f"{path} can't be used .*REMOTECLAW_HOME"):
        Home(Path(path)).create()


def test_a_directory_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 12345)

    with pytest.raises(StateDirectoryError, match="belongs to user 0, not to you"):
        private_directory(Path("/"))


def test_a_symlink_instead_of_a_private_directory_is_refused(directory: Path) -> None:
    (directory / "link").symlink_to("/")

    with pytest.raises(StateDirectoryError, match="can't be used"):
        private_directory(directory / "link")


def test_a_long_path_still_leaves_room_for_sockets(directory: Path) -> None:
    home = Home(directory / ("x" * 120)).create()

    assert len(bytes(home.runs / "0123456789abcdef" / "holder.sock")) <= 107
    for path in (home.runs, home.gateways, home.sockets):
        path.rmdir()


def test_the_host_id_is_read_from_its_file_once_it_exists(home: Home) -> None:
    (home.path / "host-id").write_text("laptop-1\n")

    assert home.host_id == "laptop-1"


def test_other_settings_of_a_channel_keep_its_default_chunk_limit(home: Home) -> None:
    home.config_file.write_text('[channels.web]\ninstructions = "Be brief."')

    config = load_config(home.config_file, {})

    assert config.channel("web").chunk_limit == 200_000
    assert config.channel("web").instructions == "Be brief."
    assert config.channel("without-a-profile").chunk_limit == 4000


def test_settings_in_the_file_override_the_channel_profile(home: Home) -> None:
    home.config_file.write_text("[channels.web]\nchunk_limit = 200\nformatting = []")

    channel = load_config(home.config_file, {}).channel("web")

    assert (channel.chunk_limit, channel.formatting) == (200, ())


def test_long_code_is_a_file_only_where_the_channel_can_send_it(home: Home) -> None:
    for settings, lines in (
        ("", 60),
        ("code_file_lines = 100", 100),
        ("attachment_mb = 0", 0),
        ('attachment_types = ["image/*"]', 0),
        ("chunk_limit = 400", 0),
    ):
        home.config_file.write_text(
            f"[channels.telegram]\n{settings}\n[channels.web]\ncode_file_lines = 60"
        )
        config = load_config(home.config_file)

        assert config.channel("telegram").code_file_lines == lines
        assert config.channel("web").code_file_lines == 0, "the page shows code of any length"


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("REMOTECLAW__FLEET__WORKERS", "many", "[fleet] workers"),
        ("REMOTECLAW__FLET__WORKERS", "3", "has no key 'flet'; did you mean 'fleet'"),
        ("REMOTECLAW__AGENTS__MAIN__COMMAND", '["x", 1]', "[agents.main.command] 1"),
        ("REMOTECLAW__AGENTS__MAIN__WARM_S", "inf", "[agents.main] warm_s"),
    ],
)
def test_a_mistake_in_an_environment_variable_names_the_variable(
    home: Home, name: str, value: str, named: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(home.config_file, {name: value})

    assert str(refused.value).startswith(f"{name}: ")
    assert named in str(refused.value)


def test_opencode_needs_trust_workspace_if_the_workspace_has_plugins(
    home: Home, directory: Path
) -> None:
    work = directory / "work"
    work.mkdir()
    (work / "opencode.json").write_text('{"plugin": ["./evil.js"]}')

    def problem(**more: Any) -> str | None:
        agent = AgentConfig(runtime="opencode", command=("/bin/true",), workspace=str(work), **more)
        return agent_problem(home, "main", agent)

    assert "trust_workspace = true" in str(problem())
    assert problem(trust_workspace=True) is None


def test_gemini_has_no_tools_in_an_untrusted_workspace_with_an_env_file(
    home: Home, directory: Path
) -> None:
    work = directory / "work"
    work.mkdir()

    def problem(**more: Any) -> str | None:
        agent = AgentConfig(runtime="gemini", command=("/bin/true",), workspace=str(work), **more)
        assert agent_problem(home, "main", agent) is None
        return tools_problem(home, "main", agent)

    assert problem() is None
    (work / ".env").touch()
    assert str(work / ".env") in str(problem())
    assert problem(trust_workspace=True) is None
    assert problem(permissions="deny") is None  # such an agent can't use tools anyway
