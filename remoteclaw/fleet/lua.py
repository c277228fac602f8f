"""The Lua scripts: their sources, and their keys and arguments by name.

Each script declares its keys and arguments in its head: `-- keys: state, call?, blobs*` and
`-- args: …`. A name with `?` is optional, and nil in the script if left out; a name with `*` is a
list. They are passed to Redis by position: the fixed ones, the length of each list, then the lists.
`-- uses: replies` inserts `_replies.lua` between the prelude, which all scripts have, and the
script.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from remoteclaw.fleet.keys import NO_KEY

#: The value of an argument. The script gets it as text, a bool as 1 or 0, and None as nil.
Argument = str | bytes | int | float | None
Arguments = Mapping[str, Argument | Sequence[Argument]]
Keys = Mapping[str, str | Sequence[str] | None]

#: The source of each script, by name. A process reads them when it starts, so that an upgrade of
#: the files does not change the scripts of a running process.
_SOURCES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (Path(__file__).parent / "scripts").glob("*.lua")
}
#: The patterns of a script's head, compiled before work-horses are forked.
_HEADS = {
    kind: re.compile(rf"^-- {kind}: ((?:.*,\n--  )*.*)$", re.MULTILINE) for kind in ("keys", "args")
}
_NAMES = re.compile(r"(\w+)([?*]?)")
_USES = re.compile(r"^-- uses: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a script's keys, or of its arguments."""

    fixed: tuple[str, ...]
    lists: tuple[str, ...]
    optional: frozenset[str]
    required: frozenset[str]

    @classmethod
    def parse(cls, source: str, kind: str) -> Self:
        """Return the names in a script's head; `kind` is "keys" or "args"."""
        head = _HEADS[kind].search(source)
        names = _NAMES.findall(head[1]) if head else []
        return cls(
            fixed=tuple(name for name, mark in names if mark != "*"),
            lists=tuple(name for name, mark in names if mark == "*"),
            optional=frozenset(name for name, mark in names if mark == "?"),
            required=frozenset(name for name, mark in names if mark != "?"),
        )

    def check(self, script: str, given: Mapping[str, object]) -> None:
        """Raise TypeError unless `given` has all required names and no unknown ones."""
        names = given.keys()
        if wrong := (names ^ self.required) - (names & self.optional):
            raise TypeError(f"{script}.lua: missing or unknown names: {sorted(wrong)}")

    def unpacked(self, table: str, source: str) -> str:
        """Return Lua code that defines `table` with the fixed names, from the list `source`."""
        given = "given_key" if source == "KEYS" else "given"
        fields = ", ".join(
            f"{name} = {given}({source}[{position}])"
            if name in self.optional
            else f"{name} = {source}[{position}]"
            for position, name in enumerate(self.fixed, 1)
        )
        return f"local {table} = {{{fields}}}\n"


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script."""

    name: str
    keys: _Names
    args: _Names
    source: str
    """The Lua code that Redis runs: shared parts, tables of keys and arguments, body."""

    @classmethod
    @functools.cache
    def named(cls, name: str) -> Self:
        """Return the script in `scripts/NAME.lua`."""
        body = _SOURCES[name]
        uses = _USES.search(body)
        parts = ["_prelude", *(f"_{part}" for part in (uses[1].split(", ") if uses else ()))]
        names, values = _Names.parse(body, "keys"), _Names.parse(body, "args")
        source = "".join([*map(_SOURCES.__getitem__, parts), _unpacking(names, values), body])
        return cls(name, names, values, source)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all scripts."""
        return sorted(name for name in _SOURCES if not name.startswith("_"))

    def pack(
        self, keys: Keys, args: Arguments
    ) -> tuple[list[str], list[str | bytes | int | float]]:
        """Return KEYS and ARGV; raise TypeError for missing or unknown names."""
        self.keys.check(self.name, keys)
        self.args.check(self.name, args)
        names = [str(keys.get(name) or NO_KEY) for name in self.keys.fixed]
        values = [_value(args.get(name)) for name in self.args.fixed]
        key_lists = [keys[name] or () for name in self.keys.lists]
        arg_lists = [args[name] for name in self.args.lists]
        for elements in (*key_lists, *arg_lists):
            assert isinstance(elements, Sequence), "the name is declared with a *"
            values.append(len(elements))
        for each in key_lists:
            names.extend(each)
        for elements in arg_lists:
            assert isinstance(elements, Sequence), "the name is declared with a *"
            values.extend(map(_value, elements))
        return names, values


def _unpacking(keys: _Names, args: _Names) -> str:
    """Return Lua code that unpacks KEYS and ARGV into the tables `keys` and `args`."""
    lines = [keys.unpacked("keys", "KEYS"), args.unpacked("args", "ARGV")]
    counts = [f"ARGV[{len(args.fixed) + number}]" for number in range(1, len(keys.lists) + 1)]
    if keys.lists:
        left = ", ".join(f"keys.{name}" for name in keys.lists)
        lines.append(f"{left} = lists(KEYS, {len(keys.fixed)}, {{{', '.join(counts)}}})\n")
    if args.lists:
        (name,) = args.lists
        first = len(args.fixed) + len(counts) + 1
        lines.append(f"args.{name} = lists(ARGV, {first}, {{ARGV[{first}]}})\n")
    return "".join(lines)


def _value(value: object) -> str | bytes | int | float:
    match value:
        case None:
            return ""
        case bool():
            return int(value)
        case str() | bytes() | int() | float():
            return value
    raise TypeError(f"an argument must be text or a number, not {type(value).__name__}")
