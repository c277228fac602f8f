"""Methods about terminals: open, watch, type into and end them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from remoteclaw.messages import MAX_ATTACHMENTS, TerminalState
from remoteclaw.tools.base import Id, Limit, Method, Params, Result, SentFile

#: The minimum and the maximum number of a terminal's columns, and of its rows.
COLUMNS, ROWS = (20, 500), (5, 200)

#: The longest validity of a link, in minutes: a week.
MAX_SHARE_MINUTES = 7 * 24 * 60

Columns = Annotated[int, Field(ge=COLUMNS[0], le=COLUMNS[1])]
Rows = Annotated[int, Field(ge=ROWS[0], le=ROWS[1])]
Sid = Annotated[Id, Field(description="The session: its id or the start of it, its key or label.")]


class Terminal(Result):
    """The state of a terminal."""

    sid: str
    """The id of the terminal's session."""
    session_key: str
    agent: str
    name: str
    """The session's label or title; empty if it has neither."""
    host: str
    """The host on which the terminal's program runs, or has run."""
    state: TerminalState
    """`parked`: RemoteClaw has ended the idle program, and the terminal can be opened again.
    `exited`: the program has ended by itself. `lost`: the host hasn't been reachable for longer
    than the terminal's lease."""
    reason: str
    """Why the program crashed, or what it needs from a person to start; else empty."""
    activity: Literal["busy", "waiting", "idle", "unknown"]
    """What the program does, by its own reports, while the terminal is live. `waiting`: it waits
    for a person's answer."""
    waiting_for: str
    """What the program asks a person, in a few words."""
    title: str
    """The window title that the program has set."""
    draft: str = ""
    """The text that was typed and not sent, as the screen shows it; kept when the terminal ends."""
    opened_by: str
    """The name of the user who opened the terminal."""
    writer: str
    """The name of the user who has the keyboard; empty if it is free."""
    viewers: int
    """The number of connections that watch the terminal."""
    cols: int
    rows: int
    conversation: str | None
    """The CLI's own id of the conversation."""
    resumable: bool
    """Whether the terminal has ended, and can be opened again with its conversation."""
    since_ms: int
    """Since when `state` and `activity` are as they are, in milliseconds since 1970."""
    opened_ms: int
    """When the terminal was opened, in milliseconds since 1970."""
    exit: int | None
    """The exit status of a program that has ended by itself."""


class OpenTerminalParams(Params):
    agent: Id | None = None
    """The agent; else `main`, or the first agent if there is no `main`."""
    name: Id = "main"
    """The name of one of this host's conversations with the agent; `main` is that of
    `remoteclaw chat`."""
    session: Id | None = None
    """A session of any channel, instead of `agent` and `name`."""
    prompt: Annotated[str, Field(max_length=100_000)] = ""
    """The first message; a text that the program could take for a command is refused."""
    subdir: Annotated[str | None, Field(max_length=1000)] = None
    """The directory, relative to the agent's workspace, in which the program starts."""
    cols: Columns | None = None
    """The width of the terminal, in columns; else that of `[terminals]`."""
    rows: Rows | None = None
    """The height of the terminal, in rows; else that of `[terminals]`."""
    force: bool = False
    """Whether to stop a running turn of the session instead of waiting for its end."""
    resume: bool = False
    """Whether to refuse, with `GONE`, if the conversation of the session's last terminal can't be
    continued."""


class OpenedTerminal(Result):
    terminal: Terminal
    created: bool
    """False if the terminal was open already; nothing was started."""
    waits: bool
    """Whether the terminal waits for the end of a running turn."""


class TerminalParams(Params):
    sid: Sid


class ListTerminalsParams(Params):
    agent: Id | None = None
    """Only terminals of this agent."""
    state: TerminalState | None = None
    """Only terminals in this state."""
    limit: Limit = 100
    """The maximum number of terminals."""


class TerminalList(Result):
    terminals: tuple[Terminal, ...]
    """The terminals: open ones first, then the newest first."""


class TerminalScreen(Result):
    """The screen of a terminal, or the differences from an earlier revision of it."""

    sid: str
    frame: dict[str, Any]
    """Rows of styled runs, cursor, title and modes, as docs/terminals.md describes."""
    text: str
    """The rows as plain text; empty for a frame that has only differences."""


class TerminalHistoryParams(Params):
    sid: Sid
    start: Annotated[int, Field(ge=0)]
    """The index of the first row; 0 is the oldest row that is kept."""
    count: Annotated[int, Field(ge=1, le=500)] = 200
    """The maximum number of rows."""


class HistoryRows(Result):
    sid: str
    start: int
    """The index of the first returned row."""
    total: int
    """The number of rows that are kept."""
    rows: list[list[list[Any]]]
    """The rows, each as a list of styled runs, as in a frame."""


class TerminalSearchParams(Params):
    sid: Sid
    text: Annotated[str, Field(min_length=1, max_length=200)]
    """The text, which is no pattern; upper and lower case are equal."""


class FoundRow(Result):
    row: int
    """The number of the row: 0 is the oldest row of the scrollback, and the rows of the screen
    follow its last one."""
    count: int
    """How often the row has the text."""
    text: str
    """The text of the row."""


class TerminalSearchResult(Result):
    sid: str
    rows: tuple[FoundRow, ...]
    """The rows that have the text, oldest first: the newest 500."""
    total: int
    """How often these rows have the text."""
    more: bool
    """Whether older rows have the text, too."""
    scrollback: int
    """The number of rows in the scrollback."""


class DropParams(Params):
    sid: Sid
    files: Annotated[list[SentFile], Field(min_length=1, max_length=MAX_ATTACHMENTS)]
    """The files, which were uploaded to the terminal's session."""


