"""Entries of the audit log."""

from typing import Any

from remoteclaw.fleet.terminals.audit import AuditEntry


def audit_entry(who: str, **more: Any) -> AuditEntry:
    """Return an entry of the audit log."""
    told = {"at_ms": 1, "did": "open", "session": "0" * 32, "outcome": "ok", "is_forced": False}
    return AuditEntry(who=who, **{**told, **more})
