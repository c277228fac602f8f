"""The protocols between the parts: agents, terminals, the bridge, channels and chat platforms."""

# Each module lists its public names.
from remoteclaw.protocols import (
    agent,
    bridge,
    channel,
    identity,
    launch,
    platform,
    sign_in,
    terminal,
)
from remoteclaw.protocols.agent import *  # noqa: F403
from remoteclaw.protocols.bridge import *  # noqa: F403
from remoteclaw.protocols.channel import *  # noqa: F403
from remoteclaw.protocols.identity import *  # noqa: F403
from remoteclaw.protocols.launch import *  # noqa: F403
from remoteclaw.protocols.platform import *  # noqa: F403
from remoteclaw.protocols.sign_in import *  # noqa: F403
from remoteclaw.protocols.terminal import *  # noqa: F403

__all__: list[str] = []
__all__ += agent.__all__
__all__ += bridge.__all__
__all__ += channel.__all__
__all__ += identity.__all__
__all__ += launch.__all__
__all__ += platform.__all__
__all__ += sign_in.__all__
__all__ += terminal.__all__
