"""Handlers of tokens, pairings, and the audit log of terminals."""

from collections.abc import Mapping

from remoteclaw.commands.pair import UNKNOWN, approve
from remoteclaw.errors import CallRefused, NotFound
from remoteclaw.fleet.pairings import Paired, PairingRequest
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.host.terminal import one_line
from remoteclaw.tools import access as contract
from remoteclaw.tools.base import NoParams

DAY_MS = 24 * 3600 * 1000


def _check_local(call: Call) -> None:
    """Raise `CallRefused` unless the operator has the token file of the state directory.

    Any other token ends or can be revoked, and must not leave another one behind.
    """
    if not call.operator.is_local:
        raise CallRefused(
            "FORBIDDEN",
            f"{call.method.name} is only for the user of the gateway's host: run `remoteclaw "
            "token` there.",
        )


async def _list_tokens(call: Call, _params: NoParams) -> contract.TokensResult:
    _check_local(call)
    views = await call.fleet.tokens.list()
    return contract.TokensResult(tokens=tuple(map(contract.TokenFacts.of, views)))


async def _create_token(call: Call, params: contract.CreateTokenParams) -> contract.CreatedToken:
    _check_local(call)
    for agent in params.agents:
        call.config.agent(agent)
    valid_ms = None if params.days is None else params.days * DAY_MS
    agents = tuple(dict.fromkeys(params.agents)) or None
    secret, view = await call.fleet.tokens.create(
        params.name, params.scope, valid_ms, agents=agents
    )
    return contract.CreatedToken(id=view.id, secret=secret)


async def _revoke_token(call: Call, params: contract.RevokeTokenParams) -> contract.Revoked:
    _check_local(call)
    tokens = call.fleet.tokens
    match params.token, params.jti, params.jwt_user:
        case str(named), None, None:
            views = await tokens.list()
            matches = [each.id for each in views if named in (each.id, each.name)] or [named]
            listed = "`remoteclaw token list` lists them"
            what = repr(one_line(named, max_chars=40))
            if len(matches) > 1:
                raise NotFound(f"{what} fits {len(matches)} tokens: give the id; {listed}.")
            if not (
                await tokens.revoke(matches[0]) or await call.fleet.guest_links.revoke(matches[0])
            ):
                raise NotFound(f"{what} is no token: {listed}.")
            return contract.Revoked(revoked=named)
        case None, str(jti), None:
            await tokens.revoke_jwt(jti)
            return contract.Revoked(revoked=jti)
        case None, None, str(user):
            await tokens.revoke_jwts_of(user)
            return contract.Revoked(revoked=user)
    raise CallRefused("INVALID_REQUEST", "Name one of token, jti and jwtUser.")


async def _list_pairings(call: Call, _params: NoParams) -> contract.PairingsResult:
    pairings = call.fleet.pairings
    return contract.PairingsResult(
        pairings=(*map(_request, await pairings.requests()), *map(_paired, await pairings.list()))
    )


def _request(request: PairingRequest) -> contract.Pairing:
    account = f"{request.provider}/{request.account}"
    return contract.Pairing.of(request, account=account, state="asks", by=None)


def _paired(paired: Paired) -> contract.Pairing:
    account = f"{paired.provider}/{paired.account}"
    return contract.Pairing.of(paired, account=account, state="may write", code=None)


async def _approve(call: Call, params: contract.ApproveParams) -> contract.Pairing:
    operator = call.operator
    by = "the command line" if operator.is_local else f"the operator {operator.name}"
    request = await approve(call.fleet.pairings, call.fleet.calls, params.code, by=by)
    if request is None:
        raise NotFound(UNKNOWN)
    account = f"{request.provider}/{request.account}"
    return contract.Pairing.of(request, account=account, state="may write", code=None)


async def _remove_pairing(
    call: Call, params: contract.RemovePairingParams
) -> contract.PairingsResult:
    removed = await call.fleet.pairings.remove(params.id, provider=params.channel)
    if not removed:
        raise NotFound(
            f"Nobody with the id {params.id!r} has access by a code; owners and `allow` are in the "
            "configuration."
        )
    return contract.PairingsResult(pairings=tuple(map(_paired, removed)))


async def _audit(call: Call, params: contract.AuditParams) -> contract.AuditResult:
    entries = await call.fleet.audit.newest(params.limit)
    return contract.AuditResult(entries=tuple(map(contract.AuditFacts.of, entries)))


HANDLERS: Mapping[str, Handler] = {
    "tokens.list": _list_tokens,
    "tokens.create": _create_token,
    "tokens.revoke": _revoke_token,
    "pairings.list": _list_pairings,
    "pairings.approve": _approve,
    "pairings.remove": _remove_pairing,
    "audit.list": _audit,
}
