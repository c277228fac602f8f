"""The commands `token …`."""

from collections.abc import Mapping
from typing import Any

import click

from remoteclaw.cli.access import call_method
from remoteclaw.cli.output import echo, format_time, json_option, print_result


@click.group()
def token() -> None:
    """Create, list, revoke and rotate tokens for the gateway."""


def check_name(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    """Return an operator's name without outer spaces; raises `BadParameter` if it is unfit."""
    if not name.isprintable() or not 0 < len(name.strip()) <= 64:
        raise click.BadParameter("it must have 1 to 64 printable characters.")
    return name.strip()


@token.command("create")
@click.argument("name", callback=check_name)
@click.option(
    "--scope",
    type=click.Choice(["read", "write", "terminal", "admin"]),
    default="read",
    show_default=True,
    help="What the token may do; each scope includes those before it.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    metavar="NUMBER",
    help="How many days it is valid. [default: until it is revoked]",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="Limit it to this agent; may be given several times. [default: all agents]",
)
def create_token(name: str, scope: str, days: int | None, agents: tuple[str, ...]) -> None:
    """Create a token and print it, once.

    NAME is the name of its owner.
    """
    created = call_method("tokens.create", name=name, scope=scope, days=days, agents=agents)
    limit = f", only for {', '.join(dict.fromkeys(agents))}" if agents else ""
    echo(f"{created['id']} has the scope {scope}{limit}; it is shown only now:", err=True)
    echo(created["secret"])


@token.command("list")
@json_option
def list_tokens(as_json: bool) -> None:
    """List the tokens, without their secrets."""
    print_result(
        call_method("tokens.list"),
        "tokens",
        as_json=as_json,
        headers=("TOKEN", "SCOPE", "AGENTS", "CREATED", "VALID UNTIL", "NAME"),
        row=_row,
        empty="There are no tokens: `remoteclaw token create NAME` creates one.",
    )


def _row(token: Mapping[str, Any]) -> tuple[object, ...]:
    expires_ms = token["expiresMs"]
    until = "revocation" if expires_ms is None else format_time(expires_ms)
    until = "expired" if token["isExpired"] else until
    agents = "all" if token["agents"] is None else " ".join(token["agents"])
    created = format_time(token["createdMs"])
    return token["id"], token["scope"], agents, created, until, token["name"]


@token.command("revoke")
@click.argument("token_id", metavar="TOKEN", required=False)
@click.option(
    "--jwt",
    "jti",
    metavar="JTI",
    help="Revoke the token that another cockpit has signed, by its id.",
)
@click.option(
    "--jwt-user",
    "user",
    metavar="KEY/SUB",
    help="Revoke all tokens that another cockpit has signed for a user until now.",
)
def revoke_token(token_id: str | None, jti: str | None, user: str | None) -> None:
    """Revoke a token; connections that use it are closed.

    TOKEN is its id, or its name.
    """
    if [token_id, jti, user].count(None) != 2:
        raise click.UsageError("Name a token, or give --jwt with its `jti`, or --jwt-user KEY/SUB.")
    if user is not None and not all(user.partition("/")):
        raise click.UsageError("--jwt-user takes the key's name and `sub`, such as cockpit/ada.")
    call_method("tokens.revoke", token=token_id, jti=jti, jwtUser=user)
    if jti is not None:
        echo("It is revoked, and so is any other token with this id.")
    elif user is not None:
        echo("All tokens that were signed for this user until now are revoked.")
    else:
        echo("It is revoked.")


@token.command("rotate")
def rotate_token() -> None:
    """Replace the gateway's own tokens.

    Connections that use the old ones are closed.
    """
    from remoteclaw.cli.access import load
    from remoteclaw.gateway.auth.token_file import token_files

    home, _ = load()
    for file in token_files(home.create().path):
        file.rotate()
        echo(f"A new token is in {file.path}.")