class Dropped(Result):
    sid: str
    paths: tuple[str, ...]
    """Where the files are now, on the terminal's host."""


class TypeParams(Params):
    sid: Sid
    keys: Annotated[list[str], Field(min_length=1, max_length=256)]
    """What to type, in this order: `k:NAME` presses a key such as `enter` or `ctrl+c`, `t:TEXT`
    types a text, `b:HEX` sends bytes, such as `b:1b5b41`, and `p:TEXT` pastes a text in one piece,
    up to 1 MB in UTF-8."""
    submit: bool = False
    """Whether to submit the text of `keys`, which then is one `p:TEXT`, and to wait until the
    program has taken it. The program has to be idle. A text that the program could take for a
    command is refused."""
    clear: bool = False
    """With `submit`: whether to delete what is typed and not sent, and to close a menu, before."""


class Typed(Terminal):
    cleared: str | None = None
    """The text that `clear` has deleted, as the screen showed it."""


class ResizeParams(Params):
    sid: Sid
    cols: Columns
    """The new width, in columns."""
    rows: Rows
    """The new height, in rows."""


class TakeParams(Params):
    sid: Sid
    cols: Columns | None = None
    """The width of the caller's window, in columns."""
    rows: Rows | None = None
    """The height of the caller's window, in rows."""
    force: bool = False
    """Whether to take the keyboard from another user who has it."""


class ParkParams(Params):
    sid: Sid
    force: bool = False
    """Whether to end the program even if it is busy or its activity is unknown."""


class ShareParams(Params):
    sid: Sid
    minutes: Annotated[int, Field(ge=1, le=MAX_SHARE_MINUTES)] = 120
    """How long the link is valid."""


class GuestLink(Result):
    """A link with which guests watch a terminal."""

    id: str
    by: str
    """The name of the user who shares the terminal."""
    created_ms: int
    expires_ms: int
    """The end of its validity, in milliseconds since 1970; it also ends with the terminal, and with
    the token of the user who made it."""


class SharedTerminal(GuestLink):
    token: str
    """The guests' token, which can't be read again."""
    url: str
    """The link: it opens the page on which guests see the screen. The token is behind its `#`,
    which no browser sends to a server."""


class UnshareParams(Params):
    sid: Sid
    link: Id | None = None
    """The id of a link; all links of the terminal without it."""


class GuestLinks(Result):
    links: tuple[GuestLink, ...]
    """The valid links of the terminal, oldest first."""


METHODS = (
    Method(
        name="terminals.open",
        description="Open a terminal with the agent's own program on a session's conversation. It "
        "waits for the end of a running turn. If the terminal is open already, nothing is started.",
        params=OpenTerminalParams,
        result=OpenedTerminal,
        scope="write",
        effect="session",
    ),
    Method(
        name="terminals.list",
        description="List the open terminals, and those of the last eight days.",
        params=ListTerminalsParams,
        result=TerminalList,
        scope="read",
    ),
    Method(
        name="terminals.get",
        description="Show the state of a terminal.",
        params=TerminalParams,
        result=Terminal,
        scope="read",
    ),
    Method(
        name="terminals.screen",
        description="Show the whole screen of a terminal; for an hour after its end, the gateway "
        "of its host returns the last screen.",
        params=TerminalParams,
        result=TerminalScreen,
        scope="read",
    ),
    Method(
        name="terminals.watch",
        description="Send the screen of a terminal over this connection as events "
        "`terminal.screen`: first the whole screen, then the differences. If a revision is "
        "missing, call this method again.",
        params=TerminalParams,
        result=Terminal,
        scope="read",
    ),
    Method(
        name="terminals.leave",
        description="Stop watching a terminal, and release its keyboard.",
        params=TerminalParams,
        result=Terminal,
        scope="read",
    ),
    Method(
        name="terminals.history",
        description="Show rows that have left the top of a terminal's screen.",
        params=TerminalHistoryParams,
        result=HistoryRows,
        scope="read",
    ),
    Method(
        name="terminals.search",
        description="Search a text in a terminal: in its screen and in all rows above it that are "
        "kept.",
        params=TerminalSearchParams,
        result=TerminalSearchResult,
        scope="read",
    ),
    Method(
        name="terminals.drop",
        description="Store uploaded files where the agent can read them, and type their paths. The "
        "caller has to have the keyboard.",
        params=DropParams,
        result=Dropped,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.type",
        description="Press keys, type, send bytes and paste in a terminal, or submit a text to its "
        "idle program.",
        params=TypeParams,
        result=Typed,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.resize",
        description="Resize a terminal.",
        params=ResizeParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.take",
        description="Take the keyboard of a terminal. One user types at a time, and the size of "
        "that user's window is the terminal's size.",
        params=TakeParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.share",
        description="Make a link with which others watch this terminal's screen for a while, in a "
        "browser and without a token of their own. They see nothing else and send nothing.",
        params=ShareParams,
        result=SharedTerminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.links",
        description="List the valid links of a terminal, without their tokens.",
        params=TerminalParams,
        result=GuestLinks,
        scope="terminal",
    ),
    Method(
        name="terminals.unshare",
        description="Revoke a link of a terminal, or all of them; who watches by it is "
        "disconnected. Return the links that are left.",
        params=UnshareParams,
        result=GuestLinks,
        scope="terminal",
        effect="session",
        destroys=True,
    ),
    Method(
        name="terminals.park",
        description="End the program of an idle terminal; the terminal can be opened again.",
        params=ParkParams,
        result=Terminal,
        scope="terminal",
        effect="session",
    ),
    Method(
        name="terminals.end",
        description="End a terminal, even if its program is busy.",
        params=TerminalParams,
        result=Terminal,
        scope="terminal",
        effect="session",
        destroys=True,
    ),
)
