"""Methods for notifications of the page while it is closed."""

from typing import Annotated

from pydantic import Field

from remoteclaw.tools.base import Method, NoParams, Params, Result


class PushKey(Result):
    key: str | None
    """The public key with which browsers subscribe; null if the extra `push` isn't installed."""


class SubscribeParams(Params):
    endpoint: Annotated[
        str, Field(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[!-~]*$", max_length=2000)
    ]
    """The address at the browser's push service that notifies this browser."""
    public_key: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=200)]
    """The browser's public key, in base64url."""
    auth: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=100)]
    """The browser's secret, in base64url."""


class VisibleParams(Params):
    is_visible: bool
    """Whether the person sees the conversation."""


class PushDone(Result):
    pass


METHODS = (
    Method(
        name="push.key",
        description="Return the key with which a browser subscribes to its push service.",
        params=NoParams,
        result=PushKey,
        scope="write",
    ),
    Method(
        name="push.subscribe",
        description="Notify this browser of answers and requests in the person's chats on the "
        "page. It replaces the token's earlier subscription.",
        params=SubscribeParams,
        result=PushDone,
        scope="write",
    ),
    Method(
        name="push.unsubscribe",
        description="End the notifications of this browser.",
        params=NoParams,
        result=PushDone,
        scope="write",
    ),
    Method(
        name="push.visible",
        description="Report whether the conversation that this connection has opened is in view: "
        "while it is, the browser gets no notifications about it.",
        params=VisibleParams,
        result=PushDone,
        scope="write",
    ),
)
