"""Mutants of `remoteclaw/messages/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a channel with two spellings",
        before="return channel_name(value)",
        after="return value",
        test="test_speaking_for_an_owner_needs_the_scope_admin",
    ),
    Mutant(
        "a line for the memory that a stranger wrote whom the owner quotes",
        before="entry.has_text_of_others or (entry.provenance",
        after="(entry.provenance",
        test="test_an_owner_is_asked_where_the_message_has_a_text_of_others",
    ),
)
