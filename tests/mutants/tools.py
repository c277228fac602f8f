"""Mutants of `remoteclaw/tools/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a setting that is not set and not told",
        before="if field.is_required():",
        after="if False:",
        test="test_a_setting_that_is_not_set_is_null",
    ),
    Mutant(
        "a parameter that clients see as a reference",
        before='if "$ref" in schema:',
        after="if False:",
        test="test_the_list_is_small_and_says_what_a_model_needs",
    ),
    Mutant(
        "a tool that does nothing there and is listed",
        before="if tool.name not in lacks)",
        after="if tool.name)",
        test="test_tools_that_do_nothing_on_a_channel_are_not_listed",
    ),
    Mutant(
        "wide sight for everybody",
        before='if sees != "self" and not is_owner:',
        after="if False:",
        test="test_a_stranger_s_turn_sees_its_own_tree_whatever_is_configured",
    ),
    Mutant(
        "pins of strangers in groups",
        before="if subject.is_group and not voice.ownership:",
        after="if False:",
        test="test_deleting_and_pinning_in_a_group_is_for_owners[message_pin]",
    ),
    Mutant(
        "an agent is shown what the writer of the turn may use",
        before="if is_group:\n    anybody |=",
        after="if False:\n    anybody |=",
        test="test_what_is_offered_in_a_group_is_what_anybody_may_use_there",
    ),
    Mutant(
        "another session's message with its reader's rights",
        before='entry.message.from_ if entry.origin == "chat" else None',
        after="entry.message.from_",
        test="test_what_nobody_wrote_takes_no_denial_away",
    ),
    Mutant(
        "sessions that an agent may not see",
        before='if other == own or sees == "all":',
        after="if True:",
        test="test_an_agent_sees_its_own_session_alone",
    ),
    Mutant(
        "parameters that nobody knows",
        before='extra="forbid",\nstrict=True',
        after='extra="ignore",\nstrict=True',
        test="test_bad_parameters_are_refused_in_a_sentence",
    ),
)
