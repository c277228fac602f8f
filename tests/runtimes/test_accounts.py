"""The accounts of the CLIs' providers."""

import json
from pathlib import Path

import pytest

from remoteclaw.runtimes import create_cli_runtime

SIGNED_IN = {
    "claude": (
        ".claude.json",
        {"oauthAccount": {"accountUuid": "an-account", "organizationUuid": "an-org"}},
        "an-account/an-org",
    ),
    "codex": (
        ".codex/auth.json",
        {"OPENAI_API_KEY": None, "tokens": {"account_id": "an-account", "access_token": "t"}},
        "an-account",
    ),
    "gemini": (".gemini/google_accounts.json", {"active": "a@example.org", "old": []}, "a@"),
}


@pytest.mark.parametrize("name", SIGNED_IN)
def test_an_account_is_the_one_in_the_clis_own_file(directory: Path, name: str) -> None:
    file, content, account = SIGNED_IN[name]
    (directory / file).parent.mkdir(exist_ok=True)
    (directory / file).write_text(json.dumps(content))
    runtime = create_cli_runtime(name)

    (known,) = runtime.account({"HOME": str(directory), "PATH": "/bin", "EDITOR": "vi"})

    assert known.startswith(account)
    assert runtime.account({"HOME": "/nowhere"}) == []


def test_variables_of_a_cli_name_the_directory_of_its_file(directory: Path) -> None:
    for name, variable, file in (
        ("claude", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "auth.json"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/google_accounts.json"),
    ):
        (directory / file).parent.mkdir(exist_ok=True)
        (directory / file).write_text(json.dumps(SIGNED_IN[name][1]))
        env = {"HOME": "/nowhere", variable: str(directory)}
        assert create_cli_runtime(name).account(env)


@pytest.mark.parametrize("broken", [b"", b"[]", b'{"oauthAccount": 3}', b'{"tokens": []}', b"\xff"])
@pytest.mark.parametrize("name", SIGNED_IN)
def test_a_file_that_cannot_be_read_names_no_account(
    directory: Path, name: str, broken: bytes
) -> None:
    file = directory / SIGNED_IN[name][0]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(broken)

    assert create_cli_runtime(name).account({"HOME": str(directory)}) == []


def test_keys_in_the_environment_tell_accounts_apart(directory: Path) -> None:
    """With the address, because a key is one of a server."""
    claude = create_cli_runtime("claude")
    env = {"HOME": str(directory), "ANTHROPIC_API_KEY": "k", "GITHUB_TOKEN": "of no model"}
    url = {"ANTHROPIC_BASE_URL": "http://a"}

    accounts = [
        claude.account(env),
        claude.account(env | {"ANTHROPIC_API_KEY": "l"}),
        claude.account(env | url),
        claude.account({"HOME": str(directory), "CLAUDE_CODE_OAUTH_TOKEN": "k"}),
    ]

    assert len({*map(tuple, accounts)}) == len(accounts)
    assert claude.account(url) == []
    assert claude.account(env) == claude.account(env | {"GITHUB_TOKEN": "another"})
