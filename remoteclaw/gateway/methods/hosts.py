"""Handlers of methods about a host."""

from collections.abc import Mapping

from remoteclaw.errors import NotFound
from remoteclaw.fleet.processes import shown_names
from remoteclaw.gateway.call import Call, Handler
from remoteclaw.gateway.methods.fleet import MAX_SESSIONS, busy_sessions, worker_of
from remoteclaw.tools import hosts as contract


async def _drain(call: Call, params: contract.HostParams) -> contract.DrainedHost:
    name, host_id = await _host(call, params.host)
    await call.fleet.drains.drain(host_id)
    return await _state(call, name, host_id)


async def _get(call: Call, params: contract.HostParams) -> contract.DrainedHost:
    return await _state(call, *await _host(call, params.host))


async def _resume(call: Call, params: contract.HostParams) -> contract.DrainedHost:
    name, host_id = await _host(call, params.host)
    await call.fleet.drains.undo(host_id)
    return await _state(call, name, host_id)


async def _host(call: Call, name: str | None) -> tuple[str, str]:
    """Return the name and the id of a host; raise `NotFound` unless exactly one matches."""
    own = call.home.host_id
    hosts = {host_id: host_id for host_id in await call.fleet.drains.hosts()}
    hosts |= shown_names(await call.fleet.processes.list())
    if name is None or name == own:
        return hosts.get(own, call.config.fleet.name_of_host), own
    found = [(host, host_id) for host_id, host in hosts.items() if name == host] or [
        (host, host_id) for host_id, host in hosts.items() if host_id.startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    problem = f"Several hosts are named {name}" if found else f"No host is named {name}"
    known = ", ".join(sorted({*hosts.values()})) or "no host"
    raise NotFound(f"{problem}: the fleet has {known}.")


async def _state(call: Call, name: str, host_id: str) -> contract.DrainedHost:
    fleet = call.fleet
    workers = [view for view in await fleet.workers.list() if view.host_id == host_id]
    _, busy = await fleet.sessions.busy(limit=MAX_SESSIONS)
    here = [view for view in busy if (view.worker or "").startswith(f"{host_id} ")]
    turns = [view for view in here if view.shown_status == "running"]
    terminals = {view.sid for view in here if view.shown_status == "terminal"}
    records = [each for each in await fleet.terminals.recent() if each.sid in terminals]
    return contract.DrainedHost(
        host=name,
        id=host_id,
        since_ms=(await fleet.drains.hosts()).get(host_id),
        workers=tuple(worker_of(view, busy, {host_id: name}) for view in workers),
        turns=await busy_sessions(fleet, turns),
        terminals=tuple(
            contract.OpenTerminalOnHost(
                session_key=str(record.key),
                name=record.name,
                opened_by=record.by,
                viewers=record.viewers,
            )
            for record in records
        ),
    )


HANDLERS: Mapping[str, Handler] = {
    "hosts.drain": _drain,
    "hosts.get": _get,
    "hosts.resume": _resume,
}
