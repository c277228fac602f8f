"""The sign-in of the real CLIs, which is checked without a request to a model."""

from pathlib import Path

import pytest

from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.up.agents import sign_in_problem
from tests.conftest import required
from tests.support.agents import ModelServerProcess


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_missing_sign_in_is_reported_with_the_command_to_run(
    name: str, model_server: ModelServerProcess, tmp_path: Path
) -> None:
    cli = required(name, model_server)
    inherited = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    env = create_cli_runtime(name).environment(inherited)
    before = model_server.bodies()

    without = sign_in_problem(name, (cli.program,), env)
    signed_in = sign_in_problem(name, cli.command, {**env, **cli.env})

    assert str(without).startswith(f"{name} is not signed in: run `{name}")
    assert signed_in is None
    assert model_server.bodies() == before


def test_a_cli_that_does_not_report_its_sign_in_counts_as_signed_in(tmp_path: Path) -> None:
    for name in ("claude", "codex"):
        assert sign_in_problem(name, ("/bin/false",), {"HOME": str(tmp_path)}) is None
        assert sign_in_problem(name, ("/not/there",), {"HOME": str(tmp_path)}) is None
