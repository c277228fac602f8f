"""The section `[terminals]`."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.config.model.section import Section
from remoteclaw.config.rights import BY_PEOPLE


class TerminalsConfig(Section):
    """Agents' own programs in terminals: how many, how long, how large."""

    max: Annotated[int, BY_PEOPLE] = Field(default=6, ge=0, le=64)
    """How many may be open on one host; 0 for none."""
    max_per_person: Annotated[int, BY_PEOPLE] = Field(default=4, ge=1, le=64)
    """How many of them one person, or one token, may have opened."""
    opens_per_minute: Annotated[int, BY_PEOPLE] = Field(default=6, ge=1, le=600)
    """How often one person may open one; three more at once."""
    max_load: Annotated[float, BY_PEOPLE] = Field(default=4, ge=0, le=1000)
    """The load of the last minute, for each of the host's processors, beyond which none is opened;
    0 for any."""
    min_memory_mb: Annotated[int, BY_PEOPLE] = Field(default=500, ge=0, le=1_000_000)
    """Megabytes of memory that have to be available to open one."""
    idle_s: Annotated[float, BY_PEOPLE] = Field(default=1800, ge=60, le=7 * 86_400)
    """Seconds after which one that is idle, and that nobody watches, is parked."""
    waiting_s: Annotated[float, BY_PEOPLE] = Field(default=86_400, ge=60, le=7 * 86_400)
    """The same for one that asks a person something."""
    handover_s: Annotated[float, BY_PEOPLE] = Field(default=60, ge=1, le=86_400)
    """Seconds for which it has to be idle, with nobody watching, until a chat message parks it to
    be answered."""
    hold_s: Annotated[float, BY_PEOPLE] = Field(default=600, ge=5, le=86_400)
    """Seconds for which a terminal keeps its session without Redis, or a host without a sign of
    life; it is ended after 0.9 of them."""
    scrollback: Annotated[int, BY_PEOPLE] = Field(default=600, ge=0, le=10_000)
    """Rows that are kept above the screen: with 600, a terminal takes a megabyte of the gateway at
    most."""
    cols: Annotated[int, BY_PEOPLE] = Field(default=120, ge=20, le=500)
    """Columns until a person's window says otherwise."""
    rows: Annotated[int, BY_PEOPLE] = Field(default=32, ge=5, le=200)
    """Rows until then."""
    clipboard: Annotated[Literal["ask", "off"], BY_PEOPLE] = "ask"
    """What becomes of a text that a program offers for the clipboard: a button, or nothing."""
