"""The address of a Redis that a person names: checked, and without a password in an argument."""

import sys
from urllib.parse import quote, urlsplit, urlunsplit

import click

from remoteclaw.cli.output import echo
from remoteclaw.errors import RedisUnfit
from remoteclaw.host.hidden_input import hidden_input


def fit_url(url: str) -> str:
    """Return the address of a Redis that can be used, with the password that it needs.

    Raises the errors of `check_fitness()`.
    """
    import asyncio

    from remoteclaw.fleet.connection import open_redis
    from remoteclaw.fleet.failures import LOGIN
    from remoteclaw.fleet.fitness import check_fitness

    async def check(address: str) -> None:
        client = open_redis(address)
        try:
            await check_fitness(client, address, needs_room=True)
        finally:
            await client.aclose()

    try:
        asyncio.run(check(url))
    except RedisUnfit as error:
        if not LOGIN.search(str(error)) or urlsplit(url).password:
            raise
        url = _with_password(url, _ask_password())
        asyncio.run(check(url))
    echo("ok  redis            can be used")
    return url


def _ask_password() -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    with hidden_input():
        password = str(click.prompt("Password of Redis (it is not shown)"))
    echo("")  # the terminal has not shown Enter either
    return password


def _with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}"))
