"""Mutants of `remoteclaw/tty/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a terminal that is taken from who watches",
        before='if standing.activity != "idle" or standing.viewers or standing.has_draft:',
        after='if standing.activity != "idle" or standing.has_draft:',
        test="test_otherwise_it_waits_and_who_has_written_is_told_why",
    ),
    Mutant(
        "silence that is taken for rest",
        before='if standing.activity == "idle":\n        return min',
        after='if standing.activity in ("idle", "unknown"):\n        return min',
        test="test_what_nobody_needs_is_ended_and_what_asks_has_more_time",
    ),
    Mutant(
        "a text that is typed into a dialog",
        before='raise CallRefused("CONFLICT", NOT_IDLE)',
        after="pass",
        test="test_who_has_no_keyboard_types_nothing_and_nothing_but_keys_answers_a_dialog",
    ),
    Mutant(
        "a gateway that doesn't know what the one before knew",
        before='return cls(rest[int(size) :], said, bool(head["draft"])',
        after='return cls(rest[int(size) :], {}, bool(head["draft"])',
        test="test_a_gateway_knows_what_the_one_before_knew",
    ),
    Mutant(
        "output that is lost between two gateways",
        before="await self._take(client.output[behind:], is_past=True)",
        after="pass",
        test="test_a_gateway_that_is_killed_is_followed_by_one_that_shows_the_same",
    ),
    Mutant(
        "a late answer that is typed",
        before="if answers and not is_past:",
        after="if answers:",
        test="test_what_a_program_asked_before_is_not_answered_later",
    ),
    Mutant(
        "a keyboard that several have",
        before="if self._who is not None and not self.is_held_by(who):",
        after="if False:",
        test="test_one_types_and_another_is_told_who_it_is",
    ),
    Mutant(
        "a flood that every viewer gets whole",
        before="viewer.next_at = now + (TYPING_S if viewer.is_typing else WATCHING_S)",
        after="viewer.next_at = now",
        test="test_a_flood_is_a_few_frames_and_ends_with_the_last_screen",
    ),
    Mutant(
        "a viewer that is sent more than it reads",
        before="elif viewer.is_slow():",
        after="elif False:",
        test="test_who_reads_slowly_is_left_out_and_gets_what_differs_later",
    ),
)
