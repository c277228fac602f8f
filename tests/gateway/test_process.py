"""The gateway of `up`: it runs when `up` is ready, and is started again after a kill."""

import os
import signal
from pathlib import Path

import pytest

from remoteclaw.config.home import Home
from remoteclaw.config.model import GatewayConfig
from remoteclaw.gateway.address import listen
from tests.support.processes import is_alive
from tests.support.up import address, ask, gateway_of, remoteclaw, running
from tests.support.waiting import eventually_sync


def test_the_gateway_runs_when_up_is_ready_and_after_a_restart_and_a_kill(
    home: Home, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests in between are not refused, because agents keep the address for their lifetime.

    The gateway imports no modules from the working directory, and accepts only its newest token.
    """
    for name in ("orjson", "uvicorn", "remoteclaw", "socket"):
        (directory / f"{name}.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(directory)

    with running(home) as up:
        url, first = address(home), gateway_of(up.pid)
        private = os.listdir(home.gateways)
        token = (home.path / "gateway-token").read_text().strip()

        assert ask(f"{url}/tools/invoke", token) == 200
        assert ask(f"{url}/tools/invoke", "wrong") == 401
        assert ask(f"{url}/healthz") == 405
        assert f"ok  gateway          {url}\n" in remoteclaw(home, "doctor").stdout
        assert remoteclaw(home, "token", "rotate").returncode == 0
        assert ask(f"{url}/tools/invoke", token) == 401
        token = (home.path / "gateway-token").read_text().strip()

        assert "demo agent" in remoteclaw(home, "send", "hello").stdout
        agents = sorted(path.name for path in home.runs.iterdir())
        assert ask(f"{url}/tools/invoke", token, tool="gateway_restart") == 200
        assert ask(f"{url}/tools/invoke", token) == 200
        log = home.logs / "gateway.log"
        eventually_sync(lambda: log.read_text().count("The gateway is at ") == 2)
        assert gateway_of(up.pid) == first

        os.kill(first, signal.SIGKILL)

        assert ask(f"{url}/tools/invoke", token) == 200
        assert address(home) == url
        assert os.listdir(home.gateways) == private
        second = gateway_of(up.pid)
        assert second != first
        assert sorted(path.name for path in home.runs.iterdir()) == agents
        assert "message 2" in remoteclaw(home, "send", "hello").stdout
    assert not is_alive(second)
    assert os.listdir(home.gateways) == []


def test_a_port_in_use_is_reported_before_anything_is_started(home: Home) -> None:
    with listen(GatewayConfig(port=0)) as listening:
        port = str(listening.getsockname()[1])

        result = remoteclaw(home, "up", "--no-chat", REMOTECLAW__GATEWAY__PORT=port)

    assert result.returncode == 1
    assert result.stderr.startswith(
        f"remoteclaw: [gateway] can't listen on 127.0.0.1, port {port} "
    )
    assert result.stderr.count("\n") == 1
    assert [(file.name, file.stat().st_size) for file in home.logs.iterdir()] == [
        ("workers.log", 0)
    ]
