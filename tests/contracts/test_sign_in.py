"""The sign-in of the real CLIs, which is asked without a request to a model."""

import json
from pathlib import Path

import pytest

from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.up.sign_in import sign_in_problem
from tests.conftest import required
from tests.support.agents import ModelServerProcess


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_who_is_not_signed_in_is_told_what_to_do(
    name: str, model_server: ModelServerProcess, tmp_path: Path
) -> None:
    cli = required(name, model_server)
    inherited = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    env = create_cli_runtime(name).environment(inherited)
    before = model_server.bodies()

    without = sign_in_problem(name, (cli.program,), env)
    signed_in = sign_in_problem(name, cli.command, {**env, **cli.env})

    if name == "opencode":  # which has models that need none
        assert without is None
    else:
        assert str(without).startswith(f"{name} is not signed in: run `{name}")
    assert signed_in is None
    assert model_server.bodies() == before


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (".gemini/settings.json", json.dumps({"security": {"auth": {"selectedType": "x"}}})),
        (".gemini/.env", "GEMINI_API_KEY=x"),
        (".env", "GOOGLE_API_KEY=x"),
    ],
)
def test_gemini_may_be_signed_in_by_a_file(file: str, content: str, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    assert "run `gemini` once" in str(sign_in_problem("gemini", ("gemini",), env))
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content)

    assert sign_in_problem("gemini", ("gemini",), env) is None


def test_who_does_not_tell_counts_as_signed_in(tmp_path: Path) -> None:
    for name in ("claude", "codex"):
        assert sign_in_problem(name, ("/bin/false",), {"HOME": str(tmp_path)}) is None
        assert sign_in_problem(name, ("/not/there",), {"HOME": str(tmp_path)}) is None
