"""The door for webhooks: accepts messages that a program has signed, and can wait for answers."""

import logging
import time
from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from remoteclaw.channels.order import PostedReports
from remoteclaw.channels.rate import RateLimiter
from remoteclaw.channels.report import Awaited, InboundContext
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
NO_ANSWER = "There is no answer: the message was handled before, or is not for the agent."
#: The maximum number of programs' requests that wait at once, of one account. A further one gets
#: the status without a wait.
MAX_WAITS = 100


class WebhookDoor:
    """Accepts the messages of webhooks that one gateway receives."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._rates: dict[str, RateLimiter] = {}
        self._reports: dict[str, PostedReports] = {}
        self._waits = Counter[str]()

    async def take(self, request: Request) -> Response:
        """Accept a message. The response is sent once the message is stored, or, with `wait`, has
        its answer.
        """
        gateway, account = self._gateway, request.path_params.get("account", "default")
        body = await body_of(request)
        settings = gateway.config().accounts().get((CHANNEL, account))
        try:
            token = settings.read_secret("token") if isinstance(settings, WebhookAccount) else ""
        except ConfigError as error:
            log.error("webhook %s: %s", account, error)
            raise CallRefused(
                "UNAVAILABLE", "The token of this webhook can't be read here."
            ) from None
        if not token or not is_signed(request.headers, token, body, now_s=time.time()):
            gateway.metrics.auth_failures += 1
            raise CallRefused("UNAUTHORIZED", UNSIGNED)
        posted = await parsed(request, PostedMessage, body)
        awaited = None if posted.wait is None else Awaited("agents", deliver="caller")
        context = InboundContext(
            fleet=gateway.fleet,
            home=gateway.home,
            config=gateway.config,
            provider=CHANNEL,
            account=account,
            rate=self._rates.setdefault(account, RateLimiter()),
        )
        reports = self._reports.setdefault(account, PostedReports())
        await reports.handle(context, posted, posted.incoming(), awaited)
        answer = await self._answer(account, awaited, posted.wait or 0) if awaited else {}
        return JSONResponse({"ok": True, **answer})

    async def _answer(self, account: str, awaited: Awaited, wait_s: int) -> dict[str, Any]:
        """Wait for the answer to a message; return what has become of the message so far."""
        if (accepted := awaited.accepted) is None:
            if awaited.answer is not None:
                return _state("done", awaited.answer)
            if awaited.notices:
                return _state("refused", "\n".join(awaited.notices), is_error=True)
            return _state("unknown", NO_ANSWER, is_error=True)
        outcomes, sid = self._gateway.fleet.outcomes, accepted.session.sid
        outcome = None
        if self._waits[account] < MAX_WAITS:
            self._waits[account] += 1
            try:
                outcome = await outcomes.wait(sid, accepted.entry_id, timeout_s=wait_s)
            finally:
                self._waits[account] -= 1
        outcome = outcome or await outcomes.read(sid, accepted.entry_id)
        if outcome is None:
            return _state("unknown", NO_ANSWER, is_error=True)
        return _state(
            outcome.status,
            "\n\n".join(part["text"] for part in outcome.reply if part["text"]),
            is_error=any(part["is_error"] for part in outcome.reply),
            pause=outcome.pause,
        )


def _state(
    status: str, text: str, *, is_error: bool = False, pause: str | None = None
) -> dict[str, Any]:
    return {"status": status, "text": text, "isError": is_error, "pause": pause}
