"""The hosts that a child process reaches without a proxy."""

import pytest

from remoteclaw.host.environment import past_proxies

OWN = "localhost,127.0.0.1,::1"


@pytest.mark.parametrize(
    ("env", "url", "value"),
    [
        ({}, None, OWN),
        ({"NO_PROXY": ""}, "http://127.0.0.1:18789/mcp", OWN),
        ({"NO_PROXY": "corp.example, .lan"}, None, f"corp.example,.lan,{OWN}"),
        ({"no_proxy": "10.0.0.0/8"}, None, f"10.0.0.0/8,{OWN}"),
        ({"NO_PROXY": "a,b", "no_proxy": "b c"}, None, f"a,b,c,{OWN}"),
        ({"NO_PROXY": "::1,x"}, None, "::1,x,localhost,127.0.0.1"),
        ({"NO_PROXY": "*"}, "http://gateway.lan/mcp", "*"),
        ({}, "http://192.168.0.7:18789/mcp", f"{OWN},192.168.0.7"),
        ({}, "http://[::1]:18789/mcp", f"{OWN},[::1]"),
    ],
)
def test_this_machine_needs_no_proxy_and_the_users_entries_stay(
    env: dict[str, str], url: str | None, value: str
) -> None:
    given = past_proxies({"PATH": "/bin", **env}, url)

    assert given == {"PATH": "/bin", "NO_PROXY": value, "no_proxy": value}
