"""The door for webhooks: accepts messages that a program has signed."""

import logging
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from remoteclaw.channels.order import PostedReports
from remoteclaw.channels.rate import RateLimiter
from remoteclaw.channels.report import InboundContext
from remoteclaw.channels.webhook.incoming import PostedMessage
from remoteclaw.channels.webhook.settings import WebhookAccount
from remoteclaw.channels.webhook.signing import WINDOW_S, is_signed
from remoteclaw.errors import CallRefused, ConfigError
from remoteclaw.gateway.gateway import Gateway
from remoteclaw.gateway.guard import body_of, parsed

CHANNEL = "webhook"
log = logging.getLogger(__name__)

#: The same sentence for every reason, so that it reveals nothing about the configuration.
UNSIGNED = (
    "There is no such webhook, or the request is not signed with its token, or its time is more "
    f"than {WINDOW_S // 60} minutes away from this machine's."
)


class WebhookDoor:
    """Accepts the messages of webhooks that one gateway receives."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._rates: dict[str, RateLimiter] = {}
        self._reports: dict[str, PostedReports] = {}

    async def take(self, request: Request) -> Response:
        """Accept a message. The response is sent once the message is stored."""
        gateway, account = self._gateway, request.path_params.get("account", "default")
        body = await body_of(request)
        settings = gateway.config().accounts().get((CHANNEL, account))
        try:
            token = settings.read_token() if isinstance(settings, WebhookAccount) else ""
        except ConfigError as error:
            log.error("webhook %s: %s", account, error)
            raise CallRefused(
                "UNAVAILABLE", "The token of this webhook can't be read here."
            ) from None
        if not token or not is_signed(request.headers, token, body, now_s=time.time()):
            gateway.metrics.auth_failures += 1
            raise CallRefused("UNAUTHORIZED", UNSIGNED)
        posted = await parsed(request, PostedMessage, body)
        context = InboundContext(
            fleet=gateway.fleet,
            home=gateway.home,
            config=gateway.config,
            provider=CHANNEL,
            account=account,
            rate=self._rates.setdefault(account, RateLimiter()),
        )
        reports = self._reports.setdefault(account, PostedReports())
        await reports.handle(context, posted, posted.incoming())
        return JSONResponse({"ok": True})
