"""Handlers of notifications by Web Push."""

import asyncio
from collections.abc import Mapping

from remoteclaw.errors import CallRefused, StateDirectoryError
from remoteclaw.fleet.push_subscriptions import PushSubscription
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.conversations import person_of
from remoteclaw.gateway.page.notifier import server_key
from remoteclaw.host.installation import install_command, missing_packages
from remoteclaw.tools import push as contract
from remoteclaw.tools.base import NoParams


def _person_and_token(call: Call) -> tuple[str, str]:
    """Return the id of the person on the page, and the id of their own token.

    Raises `CallRefused` for tokens that are not issued to a person.
    """
    operator = call.operator
    token, _, _ = operator.credential.rpartition("/")
    if not token or operator.claims is not None:
        raise CallRefused(
            "FORBIDDEN", "This needs a login of your own: `remoteclaw open` prints a link."
        )
    return person_of(operator), token


async def _push_public_key(call: Call) -> str | None:
    try:
        key = await asyncio.to_thread(server_key, call.home, create=True)
    except StateDirectoryError as error:
        raise CallRefused("UNAVAILABLE", str(error)) from None
    return key.public if key else None


async def _get_push_key(call: Call, _params: NoParams) -> contract.PushKey:
    return contract.PushKey(key=await _push_public_key(call))


def _unusable() -> str:
    return f"The packages for notifications can't be loaded: run `{install_command('push')}`."


async def _subscribe(call: Call, params: contract.SubscribeParams) -> contract.PushDone:
    person, token = _person_and_token(call)
    key = await _push_public_key(call)
    if key is None:
        raise CallRefused("UNAVAILABLE", missing_packages("push") or _unusable())
    from remoteclaw.gateway.page.webpush import are_valid_keys

    if not are_valid_keys(params.public_key, params.auth):
        raise CallRefused(
            "INVALID_REQUEST",
            "publicKey and auth are not the keys of a browser's push subscription.",
        )
    subscription = PushSubscription(
        token=token, server_key=key, agents=call.operator.agents, **params.model_dump()
    )
    await call.fleet.push_subscriptions.add(person, subscription)
    return contract.PushDone()


async def _unsubscribe(call: Call, _params: NoParams) -> contract.PushDone:
    await call.fleet.push_subscriptions.remove(*_person_and_token(call))
    return contract.PushDone()


async def _visible(call: Call, params: contract.VisibleParams) -> contract.PushDone:
    _, token = _person_and_token(call)
    call.parts.chats.watch(call.events, token, is_visible=params.is_visible)
    return contract.PushDone()


HANDLERS: Mapping[str, Handler] = {
    "push.key": _get_push_key,
    "push.subscribe": _subscribe,
    "push.unsubscribe": _unsubscribe,
    "push.visible": _visible,
}
