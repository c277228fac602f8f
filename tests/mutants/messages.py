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
        "an operator's message that is not marked in the chat's answer",
        before="named = [entry for entry in named if entry.is_written]",
        after="named = []",
        test="test_an_operators_message_collected_with_a_persons_is_still_marked",
    ),
    Mutant(
        "an operator's message whose text is not shown in the chat",
        before="if entry.is_written:",
        after="if False:",
        test="test_an_operators_message_is_marked_and_answered_in_the_chat",
    ),
)
