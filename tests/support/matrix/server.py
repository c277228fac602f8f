"""A Synapse of the tests, from an environment of its own."""

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import ssl
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self
from urllib.parse import quote

import httpx2
import orjson

from tests.support.shared import shared
from tests.support.waiting import eventually_sync

#: The Python of an environment in which Synapse is installed.
VARIABLE = "REMOTECLAW_TEST_SYNAPSE"
#: It, before a test clears the environment.
INSTALLED = os.environ.get(VARIABLE)
#: The token of a bridge, which can send events of another time, in anybody's name.
BRIDGE = "the-tests-bridge"
#: One for all clients, of which none encrypts: to make it for each takes 34 ms.
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_MANY = {"per_second": 10_000, "burst_count": 10_000}
_SECRET = "test"
#: Synapse ends with the tests, however these end.
_PROGRAM = """
import os, sys, threading
from pathlib import Path
sys.path.append(sys.argv.pop(1))
from tests.support.shared import wait_until_left
address = Path(sys.argv.pop(1))
threading.Thread(target=lambda: (wait_until_left(address), os._exit(0)), daemon=True).start()
from synapse.app.homeserver import main
main()
"""
ROOT = Path(__file__).parents[3]


def synapse() -> str | None:
    """Return the Python that runs Synapse; None without one."""
    return INSTALLED


_BRIDGE_SETTINGS = {
    "id": "bridge",
    "url": None,
    "as_token": BRIDGE,
    "hs_token": "unused",
    "sender_localpart": "bridge",
    "namespaces": {"users": [{"regex": "@.*", "exclusive": False}]},
}


@dataclass(frozen=True, slots=True)
class Login:
    """An account, logged in with a device."""

    user: str
    token: str
    device: str
    password: str


class Homeserver:
    """A running homeserver."""

    def __init__(self, url: str) -> None:
        self.url = url

    @classmethod
    @contextlib.contextmanager
    def shared(cls, directory: Path) -> Iterator[Self]:
        """Have it running for all that name this directory."""
        with shared(directory, _start) as url:
            yield cls(url)

    async def register(self, name: str) -> Login:
        """Make an account whose name begins so."""
        password = uuid.uuid4().hex
        body = {
            "username": f"{name}-{uuid.uuid4().hex[:8]}",
            "password": password,
            "auth": {"type": "m.login.dummy"},
        }
        async with httpx2.AsyncClient(verify=TLS) as http:
            answer = await http.post(f"{self.url}/_matrix/client/v3/register", json=body)
        made = answer.json()
        return Login(made["user_id"], made["access_token"], made["device_id"], password)

    async def limit(self, login: Login) -> None:
        """Limit an account to one message a second; the homeserver answers more with 429."""
        path = "/_synapse/admin/v1"
        async with httpx2.AsyncClient(base_url=self.url, verify=TLS) as http:
            nonce = (await http.get(f"{path}/register")).json()["nonce"]
            name, password = f"admin-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
            words = "\0".join((nonce, name, password, "admin")).encode()
            mac = hmac.new(_SECRET.encode(), words, hashlib.sha1).hexdigest()
            body = {"nonce": nonce, "username": name, "password": password, "mac": mac}
            made = await http.post(f"{path}/register", json={**body, "admin": True})
            answer = await http.post(
                f"{path}/users/{quote(login.user)}/override_ratelimit",
                json={"messages_per_second": 1, "burst_count": 1},
                headers={"Authorization": f"Bearer {made.json()['access_token']}"},
            )
        assert answer.status_code == 200, answer.text


def _start(stdin: BinaryIO, address: Path) -> None:
    """Start the server with an empty database, and wait until it answers."""
    directory = Path(tempfile.mkdtemp(dir=address.parent))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    (directory / "bridge.json").write_bytes(orjson.dumps(_BRIDGE_SETTINGS))
    settings = directory / "homeserver.json"  # YAML reads JSON
    settings.write_bytes(orjson.dumps(_settings(directory, port)))
    seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
    (directory / "key").write_text(f"ed25519 a_test {seed}\n")
    argv = [str(synapse()), "-c", _PROGRAM, str(ROOT), str(address), "-c", str(settings)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=directory, stdin=stdin, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    eventually_sync(lambda: process.poll() is not None or _answers(url))
    assert process.poll() is None, (directory / "log").read_text()[-2000:]
    process.returncode = 0  # it may live longer than this process
    address.write_text(url)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/_matrix/client/versions").status_code == 200
    except httpx2.HTTPError:
        return False


def _settings(directory: Path, port: int) -> dict[str, Any]:
    return {
        "server_name": "localhost",
        "pid_file": str(directory / "pid"),
        "listeners": [
            {
                "port": port,
                "bind_addresses": ["127.0.0.1"],
                "type": "http",
                "resources": [{"names": ["client"], "compress": False}],
            }
        ],
        "database": {"name": "sqlite3", "args": {"database": str(directory / "database")}},
        "media_store_path": str(directory / "media"),
        "signing_key_path": str(directory / "key"),
        "macaroon_secret_key": secrets.token_hex(),
        "form_secret": secrets.token_hex(),
        "registration_shared_secret": _SECRET,
        "report_stats": False,
        "enable_registration": True,
        "enable_registration_without_verification": True,
        "suppress_key_server_warning": True,
        "trusted_key_servers": [],
        "presence": {"enabled": False},
        "url_preview_enabled": False,
        "bcrypt_rounds": 4,
        "app_service_config_files": [str(directory / "bridge.json")],
        "rc_message": _MANY,
        "rc_registration": _MANY,
        "rc_login": {"address": _MANY, "account": _MANY, "failed_attempts": _MANY},
        "rc_joins": {"local": _MANY, "remote": _MANY},
        "rc_joins_per_room": _MANY,
        "rc_invites": {"per_room": _MANY, "per_user": _MANY, "per_issuer": _MANY},
        "rc_room_creation": _MANY,
    }
