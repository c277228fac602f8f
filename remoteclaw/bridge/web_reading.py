"""Whether the use of a tool reads what others have written, such as a page of the web.

What a turn has read may contain instructions, so such a turn may not write to the agent's memory by
itself. A tool counts rather once too often.
"""

import re

from remoteclaw.events import ToolUseEvent
from remoteclaw.messages import OWN_SERVER

#: Our own tools that return texts of other chats.
_OF_OTHER_CHATS = ("message_read", "sessions_history")
#: Names of tools, or titles, of which one part tells that they read the web. Tools of MCP servers
#: begin with `mcp_`, or with any other name: most of them read something elsewhere. An agent that
#: the agent starts may read anything, and not every CLI reports what it does.
_NAME = re.compile(
    r"^mcp_|^(?:task|agent|\w+_agent)$|web|brows|fetch|http|search_?engine|crawl|scrape|"
    + "|".join(_OF_OTHER_CHATS),
    re.IGNORECASE,
)
#: ACP agents report a title in place of a name, and the title may be text of the model.
_TITLE = re.compile(r"\s|://")
#: Arguments that name a page, or a program that reads one or what others have committed.
_PAGE = re.compile(
    r"https?://|(?<![\w-])"
    r"(?:curl|wget|lynx|w3m|links|gh|git(?:\s+-c\s+\S+|\s+-\S+)*\s+(?:clone|pull|fetch|submodule))"
    r"(?![\w-])",
    re.IGNORECASE,
)
_ARGUMENTS = ("command", "cmd", "url", "uri", "query", "prompt", "code", "title")


def reads_others(event: ToolUseEvent) -> bool:
    """Whether a use of a tool reads the web, an MCP server, or other chats."""
    if OWN_SERVER in event.tool_name and not _TITLE.search(event.tool_name):
        return event.tool_name.endswith(_OF_OTHER_CHATS)
    if _NAME.search(event.tool_name):
        return True
    return any(_PAGE.search(str(event.input.get(name, ""))) for name in _ARGUMENTS)
