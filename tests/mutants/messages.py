"""Mutants of `remoteclaw/messages/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a channel with two spellings",
        before="return channel_name(value)",
        after="return value",
        test="test_speaking_for_an_owner_needs_the_scope_admin",
    ),
)
