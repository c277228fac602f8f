"""Loads the configuration: one TOML file, and overrides in environment variables.

The file is `$REMOTECLAW_CONFIG`, else `remoteclaw.toml` in the state directory. It may be absent.
The variable `REMOTECLAW__SECTION__KEY` overrides one value; a variable with a single underscore in
the place of a double one is ignored.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from remoteclaw.config.budgets import check_budgets
from remoteclaw.config.model import ChannelConfig, Config, Price
from remoteclaw.config.requests import check_chats
from remoteclaw.config.rights import section_named, setting_paths
from remoteclaw.config.tool_lists import check_tools, quoted
from remoteclaw.errors import ConfigError, did_you_mean
from remoteclaw.extensions import extension_names
from remoteclaw.profiles import CHANNELS, channel_of

#: The channels of `remoteclaw send` and, in the past, of the terminal have no settings.
NOT_CONFIGURED = (
    "[channels.{name}] has no settings: your chat in a terminal and with `send` is the one on the "
    "page, where you are the person `admin.NAME`. Move what you need to [channels.web], and remove "
    "[channels.{name}]."
)
#: A model's name whose dot TOML takes for the border between two sections.
UNQUOTED = '[prices.{model}] needs quotes, because its name has a dot: write [prices."{model}"].'
#: What is wrong with a value, by the type of pydantic's error.
_BY_TYPE = {
    "dict_type": "must be a table, not a value",
    "model_type": "must be a table, not a value",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
}


def load_config(file: Path, environment: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration in a file, with the overrides.

    Raises `ConfigError` with one line about the first mistake. It names the backup of an earlier
    valid version if there is one.
    """
    content = read_file(file, environment)
    try:
        return parse_config(content, file, environment)
    except ConfigError as error:
        backup = backup_of(file)
        if not backup.exists():
            raise
        raise ConfigError(f"{error} An earlier valid version is {backup}.") from None


def backup_of(file: Path) -> Path:
    """Return the path of the backup of a configuration file, which may be absent."""
    target = Path(os.path.realpath(file))
    return target.with_name(f"{target.name}.bak")


def read_file(file: Path, environment: Mapping[str, str] = os.environ) -> bytes:
    """Return the content of a file, empty if it is absent.

    Raises `ConfigError` if it can't be read, or if it is absent and `REMOTECLAW_CONFIG` names it.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        if environment.get("REMOTECLAW_CONFIG"):
            raise ConfigError(f"REMOTECLAW_CONFIG names {file}, which does not exist.") from None
        return b""
    except OSError as error:
        raise ConfigError(f"{file} can't be read: {error.strerror}.") from None


def parse_config(content: bytes, file: Path, environment: Mapping[str, str]) -> Config:
    """Return the configuration that `content` and the overrides define.

    Raises `ConfigError` with one line about the first mistake; `file` is the path in its text.
    """
    tree = parse_toml(content, file)
    sources = _override(tree, environment)
    path: tuple[str, ...] = ()
    try:
        channels: Any = tree.get("channels")
        for name, table in [*channels.items()] if isinstance(channels, dict) else ():
            if name in ("cli", "console"):
                where = _source(["channels", name], sources) or file
                raise ConfigError(f"{where}: {NOT_CONFIGURED.format(name=name)}")
            if isinstance(table, dict):  # the channel's name decides which model it has
                path = ("channels", name)
                channels[name] = ChannelConfig.named(name).model_validate(table)
        path = ()
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error, str(file), sources, path)) from None
    check_tools(config)
    check_chats(config)
    check_budgets(config)
    return config


def parse_toml(content: bytes, file: Path) -> dict[str, Any]:
    """Return the content of a TOML file as a tree; raises `ConfigError` if it is invalid."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from None


