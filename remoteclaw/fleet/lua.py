"""The Lua scripts: their sources, and their keys, arguments and results by name.

Each script declares its names in its head: `-- keys: state, call?, blobs*`, `-- args: …` and
`-- result: …`. A name with `?` is optional, and nil in the script if left out; a name with `*` is
a list. Redis gets and returns the values by position: the fixed ones, the length of each list, then
the lists.

A key has its name from `keys.py`. `sid` fills all keys of a session, `provider` and `account` all
keys of an account, and `branch_sid` the key `branch_state`; any other key is given by its name.
A script returns its result as `result{…}`, and a list of rows, each as `row{…}`, as the last field
of its result or in place of one. `-- row: …` declares their names.
`-- uses: replies` inserts `_replies.lua` between the prelude, which all scripts have, and the
script.
"""

import functools
import inspect
import re
from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from remoteclaw.fleet import keys

#: The value of an argument. The script gets it as text, a bool as 1 or 0, and None as nil.
Argument = str | bytes | int | float | None
#: What a script is given by name: its arguments, its keys, and the values that fill keys.
Value = Argument | Sequence[Argument]
Values = Mapping[str, Any]

#: The source of each script, by name. A process reads them when it starts, so that an upgrade of
#: the files does not change the scripts of a running process.
_SOURCES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (Path(__file__).parent / "scripts").glob("*.lua")
}
#: The patterns of a script's head, compiled before work-horses are forked.
_HEADS = {
    kind: re.compile(rf"^-- {kind}: ((?:.*,\n--  )*.*)$", re.MULTILINE)
    for kind in ("keys", "args", "result", "row")
}
_NAMES = re.compile(r"(\w+)([?*]?)")
_USES = re.compile(r"^-- uses: (.*)$", re.MULTILINE)
#: The parameters of those functions in `keys.py` that are called here.
_FILLS = (("sid",), ("provider", "account"), ("request_id",))


@dataclass(frozen=True, slots=True)
class Name:
    """A key or an argument in a script's head."""

    text: str
    mark: str
    """`?` for an optional value, `*` for a list, else empty."""
    pattern: str = ""
    """The key, with `%s` for each of `fills`; empty for an argument or a key without its own."""
    fills: tuple[str, ...] = ()
    """The names of the values that fill the key."""
    is_given: bool = True
    """Whether it can be given by its name; False for a key with the name of another value."""

    def of(self, values: Values) -> Any:
        """Return the value; raise KeyError if it is missing."""
        if self.is_given and (not self.pattern or self.text in values):
            return values.get(self.text) if self.mark == "?" else values[self.text]
        if not self.fills:
            return self.pattern
        filled = tuple([values.get(name) for name in self.fills])
        if None in filled:
            if self.mark != "?":
                raise KeyError(self.text)
            return None
        return self.pattern % filled


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script."""

    name: str
    source: str
    """The Lua code that Redis runs: shared parts, code for the names in its head, body."""
    keys: tuple[Name, ...]
    key_lists: tuple[Name, ...]
    args: tuple[Name, ...]
    arg_lists: tuple[Name, ...]
    known: frozenset[str]
    """The names of everything that the script can be given."""
    result: Any
    """The type of the result, a named tuple; None if it has no names."""
    row: Any
    """The type of a row, a named tuple; None without rows."""

    @classmethod
    @functools.cache
    def named(cls, name: str) -> Self:
        """Return the script in `scripts/NAME.lua`."""
        body = _SOURCES[name]
        uses = _USES.search(body)
        parts = ["_prelude", *(f"_{part}" for part in (uses[1].split(", ") if uses else ()))]
        args = [Name(text, mark) for text, mark in _names(body, "args")]
        texts = {arg.text for arg in args}
        named_keys = [_key(text, mark, texts) for text, mark in _names(body, "keys")]
        for key in named_keys:
            texts.update(key.fills or (), (key.text,))
        divided = (*_divided(named_keys), *_divided(args))
        types, makers = [], []
        for kind in ("result", "row"):
            fields = [text for text, _ in _names(body, kind)]
            types.append(namedtuple(kind, fields) if fields else None)
            values = ", ".join(f"it.{field} or false" for field in fields)
            makers.append(f"local function {kind}(it) return {{{values}}} end\n" if fields else "")
        source = [*makers, *map(_SOURCES.__getitem__, parts), _unpacking(*divided), body]
        return cls(name, "".join(source), *divided, frozenset(texts), *types)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all scripts."""
        return sorted(name for name in _SOURCES if not name.startswith("_"))

    def pack(self, values: Values) -> tuple[list[str], list[str | bytes | int | float]]:
        """Return KEYS and ARGV; raise TypeError for missing or unknown names."""
        if not values.keys() <= self.known:
            raise TypeError(f"{self.name}.lua: unknown: {sorted(values.keys() - self.known)}")
        try:
            names = [key.of(values) or keys.NO_KEY for key in self.keys]
            packed = [_value(arg.of(values)) for arg in self.args]
            key_lists = [key.of(values) for key in self.key_lists]
            arg_lists = [arg.of(values) for arg in self.arg_lists]
        except KeyError as missing:
            raise TypeError(f"{self.name}.lua: missing: {missing}") from None
        packed += [len(each) for each in (*key_lists, *arg_lists)]
        for each in key_lists:
            names += each
        for each in arg_lists:
            packed += map(_value, each)
        return names, packed

    def unpack(self, reply: Any) -> Any:
        """Return a reply with the names of its values, and its texts decoded.

        Values within lists, such as the entries of a stream, stay bytes.
        """
        if self.row:
            *fields, rows = reply if self.result else [reply]
            rows = [self.row(*map(_text, row)) for row in rows]
            return self.result(*map(_text, fields), rows) if self.result else rows
        return self.result(*map(_text, reply)) if self.result else _text(reply)


