"""Methods of Web Push: notifications of the page, also where it is closed."""

from typing import Annotated

from pydantic import Field

from remoteclaw.tools.base import Method, NoParams, Params, Result


class Key(Result):
    key: str | None
    """The public key that browsers subscribe with; null where the extra `push` isn't installed."""


class SubscribeParams(Params):
    endpoint: Annotated[
        str, Field(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/[!-~]*$", max_length=2000)
    ]
    """The address of the browser's push service for it."""
    public_key: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=200)]
    """The browser's public key, in base64url."""
    auth: Annotated[str, Field(pattern=r"^[\w-]+$", max_length=100)]
    """The browser's secret, in base64url."""


class VisibleParams(Params):
    is_visible: bool


class Done(Result):
    pass


METHODS = (
    Method(
        name="push.key",
        description="Return the key with which a browser subscribes to its push service.",
        params=NoParams,
        result=Key,
        scope="write",
    ),
    Method(
        name="push.subscribe",
        description="Have this browser notified of answers and requests in one's chats on the "
        "page, in place of what its token has subscribed before.",
        params=SubscribeParams,
        result=Done,
        scope="write",
    ),
    Method(
        name="push.unsubscribe",
        description="Have this browser notified no more.",
        params=NoParams,
        result=Done,
        scope="write",
    ),
    Method(
        name="push.visible",
        description="Say whether the conversation that this connection has opened is in view: then "
        "its browser is not notified of it.",
        params=VisibleParams,
        result=Done,
        scope="write",
    ),
)
