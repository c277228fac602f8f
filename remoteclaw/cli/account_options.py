"""The account in the options of `channel add`, and the secrets that the user types."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from remoteclaw.cli.output import echo
from remoteclaw.config.model import SecretsConfig
from remoteclaw.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AccountOptions:
    """The options of an account."""

    values: Mapping[str, str | None]
    places: Mapping[str, Sequence[str]]
    """Where secrets are: `file` and `env`, each NAME=PLACE, or PLACE for an account with one."""
    may_ask: bool
    """Whether the user may be asked for a fact that no option gives."""

    def table(
        self, model: type[SecretsConfig], sign_up: str, lost: Collection[str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the account's settings without secrets, and the secrets that were typed.

        A secret is asked for if no option says where it is. If some are `lost`, only those are.
        """
        names = [name for name in model.secrets if name in (lost or model.secrets)]
        table = self.given(names)
        missing = [name for name in names if not {f"{name}_file", f"{name}_env"} & table.keys()]
        if missing and not self.may_ask:
            named = f"{missing[0]}=" if len(model.secrets) > 1 else ""
            raise ConfigError(
                f"Say where the {model.label_of(missing[0])} is: --token-file {named}FILE, or "
                f"--token-env {named}NAME."
            )
        if missing:
            echo(sign_up)
            for line in model.making if not lost else ():
                echo(line)
        return table, {name: self._asked(model, name) for name in missing}

    def given(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the settings that the options name, with the places of the secrets `names`."""
        options = ("api_url", "agent")
        table: dict[str, Any] = {
            name: value for name in options if (value := self.values.get(name)) is not None
        }
        for kind, given in self.places.items():
            for each in given:
                name, place = self._named(each, names, kind)
                # `up` may run in another directory.
                is_file = kind == "file"
                table[f"{name}_{kind}"] = (
                    str(Path(place).expanduser().absolute()) if is_file else place
                )
        return table

    def _named(self, option: str, names: Sequence[str], kind: str) -> tuple[str, str]:
        """Return the secret and the place that an option names."""
        name, equals, place = option.partition("=")
        if equals and name in names:
            return name, place
        if len(names) == 1:
            return names[0], option
        raise ConfigError(
            f"--token-{kind} {option}: write NAME=PLACE, with the NAME {' or '.join(names)}."
        )

    def _asked(self, model: type[SecretsConfig], name: str) -> str:
        """Return the secret that the user types or pastes, until it has the right form."""
        if how := model.secrets[name].how:
            echo(how)
        question = f"{model.label_of(name).capitalize()} (it is not shown)"
        while True:
            secret = str(click.prompt(question, default="", show_default=False)).strip(" \t'\"")
            echo("")  # the terminal has not shown Enter either
            if not (problem := model.problem_of(name, secret)):
                return secret
            if not sys.stdin.isatty():
                raise ConfigError(f"This is not {problem}.")
            echo(f"This is not {problem}.")


def fields_of(name: str) -> tuple[str, str, str]:
    """Return the fields of a secret."""
    return name, f"{name}_env", f"{name}_file"