def _names(source: str, kind: str) -> list[tuple[str, str]]:
    """Return the names after `-- KIND:` in a script's head, each with its mark."""
    head = _HEADS[kind].search(source)
    return _NAMES.findall(head[1]) if head else []


def _key(text: str, mark: str, args: Collection[str]) -> Name:
    """Return a key of a script that has the arguments `args`."""
    prefix, name = "", "" if mark == "*" else text
    while name:
        constant, function = getattr(keys, name.upper(), None), getattr(keys, name, None)
        if isinstance(constant, str):
            return Name(text, mark, constant, is_given=text not in args)
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters.values()
            fills = tuple(each.name for each in parameters if each.default is each.empty)
            if fills in _FILLS:
                pattern = function(*["%s"] * len(fills))
                filled = tuple(prefix + each for each in fills)
                return Name(text, mark, pattern, filled, text not in {*args, *filled})
        first, _, name = name.partition("_")
        prefix += f"{first}_"
    return Name(text, mark)


def _divided(names: Collection[Name]) -> tuple[tuple[Name, ...], tuple[Name, ...]]:
    """Return the fixed values among `names`, and the lists."""
    lists = tuple(name for name in names if name.mark == "*")
    return tuple(name for name in names if name.mark != "*"), lists


def _unpacking(
    fixed_keys: Sequence[Name],
    key_lists: Sequence[Name],
    fixed_args: Sequence[Name],
    arg_lists: Sequence[Name],
) -> str:
    """Return Lua code that unpacks KEYS and ARGV into the tables `keys` and `args`."""
    lines = [
        _table("keys", "KEYS", "given_key", fixed_keys),
        _table("args", "ARGV", "given", fixed_args),
    ]
    count = len(fixed_args)  # the position after which the lengths of the lists are
    for table, source, names, start in (
        ("keys", "KEYS", key_lists, len(fixed_keys)),
        ("args", "ARGV", arg_lists, count + len(key_lists) + len(arg_lists)),
    ):
        lengths = [f"ARGV[{count + number}]" for number in range(1, len(names) + 1)]
        count += len(names)
        if names:
            left = ", ".join(f"{table}.{name.text}" for name in names)
            lines.append(f"{left} = lists({source}, {start}, {{{', '.join(lengths)}}})\n")
    return "".join(lines)


def _table(table: str, source: str, given: str, names: Sequence[Name]) -> str:
    fields = ", ".join(
        f"{name.text} = {given}({source}[{position}])"
        if name.mark == "?"
        else f"{name.text} = {source}[{position}]"
        for position, name in enumerate(names, 1)
    )
    return f"local {table} = {{{fields}}}\n"


def _text(value: Any) -> Any:
    """Return a text as str; what is no text, and damaged text, stays as it is."""
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def _value(value: object) -> str | bytes | int | float:
    match value:
        case None:
            return ""
        case bool():
            return int(value)
        case str() | bytes() | int() | float():
            return value
    raise TypeError(f"an argument must be text or a number, not {type(value).__name__}")
