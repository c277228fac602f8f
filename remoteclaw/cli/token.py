"""The commands `token …`."""

from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import load, with_fleet
from remoteclaw.cli.output import echo, format_time, json_option, print_list
from remoteclaw.errors import NotFound
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet
    from remoteclaw.fleet.tokens import TokenView
    from remoteclaw.tools.base import Scope


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
@with_fleet
async def create_token(
    fleet: "Fleet", name: str, scope: "Scope", days: int | None, agents: tuple[str, ...]
) -> None:
    """Create a token and print it, once.

    NAME is the name of its owner.
    """
    _, config = load()
    for agent in agents:
        config.agent(agent)
    valid_ms = None if days is None else days * 24 * 3600 * 1000
    only = tuple(dict.fromkeys(agents)) or None
    secret, view = await fleet.tokens.create(name, scope, valid_ms, agents=only)
    limit = f", only for {', '.join(only)}" if only else ""
    echo(f"{view.id} has the scope {scope}{limit}; it is shown only now:", err=True)
    echo(secret)


@token.command("list")
@json_option
@with_fleet
async def list_tokens(fleet: "Fleet", as_json: bool) -> None:
    """List the tokens, without their secrets."""
    print_list(
        await fleet.tokens.list(),
        as_json=as_json,
        to_json=_to_json,
        headers=("TOKEN", "SCOPE", "AGENTS", "CREATED", "VALID UNTIL", "NAME"),
        row=_row,
        empty="There are no tokens: `remoteclaw token create NAME` creates one.",
    )


def _to_json(view: "TokenView") -> dict[str, Any]:
    names = ("id", "name", "scope", "agents", "created_ms", "expires_ms", "is_expired")
    return {name: getattr(view, name) for name in names}


def _row(view: "TokenView") -> tuple[object, ...]:
    until = "revocation" if view.expires_ms is None else format_time(view.expires_ms)
    until = "expired" if view.is_expired else until
    agents = "all" if view.agents is None else " ".join(view.agents)
    return view.id, view.scope, agents, format_time(view.created_ms), until, view.name


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
@with_fleet
async def revoke_token(
    fleet: "Fleet", token_id: str | None, jti: str | None, user: str | None
) -> None:
    """Revoke a token; connections that use it are closed.

    TOKEN is its id, or its name.
    """
    if [token_id, jti, user].count(None) != 2:
        raise click.UsageError("Name a token, or give --jwt with its `jti`, or --jwt-user KEY/SUB.")
    if jti is not None:
        await fleet.tokens.revoke_jwt(jti)
        echo("It is revoked, and so is any other token with this id.")
        return
    if user is not None:
        if not all(user.partition("/")):
            raise click.UsageError(
                "--jwt-user takes the key's name and `sub`, such as cockpit/ada."
            )
        await fleet.tokens.revoke_jwts_of(user)
        echo("All tokens that were signed for this user until now are revoked.")
        return
    assert token_id is not None, "exactly one of them is given"
    views = await fleet.tokens.list()
    matches = [view.id for view in views if token_id in (view.id, view.name)] or [token_id]
    listed = "`remoteclaw token list` lists them"
    what = repr(one_line(token_id, max_chars=40))
    if len(matches) > 1:
        raise NotFound(f"{what} fits {len(matches)} tokens: give the id; {listed}.")
    if not await fleet.tokens.revoke(matches[0]):
        raise NotFound(f"{what} is no token: {listed}.")
    echo("It is revoked.")


@token.command("rotate")
def rotate_token() -> None:
    """Replace the gateway's own tokens.

    Connections that use the old ones are closed.
    """
    from remoteclaw.gateway.auth.token_file import token_files

    home, _ = load()
    for file in token_files(home.create().path):
        file.rotate()
        echo(f"A new token is in {file.path}.")
