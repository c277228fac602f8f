"""The commands `token …`."""

from typing import TYPE_CHECKING, Literal

import click

from remoteclaw.cli.access import load, on_fleet
from remoteclaw.cli.output import clock, echo, table
from remoteclaw.errors import NotFound
from remoteclaw.host.terminal import one_line

if TYPE_CHECKING:
    from remoteclaw.fleet import Fleet

__all__ = ["token"]


@click.group()
def token() -> None:
    """Make, list and revoke tokens for the gateway."""


def _check_name(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    if not name.isprintable() or not 0 < len(name.strip()) <= 64:
        raise click.BadParameter("it has 1 to 64 characters that can be printed.")
    return name.strip()


@token.command("create")
@click.argument("name", callback=_check_name)
@click.option(
    "--scope",
    type=click.Choice(["read", "write", "admin"]),
    default="read",
    show_default=True,
    help="What it may do; each includes those before it.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    metavar="NUMBER",
    help="How long it is valid. [default: until it is revoked]",
)
def create_token(name: str, scope: Literal["read", "write", "admin"], days: int | None) -> None:
    """Make a token and print it, once. NAME says whose it is."""
    valid_ms = None if days is None else days * 24 * 3600 * 1000

    async def run(fleet: "Fleet") -> None:
        made, view = await fleet.tokens.create(name, scope, valid_ms)
        echo(f"{view.id} may {scope}; it is shown only now:", err=True)
        echo(made)

    on_fleet(run)


@token.command("list")
def list_tokens() -> None:
    """List the tokens that were made, without what is secret of them."""

    async def run(fleet: "Fleet") -> None:
        rows = []
        for view in await fleet.tokens.list():
            until = "revocation" if view.expires_ms is None else clock(view.expires_ms)
            until = "expired" if view.is_expired else until
            rows.append((view.id, view.scope, clock(view.created_ms), until, view.name))
        table(("TOKEN", "SCOPE", "MADE", "VALID UNTIL", "NAME"), rows)

    on_fleet(run)


@token.command("revoke")
@click.argument("token_id", metavar="TOKEN")
def revoke_token(token_id: str) -> None:
    """Revoke a token; connections that use it are closed. TOKEN is its id."""

    async def run(fleet: "Fleet") -> None:
        if not await fleet.tokens.revoke(token_id):
            raise NotFound(
                f"{one_line(token_id, most=40)!r} is no token's id: "
                "`remoteclaw token list` shows those there are."
            )
        echo("It is revoked.")

    on_fleet(run)


@token.command("rotate")
def rotate_token() -> None:
    """Replace the gateway's own tokens; connections that use the old ones are closed."""
    from remoteclaw.gateway.token_file import token_files

    home, _ = load()
    for file in token_files(home.create().path):
        file.rotate()
        echo(f"A new token is in {file.path}.")
