"""Mutants of `remoteclaw/messages/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a channel with two spellings",
        before="return channel_name(value)",
        after="return value",
        test="test_speaking_for_an_owner_needs_what_the_owners_agent_may",
    ),
    Mutant(
        "an operator's words in a chat that is not told of them",
        before="told = [entry for entry in told if entry.is_written]",
        after="told = []",
        test="test_what_is_answered_together_with_a_person_s_message_is_still_marked",
    ),
    Mutant(
        "an operator's words in a chat without the words",
        before="if entry.is_written:",
        after="if False:",
        test="test_what_an_operator_writes_is_marked_and_answered_in_the_chat",
    ),
)
