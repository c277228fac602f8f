"""Real agent CLIs, each with the scripted model behind it."""

import contextlib
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

__all__ = ["ClaudeCli", "ModelServerProcess", "find_claude"]

ROOT = Path(__file__).parents[2]
#: Where CI put the CLIs; read now, because tests clear our variables.
CLIS = os.environ.get("REMOTECLAW_TEST_CLIS")


class ModelServerProcess:
    """The scripted model server, in a process of its own."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    @classmethod
    @contextlib.contextmanager
    def running(cls, directory: Path) -> Iterator[Self]:
        """Have it running; it ends when its standard input does, however we end."""
        log = directory / "requests.jsonl"
        argv = [sys.executable, "-m", "tests.support.model_server", "--log", str(log)]
        with subprocess.Popen(
            argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            url = process.stdout.readline().decode().removeprefix("LISTENING ").strip()
            assert url.startswith("http://127.0.0.1:"), "the model server did not start"
            yield cls(url, log)
            process.stdin.close()

    def requests(self) -> list[dict[str, Any]]:
        """Return what was asked of the model so far."""
        return [orjson.loads(line) for line in self._log.read_bytes().splitlines()]

    def bodies(self) -> str:
        """Return the last requests as they came, one a line."""
        with urllib.request.urlopen(f"{self.url}/bodies") as answer:
            return str(answer.read(), "utf-8")


def find_claude() -> str | None:
    """Return the claude that CI brought, else the one on PATH."""
    path = f"{CLIS}{os.pathsep}{os.environ['PATH']}" if CLIS else None
    found = shutil.which("claude", path=path)
    return str(Path(found).resolve()) if found else None


@dataclass(frozen=True)
class ClaudeCli:
    """The real claude and the environment that points it at the scripted model."""

    program: str
    model: ModelServerProcess

    @property
    def env(self) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": "nobody's key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of an agent that is this claude."""
        return {"runtime": "claude", "command": [self.program], "env": self.env, **more}
