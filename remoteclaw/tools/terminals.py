"""Methods about terminals: opening one, watching it, typing into it, ending it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.tools.base import Id, Limit, Method, Params, Result

#: The least and most columns and rows of a terminal.
COLUMNS, ROWS = (20, 500), (5, 200)

Columns = Annotated[int, Field(ge=COLUMNS[0], le=COLUMNS[1])]
Rows = Annotated[int, Field(ge=ROWS[0], le=ROWS[1])]
Sid = Annotated[Id, Field(description="The session: its id or the start of it, its key or label.")]
Byte = Annotated[int, Field(ge=0, le=255)]
TerminalState = Literal["starting", "live", "parked", "exited", "crashed", "lost"]
KeyName = Annotated[str, Field(min_length=1, max_length=40)]


class Terminal(Result):
    """A terminal as people see it."""

    sid: str
    session_key: str
    agent: str
    name: str
    """What people call the session; empty where it has no name."""
    host: str
    """The host that has it."""
    state: TerminalState
    """`parked`: ended by us while it was idle; `exited`: it ended by itself; `lost`: its host is
    away for longer than its lease."""
    reason: str
    """Why it crashed, or what it needs while it starts; else empty."""
    activity: Literal["busy", "waiting", "idle", "unknown"]
    """What it does, as it says itself; only of one that is live."""
    waiting_for: str
    """What it asks a person, in a few words."""
    title: str
    opened_by: str
    writer: str
    """Who types; empty if it is free."""
    viewers: int
    cols: int
    rows: int
    conversation: str | None
    """The CLI's own id of the conversation."""
    resumable: bool
    """Whether it has ended, and can be opened again with all that was said."""
    since_ms: int
    opened_ms: int
    exit: int | None
    """The program's exit status, once it has ended by itself."""


class OpenTerminalParams(Params):
    agent: Id | None = None
    """The agent, for this host's own conversation with it; else the first that is configured."""
    name: Id = "main"
    """Which conversation with the agent: `main` is the one of `remoteclaw chat`."""
    session: Id | None = None
    """Instead of an agent: a session of any channel."""
    prompt: Annotated[str, Field(max_length=100_000)] = ""
    """Its first message; what the program could take for a command is refused."""
    subdir: Annotated[str | None, Field(max_length=1000)] = None
    """Where in the agent's workspace it begins."""
    cols: Columns | None = None
    rows: Rows | None = None
    force: bool = False
    """Stop a turn that is running instead of waiting for it."""
    resume: bool = False
    """Only with the conversation of the terminal before; `GONE` where that is not there."""


class OpenedTerminal(Result):
    terminal: Terminal
    created: bool
    """False where it is open already: nothing was started."""
    waits: bool
    """Whether a turn that runs has to end first."""


class TerminalParams(Params):
    sid: Sid


class ListTerminalsParams(Params):
    agent: Id | None = None
    state: TerminalState | None = None
    limit: Limit = 100


class TerminalList(Result):
    terminals: tuple[Terminal, ...]


class TerminalScreen(Result):
    """The screen of a terminal, or what differs from an earlier revision of it."""

    sid: str
    frame: dict[str, Any]
    """Rows of styled runs, cursor, title and modes: docs/terminals.md describes it."""
    text: str
    """The rows as plain text; empty in a frame that only has what differs."""


class HistoryParams(Params):
    sid: Sid
    start: Annotated[int, Field(ge=0)]
    """The first row; 0 is the oldest that is kept."""
    count: Annotated[int, Field(ge=1, le=500)] = 200


class HistoryRows(Result):
    sid: str
    start: int
    total: int
    rows: list[list[list[Any]]]


class InputParams(Params):
    sid: Sid
    text: Annotated[str, Field(min_length=1, max_length=100_000)]


class InputResult(Result):
    submitted: bool
    """True once the program has taken it."""
    run_id: str | None = None
    """Where no terminal is open: the message that it became, for `agent.wait`."""


class KeyParams(Params):
    sid: Sid
    bytes: Byte | Annotated[list[Byte], Field(min_length=1, max_length=64)] | None = None
    key: KeyName | Annotated[list[KeyName], Field(min_length=1, max_length=16)] | None = None


class TypeParams(Params):
    sid: Sid
    keys: Annotated[list[str], Field(min_length=1, max_length=256)]
    """In their order: what was typed as `t:TEXT`, and keys by their names as `k:NAME`."""


class PasteParams(Params):
    sid: Sid
    text: Annotated[str, Field(min_length=1, max_length=100_000)]


class ResizeParams(Params):
    sid: Sid
    cols: Columns
    rows: Rows


class TakeParams(Params):
    sid: Sid
    cols: Columns | None = None
    rows: Rows | None = None
    force: bool = False
    """Take it although another one types."""


class ParkParams(Params):
    sid: Sid
    force: bool = False
    """End it also when it is busy, or its activity is unknown."""


METHODS = (
    Method(
        name="terminals.open",
        description="Open a session's agent in its own terminal program: an entry that waits for "
        "the turn before it. Where one is open, nothing is started.",
        params=OpenTerminalParams,
        result=OpenedTerminal,
        scope="write",
        effect="session",
    ),
    Method(
        name="terminals.list",
        description="List the terminals that are open, and those of the last days.",
        params=ListTerminalsParams,
        result=TerminalList,
        scope="read",
    ),
    Method(
        name="terminals.get",
        description="Show one terminal.",
        params=TerminalParams,
        result=Terminal,
        scope="read",
    ),
    Method(
        name="terminals.screen",
        description="Show the whole screen of a terminal as it is now; for an hour after its end, "
        "on its host, the last one.",
        params=TerminalParams,
        result=TerminalScreen,
        scope="read",
    ),
    Method(
        name="terminals.watch",
        description="Send the screen of a terminal over this connection from now on, as the event "
        "`terminal.screen`: first the whole, then what differs. A revision that is missing means: "
        "watch again.",
        params=TerminalParams,
        result=Terminal,
        scope="read",
    ),
    Method(
        name="terminals.leave",
        description="Send it no more, and give the keyboard back.",
        params=TerminalParams,
        result=Terminal,
        scope="read",
    ),
    Method(
        name="terminals.history",
        description="Show rows that have left the screen of a terminal at its top.",
        params=HistoryParams,
        result=HistoryRows,
        scope="read",
    ),
    Method(
        name="terminals.input",
        description="Type a text into an idle terminal and submit it; answered once its program "
        "has taken it. Without a terminal, it is a message to the session.",
        params=InputParams,
        result=InputResult,
        scope="write",
        effect="session",
    ),
    Method(
        name="terminals.key",
        description="Press keys in a terminal, as bytes or by name.",
        params=KeyParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.type",
        description="Type in a terminal, as the one who has its keyboard.",
        params=TypeParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.paste",
        description="Paste a text into a terminal, as one piece.",
        params=PasteParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.resize",
        description="Give a terminal another size.",
        params=ResizeParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.take",
        description="Take a terminal's keyboard: one types at a time, and its window is the size.",
        params=TakeParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.park",
        description="End an idle terminal so that it can be opened again.",
        params=ParkParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.end",
        description="End a terminal, whatever it does.",
        params=TerminalParams,
        result=Terminal,
        scope="terminal",
        effect="session",
        destroys=True,
    ),
)
