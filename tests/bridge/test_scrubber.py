"""The scrubber, which hides secrets in text for people."""

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoteclaw.bridge.scrubber import (
    MAX_READ_CHARS,
    SECRET,
    Scrubber,
    secrets_of,
    secrets_of_agent,
)
from remoteclaw.config.load import parse_config
from tests.support.rows import for_each

CONFIG = parse_config(
    b"""
    [redis]
    url = "redis://bot:hunter2%21@redis.example.org:6379/0"

    [channels.webhook]
    url = "https://hooks.example.org/in"
    token = "a horse of another colour"

    [agents.main.env]
    DEPLOY_TOKEN = "dep1"
    WEBHOOK = "https://hooks.example.org/T0/B1/abcdef"
    MODE = "production"
    CONFIG_DIR = "/srv/configuration"

    [agents.other.mcp_servers.search]
    command = "search"
    env = { LICENCE = "A1B2-C3D4-E5F6" }

    [agents.other.mcp_servers.web]
    url = "https://mcp.example.org"
    headers = { Authorization = "Token quite-a-secret", X-Key = "short" }
    """,
    Path("remoteclaw.toml"),
    {},
)
ENV = {
    "PATH": "/usr/local/bin:/usr/bin",
    "HOME": "/home/me",
    "LC_ALL": "en_US.UTF-8",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:1234",
    "ANTHROPIC_API_KEY": "correct horse battery",
    "PGPASSWORD": "swordfish",
    "GOOGLE_THING": "QWxhZGRpbjpvcGVu",
    "SSL_CERT_FILE": "/etc/ssl/cert.pem",
}
SCRUBBER = Scrubber((*secrets_of(CONFIG), *secrets_of_agent(ENV, {})))


def shown(text: str, max_chars: int = 500) -> str:
    return SCRUBBER.line(text, max_chars)


@for_each(
    ("text", "line"),
    [
        # Secrets in the configuration.
        ("redis-cli -a hunter2! ping", "redis-cli -a [secret] ping"),
        ("redis-cli -a hunter2%21 ping", "redis-cli -a [secret] ping"),
        ("deploy --token dep1", "deploy --token [secret]"),
        ("curl https://hooks.example.org/T0/B1/abcdef", "curl [secret]"),
        ("echo A1B2-C3D4-E5F6", "echo [secret]"),
        ("curl -H 'Authorization: Token quite-a-secret'", "curl -H 'Authorization: [secret]'"),
        ("curl -d quite-a-secret", "curl -d [secret]"),
        ("sign 'a horse of another colour'", "sign '[secret]'"),
        # Secrets in the agent's environment.
        ("curl -u ada:swordfish x", "curl -u ada:[secret] x"),
        ("echo 'correct\n horse\tbattery'", "echo '[secret]'"),
        ("echo correct%20horse%20battery", "echo [secret]"),
        ("echo xQWxhZGRpbjpvcGVux", "echo x[secret]x"),
        # Text that has the form of a key.
        (f"export A=sk-proj-{'x' * 40}", "export A=[secret]"),
        (
            f"git clone https://ghp_{'a' * 36}@github.com/a/b",
            "git clone https://[secret]@github.com/a/b",
        ),
        (f"x gho_{'a' * 36} github_pat_{'b' * 30}", "x [secret] [secret]"),
        ("x xoxb-1234567890-abc AKIAIOSFODNN7EXAMPLE", "x [secret] [secret]"),
        ("x syt_Ym90M2I4OWY_QmxhYmxhYmxh_1a2b3c x", "x [secret] x"),
        (f"x AIza{'S' * 35} 123456789:{'A' * 35}", "x [secret] [secret]"),
        ("x eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl y", "x [secret] y"),
        ("curl -H 'Authorization: Bearer abc.def-ghi'", "curl -H 'Authorization: Bearer [secret]'"),
        ("curl -H 'authorization: basic YWxhZGRpbg=='", "curl -H 'authorization: basic [secret]'"),
        ("psql postgres://ada:p%40ss@db/x", "psql postgres://[secret]@db/x"),
        (f"x rca_{'0' * 32}_{'1' * 64} {'2' * 64}", "x [secret] [secret]"),
        (f"echo '{'-' * 5}BEGIN RSA PRIVATE KEY{'-' * 5}\nMIIE\nabc", "echo '[secret]"),
        # Text that is not secret.
        ("NODE_ENV=production PATH=/usr/local/bin:/usr/bin make", None),
        ("ls /home/me /srv/configuration /etc/ssl/cert.pem", None),
        ("curl http://127.0.0.1:1234/v1 # short", None),
        ("swordfishing with dep1oy in redis.example.org", None),
        ("git show 0123456789abcdef0123456789abcdef01234567", None),
        ("pip install task-something-with-a-long-name", None),
        ("the bearer of this; a basic understanding; a@b.example", None),
    ],
)
def test_secrets_are_hidden_and_nothing_else(text: str, line: str | None) -> None:
    assert shown(text) == (text if line is None else line)


@pytest.mark.parametrize("control", ["\x00", "\x1b", "\u202e", "\u2066", "\r", "\x9b"])
def test_a_control_character_in_a_secret_does_not_keep_it_from_being_hidden(control: str) -> None:
    assert shown(f"echo sword{control}fish \x1b[2J") == "echo [secret] [2J"


def test_a_variable_that_env_pass_names_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN", "swordfish-of-ada")
    config = parse_config(b"[agents.main]\nenv_pass = ['GH_TOKEN']", Path("remoteclaw.toml"), {})

    assert Scrubber(secrets_of(config)).line("swordfish-of-ada", 100) == "[secret]"


def test_a_secret_is_hidden_before_the_line_is_truncated() -> None:
    assert shown("echo swordfish", max_chars=10) == "echo [sec…"
    assert (
        "swordf"
        not in shown(f"{'x ' * (MAX_READ_CHARS // 2 - 3)} swordfish", max_chars=MAX_READ_CHARS)[
            :-10
        ]
    )


def test_a_long_secret_is_recognized_by_its_beginning() -> None:
    value = json.dumps({"type": "service_account", "private": "x" * 5000})

    assert Scrubber([value]).line(f"echo '{value}' y", 80) == (f"echo '{SECRET}")


def test_a_scrubbed_text_keeps_its_line_breaks() -> None:
    text = "A=swordfish\n\tB=correct horse\n battery\x1b\nC=2"

    assert SCRUBBER.text(text, 300) == "A=[secret]\n\tB=[secret]\nC=2"
    assert SCRUBBER.text(text, 12) == "A=[secret]\n\t"


@given(
    st.text(
        st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="\x7f"), min_size=8
    ),
    st.text(max_size=50),
    st.text(max_size=50),
    st.booleans(),
)
def test_a_secret_is_hidden_wherever_it_is_in_the_text(
    value: str, before: str, after: str, is_quoted: bool
) -> None:
    secret = f"k{value}k"
    scrubber = Scrubber([secret])
    written = quote(secret, safe="") if is_quoted else secret

    line = scrubber.line(f"{before} {written} {after}", 5000)

    assert written not in line
    assert SECRET in line


@pytest.mark.parametrize(
    "piece", ["x", " ", "sk-", "://", "a@", "Bearer ", "eyJ.", "-" * 5 + "BEGIN ", "0" * 63 + " "]
)
def test_a_megabyte_is_scrubbed_within_a_second(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()

    assert len(SCRUBBER.line(text, 80)) <= 80

    assert time.process_time() - began < 1