def overrides(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of the variables that override the file."""
    return sorted(name for name in environment if name.startswith("REMOTECLAW__"))


def _override(tree: dict[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """Put the values of REMOTECLAW__… into the tree; return each variable by its dotted path."""
    sources = {}
    for name in overrides(environment):
        path: list[str] = []
        branch = tree
        for part in name.split("__")[1:]:
            if path:
                branch = branch.setdefault(path[-1], {})
            if not isinstance(branch, dict):
                raise ConfigError(f"{name} can't be used: {path[-1]!r} is not a section.")
            # Names of variables, headers, senders and groups keep their case; keys of settings are
            # lower case.
            keep = path[-1:] in (["env"], ["headers"], ["senders"], ["groups"])
            path.append(part if keep else _existing(branch, part))
        branch[path[-1]] = _value(environment[name])
        sources[".".join(path)] = name
    return sources


def _existing(branch: Mapping[str, Any], part: str) -> str:
    """Return the key of `branch` that equals `part` in another case, else `part` in lower case."""
    return next((key for key in branch if key.lower() == part.lower()), part.lower())


def _value(text: str) -> Any:
    """Return a variable's value: a list or a table if it has the TOML form of one, else the text.

    The model turns texts into numbers and booleans.
    """
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(
    error: ValidationError, file: str, sources: Mapping[str, str], section: tuple[str, ...] = ()
) -> str:
    """Return one line about the first mistake: where it is, what it is, and what to write."""
    first = error.errors()[0]
    path = [str(part)[:100] for part in (*section, *first["loc"])]
    where = _source(path, sources) or file
    if model := _unquoted_model(path, first["input"]):
        return f"{where}: {UNQUOTED.format(model=model)}"
    *sections, key = _numbered((*section, *first["loc"])) or [""]
    shown = f"[{'.'.join(sections)}] " if sections else ""
    if first["type"] == "extra_forbidden":
        if path[0] == "channels" and channel_of(path[1]) is None:
            channels = (*CHANNELS, *extension_names("channel"))
            if near := did_you_mean(path[1], channels, otherwise=""):
                return f"{where}: There is no channel {path[1]!r}; {near}"
        valid = _valid_keys(path[:-1])
        hint = did_you_mean(key, valid, otherwise=f"it has {', '.join(map(repr, valid))}.")
        return f"{where}: {shown}has no key {key!r}; {hint}"
    if first["type"] == "missing":
        return f"{where}: {shown}{key} is missing."
    why = _BY_TYPE.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] == "tuple_type":
        why = f"must be a list: write [{_entry(path, first['input'])}]"
    return f"{where}: {shown}{key} is not valid: {why}."


def _entry(path: list[str], given: Any) -> str:
    """Return what is in the place of a list as an entry of one, or "…" if it is secret."""
    if not isinstance(given, str) or len(given) > 100:
        return quoted("…")
    tree: Any = given
    for part in reversed(path):
        tree = {part: tree}
    *_, (setting, _) = setting_paths(Config, tree)
    is_shown = setting.declaration is not None and not setting.declaration.secret
    return quoted(given if is_shown else "…")


def _unquoted_model(path: list[str], given: Any) -> str | None:
    """Return the name of a model with a dot of which TOML has made sections; None if it has not.

    `given` is the value of the key that is not known, or the section in which one is missing.
    """
    if path[:1] != ["prices"] or len(path) != 3 or not isinstance(given, dict):
        return None
    names = [path[1]] if path[2] in Price.model_fields else path[1:]
    while inner := next((item for item in given.items() if isinstance(item[1], dict)), None):
        name, given = inner
        names.append(name)
    return ".".join(names) if len(names) > 1 else None


def _numbered(path: Sequence[str | int]) -> list[str]:
    """Return a path for people: a section's position in a list is a part of the list's name."""
    shown: list[str] = []
    for position, part in enumerate(path):
        if isinstance(part, int) and shown and _valid_keys([*map(str, path[: position + 1])]):
            shown[-1] += f" number {part + 1}"
        else:
            shown.append(str(part)[:100])
    return shown


def _source(path: list[str], sources: Mapping[str, str]) -> str | None:
    """Return the variable that has set the value at a path, a part of it, or a section around it.

    None if the value is from the file.
    """
    dotted = ".".join(path) + "."
    related = (
        name
        for overridden, name in sources.items()
        if f"{overridden}.".startswith(dotted) or dotted.startswith(f"{overridden}.")
    )
    return next(related, None)


def _valid_keys(sections: list[str]) -> list[str]:
    """Return the valid keys of the section at a path."""
    model: Any = Config
    for section in sections:
        if _is_section(model):
            field = model.model_fields.get(section)
            annotation = field.annotation if field else None
            parts = get_args(annotation)
            # The type of an optional section is a union with None.
            model = parts[0] if type(None) in parts else annotation
        else:
            # A table of named sections, such as the agents: `section` is a name in it. Or a list of
            # sections: it is a position.
            inner = next(filter(_is_section, get_args(model)), None)
            model = section_named(inner, section) if inner else None
    return list(model.model_fields) if hasattr(model, "model_fields") else []


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
