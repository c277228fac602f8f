"""The terminal emulator library libghostty. No other module imports pyghostty."""

import functools
import importlib.util
from typing import Any, Final

from remoteclaw.errors import TerminalsOff
from remoteclaw.host.installation import install_command

#: The C types in use. cffi parses the library's whole header again for each type that it looks up
#: by name, which takes 12 ms, so all types are looked up at once.
_TYPES: Final = """
    GhosttyCell GhosttyCellContentTag GhosttyCellWide GhosttyCellsView GhosttyColorPaletteIndex
    GhosttyColorRgb GhosttyFormatter GhosttyFormatterScreenExtra
    GhosttyFormatterTerminalExtra GhosttyFormatterTerminalOptions GhosttyGridRef
    GhosttyKeyEncoder GhosttyKeyEvent GhosttyPointS
    GhosttyRenderState GhosttyRenderStateCursor GhosttyRenderStateRowIterator
    GhosttySnapshotDecoder GhosttyString GhosttyStyle GhosttyTerminal GhosttyTerminalBellFn
    GhosttyTerminalClipboardWriteFn GhosttyTerminalDesktopNotificationFn GhosttyTerminalModeConfig
    GhosttyTerminalProgressReportFn GhosttyTerminalScreen GhosttyTerminalTitleChangedFn
    GhosttyTerminalUnknownSequenceFn GhosttyTerminalWritePtyFn
    bool char[128] size_t uint16_t uint32_t uint32_t[256] uint64_t uint8_t uint8_t* uint8_t[4000]
    uintptr_t
""".split()


@functools.cache
def library() -> tuple[Any, Any]:
    """Load the library, which takes 0.2 s and 10 MB. Raises `TerminalsOff`."""
    try:
        from pyghostty._ffi import ffi, lib
    except (ImportError, OSError) as error:
        raise TerminalsOff(_off()) from error
    return ffi, lib


def problem() -> str | None:
    """Return why this machine can't run terminals, None if it can. Does not load the library."""
    return None if importlib.util.find_spec("pyghostty") else _off()


def _off() -> str:
    """Return the message to a user where the library is not installed."""
    return (
        "Terminals are off, because the emulator that reads their screens is not installed: run "
        f"`{install_command('terminals')}`; it needs Linux with glibc on x86-64 or aarch64."
    )


def check(result: int) -> None:
    """Raise `MemoryError` if the library's result is not 0: our calls fail only without memory."""
    if result:
        raise MemoryError(f"libghostty answered {result}")


def type_of(name: str) -> Any:
    """Return the C type `name`."""
    return _pointers()[name].item


def new(name: str, value: Any = None) -> Any:
    """Allocate a value of the C type `name`, an array if `name` is an array type."""
    pointer = _pointers()[name]
    return library()[0].new(pointer.item if pointer.item.kind == "array" else pointer, value)


@functools.cache
def _pointers() -> dict[str, Any]:
    """Return the pointer type of each type in `_TYPES`."""
    declarations = (
        name.replace("[", "(*)[") if name.endswith("]") else f"{name}*" for name in _TYPES
    )
    function = library()[0].typeof(f"void(*)({', '.join(declarations)})")
    return dict(zip(_TYPES, function.args, strict=True))
