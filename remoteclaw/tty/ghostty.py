"""The library libghostty, which emulates terminals. The only import of pyghostty."""

import functools
import importlib.util
from typing import Any, Final

from remoteclaw.errors import TerminalsOff

#: What a person is told where the library isn't.
_OFF = (
    "Terminals are off, because the emulator that reads their screens is not installed: run"
    " scripts/setup, or pip install 'remoteclaw[terminals]'; it needs Linux with glibc on x86-64 or"
    " aarch64."
)
#: The types that are used here. cffi reads all of the library's names again for each type that it
#: is given as a text, which takes 12 ms; so it is given all in one.
_TYPES: Final = """
    GhosttyCell GhosttyCellContentTag GhosttyCellWide GhosttyCellsView GhosttyColorPaletteIndex
    GhosttyColorRgb GhosttyGridRef GhosttyKeyEncoder GhosttyKeyEvent GhosttyPointS
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
        raise TerminalsOff(_OFF) from error
    return ffi, lib


def problem() -> str | None:
    """Return why there are no terminals on this machine, without loading anything."""
    return None if importlib.util.find_spec("pyghostty") else _OFF


def check(result: int) -> None:
    """Raise if the library refuses a call of ours, which only a lack of memory explains."""
    if result:
        raise MemoryError(f"libghostty answered {result}")


def type_of(name: str) -> Any:
    """Return a type by its name."""
    return _pointers()[name].item


def new(name: str, value: Any = None) -> Any:
    """Return a place for a value of a type, or an array of that type."""
    pointer = _pointers()[name]
    return library()[0].new(pointer.item if pointer.item.kind == "array" else pointer, value)


@functools.cache
def _pointers() -> dict[str, Any]:
    """Return the types of pointers to all types."""
    forms = (name.replace("[", "(*)[") if name.endswith("]") else f"{name}*" for name in _TYPES)
    together = library()[0].typeof(f"void(*)({', '.join(forms)})")
    return dict(zip(_TYPES, together.args, strict=True))
