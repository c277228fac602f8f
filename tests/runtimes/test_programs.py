"""The program that is started for each way of installing a CLI."""

import os
import shutil
from pathlib import Path

import pytest

from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.up.agents import untested_version

#: Where npm puts the script and the real program: side by side, or one inside the other.
LAYOUTS = {
    "codex": [
        ("@openai/codex/bin/codex.js", "@openai/codex-linux-x64/vendor/x86_64-musl/bin/codex"),
        (
            "@openai/codex/bin/codex.js",
            "@openai/codex/node_modules/@openai/codex-linux-arm64/vendor/aarch64-musl/bin/codex",
        ),
    ],
    "claude": [
        ("@anthropic-ai/claude-code/cli.js", "@anthropic-ai/claude-code-linux-x64/claude"),
    ],
    "opencode": [("opencode-ai/bin/opencode", "opencode-linux-x64/bin/opencode")],
}


def install(directory: Path, name: str, script: str, program: str) -> Path:
    """Install a CLI as npm does; return the path of its real program."""
    modules = directory / "lib" / "node_modules"
    for file in (modules / script, modules / program):
        file.parent.mkdir(parents=True, exist_ok=True)
    (modules / script).write_text("#!/usr/bin/env node\n")
    (modules / script).chmod(0o755)
    shutil.copy("/bin/true", modules / program)
    (directory / "bin").mkdir()
    (directory / "bin" / name).symlink_to(modules / script)
    return modules / program


@pytest.mark.parametrize(
    ("name", "script", "program"),
    [(name, *layout) for name, layouts in LAYOUTS.items() for layout in layouts],
)
def test_the_real_program_is_started_instead_of_npms_script(
    tmp_path: Path, name: str, script: str, program: str
) -> None:
    real = install(tmp_path, name, script, program)

    assert create_cli_runtime(name).find(name, str(tmp_path / "bin")) == str(real)


def test_npms_script_is_started_if_the_real_program_is_missing(tmp_path: Path) -> None:
    real = install(tmp_path, "codex", *LAYOUTS["codex"][0])
    real.unlink()

    found = create_cli_runtime("codex").find("codex", str(tmp_path / "bin"))

    assert found == str(tmp_path / "bin" / "codex")


def test_a_users_own_wrapper_script_is_not_bypassed(tmp_path: Path) -> None:
    install(tmp_path, "codex", *LAYOUTS["codex"][0])
    (tmp_path / "lib" / "codex").write_text("#!/bin/sh\nexec bwrap codex\n")
    (tmp_path / "lib" / "codex").chmod(0o755)

    found = create_cli_runtime("codex").find("codex", str(tmp_path / "lib"))

    assert found == str(tmp_path / "lib" / "codex")


def test_a_binary_is_started_directly(tmp_path: Path) -> None:
    shutil.copy("/bin/true", tmp_path / "codex")

    assert create_cli_runtime("codex").find("codex", str(tmp_path)) == str(tmp_path / "codex")
    assert create_cli_runtime("codex").find("codex", os.devnull) is None


@pytest.mark.parametrize(
    ("version", "is_tested"),
    [("2.1.197", True), ("2.1.300", True), ("2.2.0", False), ("3.0", False), ("", True)],
)
def test_an_untested_version_of_a_cli_is_reported(version: str, is_tested: bool) -> None:
    assert bool(untested_version("claude", version)) is not is_tested
