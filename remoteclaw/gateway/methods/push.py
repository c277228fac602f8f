"""Handlers of Web Push."""

import asyncio
from collections.abc import Mapping

from remoteclaw.channels.web.profile import person_id
from remoteclaw.errors import CallRefused, StateDirectoryError
from remoteclaw.fleet.pushes import Browser
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.page.notifier import server_key
from remoteclaw.tools import push as contract
from remoteclaw.tools.base import NoParams


def _who(call: Call) -> tuple[str, str]:
    """Return a person's id on the page, and the id of the token that they are logged in with."""
    operator = call.operator
    token, _, _ = operator.credential.rpartition("/")
    if not token or operator.claims is not None:
        raise CallRefused("FORBIDDEN", "Only who is logged in with a token of their own has this.")
    return person_id(operator.name, is_admin=operator.has("admin")), token


async def _public_key(call: Call) -> str | None:
    try:
        key = await asyncio.to_thread(server_key, call.home, is_made=True)
    except StateDirectoryError as error:
        raise CallRefused("UNAVAILABLE", str(error)) from None
    return key.public if key else None


async def _key(call: Call, _params: NoParams) -> contract.Key:
    return contract.Key(key=await _public_key(call))


async def _subscribe(call: Call, params: contract.SubscribeParams) -> contract.Done:
    person, token = _who(call)
    key = await _public_key(call)
    if key is None:
        raise CallRefused(
            "UNAVAILABLE", "Notifications need more: `pip install 'remoteclaw[push]'`."
        )
    from remoteclaw.gateway.page.webpush import are_keys

    if not are_keys(params.public_key, params.auth):
        raise CallRefused("INVALID_REQUEST", "publicKey and auth are not the keys of a browser.")
    await call.fleet.pushes.add(person, Browser(token=token, server_key=key, **params.model_dump()))
    return contract.Done()


async def _unsubscribe(call: Call, _params: NoParams) -> contract.Done:
    await call.fleet.pushes.remove(*_who(call))
    return contract.Done()


async def _visible(call: Call, params: contract.VisibleParams) -> contract.Done:
    _, token = _who(call)
    call.parts.page_chats.watch(call.events, token, is_visible=params.is_visible)
    return contract.Done()


HANDLERS: Mapping[str, Handler] = {
    "push.key": _key,
    "push.subscribe": _subscribe,
    "push.unsubscribe": _unsubscribe,
    "push.visible": _visible,
}
