"""Commands for the configuration: `config`."""

import contextlib
import tomllib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from remoteclaw.cli.access import load
from remoteclaw.cli.output import complain, echo, echo_json, echo_text
from remoteclaw.errors import ConfigError

if TYPE_CHECKING:
    from remoteclaw.config.edit import ConfigFile, FileContent, PlannedChange


@click.group()
def config() -> None:
    """Show, check and change the configuration."""


@config.command()
def validate() -> None:
    """Check the configuration, the hooks, and agents' identity files."""
    from remoteclaw.config.identity import check_identities
    from remoteclaw.config.load import overrides
    from remoteclaw.up.doctor import hooks_problem

    home, settings = load()
    check_identities(home, settings.agents)
    if problem := hooks_problem(settings.hooks):
        raise ConfigError(problem)
    file = home.config_file
    echo(f"{file} is valid." if file.exists() else f"{file} is absent: all defaults.")
    if names := overrides():
        echo(f"Overridden by {', '.join(names)}.")


@config.command()
def schema() -> None:
    """Print the JSON schema of the configuration."""
    from remoteclaw.config.model import Config

    echo_json(Config.model_json_schema())


@config.command()
@click.argument("key", required=False)
def get(key: str | None) -> None:
    """Print the settings in effect, with secrets masked.

    With KEY, such as agents.main.model, print this part of them only.
    """
    from remoteclaw.config.secrets import part, redacted

    shown: Any = redacted(load()[1])
    if key is not None:
        shown = part(shown, key)
    if isinstance(shown, str):
        echo_text(shown)
    else:
        echo_json(shown)


@config.command("set")
@click.argument("key")
@click.argument("value")
def set_value(key: str, value: str) -> None:
    """Set KEY to VALUE in the configuration file.

    The comments in the file stay. VALUE is written as in TOML, such as 3, true or '["a", "b"]'.
    Anything else is a string, which needs no quotes.
    """
    path = _path(key)
    plan = change_file(lambda file: _set(file, path, value))
    echo(f"{key} is set." if plan.paths else f"{key} already has this value.")
    _print_new_agent(plan, path)
    _print_restarts(plan)


@config.command()
@click.argument("key")
def unset(key: str) -> None:
    """Remove KEY from the file, so that its default applies.

    KEY may be a whole table.
    """
    path = _path(key)
    plan = change_file(lambda file: file.plan_patch(file.read(), _nested(path, None)))
    echo(f"{key} is gone." if plan.paths else f"{key} is not in the file.")
    _print_restarts(plan)


def change_file(plan_change: "Callable[[ConfigFile], PlannedChange]") -> "PlannedChange":
    """Write the change that `plan_change` returns, unless it changes nothing, and return it."""
    import asyncio

    from remoteclaw.config.edit import ConfigFile
    from remoteclaw.config.home import Home
    from remoteclaw.config.reload import load_and_keep

    async def run() -> "PlannedChange":
        home = Home.default().create()
        file = ConfigFile(home.config_file)
        async with file.locked():
            plan = plan_change(file)
            if plan.paths:
                await file.write(plan)
                with contextlib.suppress(ConfigError):  # an editor has changed it again
                    load_and_keep(home)
            for name in file.overrides_hiding(plan):
                complain(f"The environment variable {name} overrides it here.")
            return plan

    return asyncio.run(run())


def _set(file: "ConfigFile", path: list[str], text: str) -> "PlannedChange":
    """Return the change that sets `path` to `text`.

    `text` is read as TOML, or as a string if it is not TOML or only the string is valid here.
    Raises the `ConfigError` of the TOML value if neither is valid.
    """
    content = file.read()
    try:
        value: Any = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return file.plan_patch(content, _nested(path, text))
    try:
        return file.plan_patch(content, _nested(path, value))
    except ConfigError as error:
        try:
            return file.plan_patch(content, _nested(path, text))
        except ConfigError:
            raise error from None


def _path(key: str) -> list[str]:
    """Return the parts of a dotted TOML key, such as `channels.telegram.groups."-100".tools`."""
    path = []
    try:
        tree: Any = tomllib.loads(f"{key} = 0")
        while isinstance(tree, dict):
            ((name, tree),) = tree.items()
            path.append(name)
    except ValueError:  # no key, or more than one
        raise click.BadParameter(
            "write it as in the file: queue.mode, or channels.irc.groups.'#a.b'.tools",
            param_hint="KEY",
        ) from None
    return path


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    return dict(value)


def _print_new_agent(plan: "PlannedChange", path: list[str]) -> None:
    """Say that a change has added an agent: its name may be mistyped."""
    if path[0] != "agents" or len(path) < 2:
        return
    if path[1] not in _agents(plan.before):
        others = ", ".join(name for name in _agents(plan.after) if name != path[1]) or "none"
        echo_text(f"There was no agent `{path[1]}`: this adds one (others: {others}).")


def _agents(content: "FileContent") -> list[str]:
    """Return the agents of a file's content. Without any section, there is the agent `main`."""
    agents = tomllib.loads(content.data.decode()).get("agents", {"main": {}})
    return list(agents) if isinstance(agents, dict) else []


def _print_restarts(plan: "PlannedChange") -> None:
    """Print what has to be restarted for the change to take effect."""
    for line in plan.needs_restart:
        echo(f"It takes effect after a restart: {line}.")
