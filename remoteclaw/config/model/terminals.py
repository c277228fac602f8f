"""The section `[terminals]`."""

from typing import Annotated, Literal

from pydantic import Field

from remoteclaw.config.model.section import Section
from remoteclaw.config.rights import BY_PEOPLE


class TerminalsConfig(Section):
    """Limits of terminals, in which agents' own programs run."""

    max: Annotated[int, BY_PEOPLE] = Field(default=6, ge=0, le=64)
    """The maximum number of terminals that are open on one host; 0 for none."""
    max_per_person: Annotated[int, BY_PEOPLE] = Field(default=4, ge=1, le=64)
    """The maximum number of open terminals that one person, or one token, has opened on a host."""
    opens_per_minute: Annotated[int, BY_PEOPLE] = Field(default=6, ge=1, le=600)
    """The number of terminals that one person may open per minute, with a burst of three."""
    max_load: Annotated[float, BY_PEOPLE] = Field(default=4, ge=0, le=1000)
    """The load average of the last minute, divided by the number of the host's processors, above
    which no terminal opens; 0 for no limit."""
    min_memory_mb: Annotated[int, BY_PEOPLE] = Field(default=500, ge=0, le=1_000_000)
    """Megabytes of available memory that the host needs to open a terminal."""
    idle_s: Annotated[float, BY_PEOPLE] = Field(default=1800, ge=60, le=7 * 86_400)
    """Seconds without activity and without viewers after which a terminal is parked: its program
    ends, and the conversation can be reopened."""
    waiting_s: Annotated[float, BY_PEOPLE] = Field(default=86_400, ge=60, le=7 * 86_400)
    """Like `idle_s`, for a terminal whose program waits for a person's answer."""
    handover_s: Annotated[float, BY_PEOPLE] = Field(default=60, ge=1, le=86_400)
    """Seconds that a terminal has to be idle and without viewers before a chat message parks it, so
    that the message is answered in the chat."""
    hold_s: Annotated[float, BY_PEOPLE] = Field(default=600, ge=5, le=86_400)
    """Seconds for which a terminal keeps its session while Redis or its host can't be reached. The
    terminal ends after 0.9 of this time, before another worker may take the session."""
    scrollback: Annotated[int, BY_PEOPLE] = Field(default=600, ge=0, le=10_000)
    """Rows that are kept after they leave the top of the screen. With 600, a terminal takes at most
    a megabyte of the gateway's memory."""
    cols: Annotated[int, BY_PEOPLE] = Field(default=120, ge=20, le=500)
    """The width of a terminal, in columns, until a person's window resizes it."""
    rows: Annotated[int, BY_PEOPLE] = Field(default=32, ge=5, le=200)
    """The height of a terminal, in rows, until a person's window resizes it."""
    clipboard: Annotated[Literal["ask", "off"], BY_PEOPLE] = "ask"
    """What happens to text that a program copies to the clipboard: `ask` shows the viewer a button
    to copy it, `off` discards it."""
