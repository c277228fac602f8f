"""`up` has a gateway: it is there when `up` is ready, and again when it was killed."""

import os
import signal
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.model import GatewayConfig
from remoteclaw.gateway.address import listen
from tests.support.processes import is_alive
from tests.support.up import address, ask, gateway_of, remoteclaw, running


def test_when_everything_is_ready_the_gateway_is(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no files beside the caller for modules, and only its newest token."""
    for name in ("orjson", "uvicorn", "remoteclaw", "socket"):
        (directory / f"{name}.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(directory)

    with running(home) as up:
        url = address(home)
        token = (home.path / "gateway-token").read_text().strip()

        assert ask(f"{url}/tools/invoke", token) == 200
        assert ask(f"{url}/tools/invoke", "wrong") == 401
        assert ask(f"{url}/healthz") == 405
        assert f"ok  gateway          {url}\n" in remoteclaw(home, "doctor").stdout

        assert remoteclaw(home, "token", "rotate").returncode == 0

        assert ask(f"{url}/tools/invoke", token) == 401
        token = (home.path / "gateway-token").read_text().strip()
        assert ask(f"{url}/tools/invoke", token) == 200
        gateway = gateway_of(up.pid)
    assert not is_alive(gateway)


def test_a_gateway_that_is_killed_comes_back_where_it_was(home: Home) -> None:
    """Who asks meanwhile is not refused: agents keep its address for as long as they live."""
    with running(home) as up:
        url, before = address(home), gateway_of(up.pid)
        token = (home.path / "gateway-token").read_text().strip()

        os.kill(before, signal.SIGKILL)

        assert ask(f"{url}/tools/invoke", token) == 200
        assert address(home) == url
        assert gateway_of(up.pid) != before
        assert "RemoteClaw's demo agent" in remoteclaw(home, "send", "hello").stdout


def test_a_port_in_use_is_said_before_anything_is_started(home: Home) -> None:
    with listen(GatewayConfig(port=0)) as listening:
        port = str(listening.getsockname()[1])

        result = remoteclaw(home, "up", "--no-console", REMOTECLAW__GATEWAY__PORT=port)

    assert result.returncode == 1
    assert result.stderr.startswith(f"remoteclaw: [gateway] port {port} is in use on 127.0.0.1: ")
    assert result.stderr.count("\n") == 1
    assert not list(home.logs.iterdir())


def test_a_gateway_that_cannot_start_is_explained(home: Home) -> None:
    token = home.path / "gateway-token"
    token.write_text("short")
    token.chmod(0o600)

    result = remoteclaw(home, "up", "--no-console")

    assert result.returncode == 1
    assert f"A gateway ended at its start: The gateway's token {token} is too" in result.stderr
    assert "Traceback" not in result.stderr
