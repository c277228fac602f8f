"""Messages: the types that cross from chat to agent and back.

Types that cross a process boundary are pydantic models; those inside one process are frozen
dataclasses.
"""

# The public names of the package; each is listed in the `__all__` of its module.
from remoteclaw.messages import chat, code, mcp, mentions, result, session, turn
from remoteclaw.messages.chat import *  # noqa: F403
from remoteclaw.messages.code import *  # noqa: F403
from remoteclaw.messages.mcp import *  # noqa: F403
from remoteclaw.messages.mentions import *  # noqa: F403
from remoteclaw.messages.result import *  # noqa: F403
from remoteclaw.messages.session import *  # noqa: F403
from remoteclaw.messages.turn import *  # noqa: F403

__all__: list[str] = []
__all__ += chat.__all__
__all__ += code.__all__
__all__ += mcp.__all__
__all__ += mentions.__all__
__all__ += result.__all__
__all__ += session.__all__
__all__ += turn.__all__
