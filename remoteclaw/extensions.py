"""What other packages add: channels and runtimes, registered as entry points.

A package names a channel in the group `remoteclaw.channels`, and a runtime in
`remoteclaw.runtimes`. It is imported only if the configuration names what it adds.
"""

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from remoteclaw import __version__
from remoteclaw.errors import ConfigError
from remoteclaw.protocols import Runtime

Kind = Literal["channel", "runtime"]
#: The groups of entry points.
GROUPS: dict[Kind, str] = {"channel": "remoteclaw.channels", "runtime": "remoteclaw.runtimes"}


@functools.cache
def extensions(kind: Kind) -> tuple[EntryPoint, ...]:
    """Return the entry points of a kind, as they were when this process first asked."""
    return tuple(entry_points(group=GROUPS[kind]))


def extension_names(kind: Kind) -> list[str]:
    """Return the names under which other packages add something of a kind."""
    return [entry.name for entry in extensions(kind)]


def by_package() -> dict[str, list[tuple[Kind, EntryPoint]]]:
    """Return all that other packages add, by the package's name and version."""
    found: dict[str, list[tuple[Kind, EntryPoint]]] = {}
    for kind in GROUPS:
        for entry in extensions(kind):
            found.setdefault(package_of(entry), []).append((kind, entry))
    return dict(sorted(found.items()))


def package_of(entry: EntryPoint) -> str:
    """Return the name and version of the package that has registered an entry point."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"


@functools.cache
def load_extension(kind: Kind, name: str) -> Any:
    """Import what is registered as a name; return None if nothing is.

    Raises `ConfigError` if it can't be used.
    """
    found = [entry for entry in extensions(kind) if entry.name == name]
    if not found:
        return None
    packages = " and ".join(sorted(map(package_of, found)))
    about = f"The {kind} {name!r} of {packages}"
    if len(found) > 1:
        raise ConfigError(f"{about} is ambiguous: uninstall one of these packages.")
    (entry,) = found
    if wanted := _unmet(entry):
        raise ConfigError(
            f"{about} needs {wanted}, and this is {__version__}: install versions that fit."
        )
    try:
        return entry.load()
    except Exception as error:  # noqa: BLE001 - the code is another package's
        raise ConfigError(f"{about} {cant_load(entry.value, error)}") from None


def load_runtime(name: str) -> type[Runtime] | None:
    """Import the runtime that another package registers as a name; return None if none does.

    Raises `ConfigError` if it can't be used.
    """
    made = load_extension("runtime", name)
    if made is None:
        return None
    try:
        runtime = made()
    except Exception as error:  # noqa: BLE001 - the code is another package's
        (entry,) = (entry for entry in extensions("runtime") if entry.name == name)
        raise ConfigError(f"The runtime {name!r} {cant_load(entry.value, error)}") from None
    if not isinstance(runtime, Runtime):
        raise ConfigError(f"The runtime {name!r} can't be used: {made!r} is no Runtime.")
    if runtime.name != name:
        raise ConfigError(
            f"The runtime {name!r} can't be used: its class has the name {runtime.name!r}."
        )
    return made  # type: ignore[no-any-return]


def cant_load(value: str, error: Exception) -> str:
    """Return the end of a sentence about what could not be imported, with the reason."""
    why = " ".join(f"{type(error).__name__}: {error}".split())
    return f"can't be loaded from {value}: {why.rstrip('.')}."


def _unmet(entry: EntryPoint) -> str:
    """Return what an entry point's package requires of RemoteClaw, empty if this version fits."""
    from packaging.requirements import InvalidRequirement, Requirement

    for line in (entry.dist.requires if entry.dist else None) or ():
        try:
            requirement = Requirement(line)
        except InvalidRequirement:  # pip reports it
            continue
        if requirement.name.lower() != "remoteclaw":
            continue
        applies = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if applies and not requirement.specifier.contains(__version__, prereleases=True):
            return f"remoteclaw{requirement.specifier}"
    return ""
