"""Real agent CLIs, each connected to the scripted model server."""

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from remoteclaw.runtimes import create_cli_runtime
from remoteclaw.runtimes.acp.runtime import AcpRuntime
from tests.support.model_server.charge import Charge

ROOT = Path(__file__).parents[2]
#: The directory in which CI installs the CLIs. It is read at import, because tests clear our
#: environment variables.
BROUGHT = os.environ.get("REMOTECLAW_TEST_CLIS")

#: The models to request, by CLI; the other CLIs use their default.
MODELS = {"codex": "scripted", "gemini": "gemini-2.5-flash"}


class ModelServerProcess:
    """The scripted model server, in a process of its own."""

    def __init__(self, url: str, log: Path) -> None:
        self.url = url
        self._log = log

    @classmethod
    @contextlib.contextmanager
    def running(cls, directory: Path) -> Iterator[Self]:
        """Run the server. It ends when its standard input is closed, however this process ends."""
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
        """Return the requests that the model has received so far."""
        return [orjson.loads(line) for line in self._log.read_bytes().splitlines()]

    @contextlib.contextmanager
    def limited(self, **limit: Any) -> Iterator[None]:
        """Have the model refuse requests, with the fields of `Limit`."""
        self._post("limit", limit)
        try:
            yield
        finally:
            self._post("limit", {})

    def _post(self, path: str, body: object) -> None:
        with urllib.request.urlopen(f"{self.url}/{path}", orjson.dumps(body)):
            pass

    def bodies(self) -> str:
        """Return the last requests unparsed, one per line."""
        with urllib.request.urlopen(f"{self.url}/bodies") as answer:
            return str(answer.read(), "utf-8")

    @contextlib.contextmanager
    def with_varied_charges(self) -> Iterator[None]:
        """Have each request cost something else, with tokens of each kind."""
        self._post("charges", True)
        try:
            yield
        finally:
            self._post("charges", False)

    def charged(self) -> Charge:
        """Return what the requests were told that they cost, in whole or as a stream began."""
        return self._charges()[0]

    def answered(self) -> Charge:
        """Return the part of `charged()` whose answers were sent to their end."""
        return self._charges()[1]

    def _charges(self) -> list[Charge]:
        with urllib.request.urlopen(f"{self.url}/charged") as answer:
            return [Charge(*charge) for charge in orjson.loads(answer.read())]


def find_cli(name: str) -> str | None:
    """Return the path of the CLI that CI installed, else of the one on PATH."""
    path = f"{BROUGHT}{os.pathsep}{os.environ['PATH']}" if BROUGHT else None
    return create_cli_runtime(name).find(name, path)


@dataclass(frozen=True)
class AgentCli:
    """A real agent CLI, with the settings that connect it to the scripted model."""

    name: str
    program: str
    model: ModelServerProcess

    @property
    def instructs_by_prompt(self) -> bool:
        """Whether the CLI can take the system prompt only as part of the first message."""
        runtime = create_cli_runtime(self.name)
        return isinstance(runtime, AcpRuntime) and runtime.instructs_by_prompt

    @property
    def command(self) -> tuple[str, ...]:
        """The program and its first arguments."""
        if self.name != "codex":
            return (self.program,)
        provider = (
            f'{{name="Scripted",base_url="{self.model.url}/v1",env_key="OPENAI_API_KEY",'
            'wire_api="responses",request_max_retries=1,stream_max_retries=1,'
            "supports_websockets=false}"
        )
        options = (
            'model_provider="scripted"',
            f"model_providers.scripted={provider}",
            "analytics.enabled=false",
            "features.plugins=false",
        )
        return (self.program, *(part for option in options for part in ("-c", option)))

    @property
    def model_name(self) -> str | None:
        """The model to request; None for the CLI's default."""
        return MODELS.get(self.name)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that the CLI needs."""
        return {
            "claude": {
                "ANTHROPIC_BASE_URL": self.model.url,
                "ANTHROPIC_API_KEY": "nobody's key",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CODE_MAX_RETRIES": "1",
                "DISABLE_AUTOUPDATER": "1",
                "DISABLE_ERROR_REPORTING": "1",
                "DISABLE_TELEMETRY": "1",
                "MCP_CONNECT_TIMEOUT_MS": "60000",  # a busy machine is slow to start a server
            },
            "codex": {"OPENAI_API_KEY": "nobody's key"},
            "gemini": {
                "GOOGLE_GEMINI_BASE_URL": self.model.url,
                "GEMINI_API_KEY": "nobody's key",
                "NO_COLOR": "1",
                "NODE_COMPILE_CACHE": str(ROOT / ".cache" / "node"),  # saves a third of its start
            },
            "opencode": {
                "OPENCODE_CONFIG_CONTENT": self._opencode_config,
                "npm_config_offline": "true",  # else each new home fetches a package
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
            },
            "demo": {},
        }[self.name]

    @property
    def _opencode_config(self) -> str:
        scripted = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Scripted",
            "options": {"baseURL": f"{self.model.url}/v1", "apiKey": "nobody's key"},
            "models": {
                name.lower(): {
                    "name": name,
                    "attachment": True,
                    "cost": {"input": 1, "output": 2},
                    "modalities": {"input": ["text", "image"], "output": ["text"]},
                }
                for name in ("Scripted", "Other")
            },
        }
        config: dict[str, Any] = {
            "provider": {"scripted": scripted},
            "enabled_providers": ["scripted"],
            "model": "scripted/scripted",
            "small_model": "scripted/scripted",
        }
        return orjson.dumps(config).decode()

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of an agent that is this CLI."""
        model = {"model": self.model_name} if self.model_name else {}
        return {
            "runtime": self.name,
            "command": list(self.command),
            "env": self.env,
            **model,
            **more,
        }
