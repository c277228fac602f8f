"""Mutants of `remoteclaw/channels/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an operation that is done too late",
        before="if left_s <= 0:",
        after="if False:",
        test="test_what_comes_too_late_is_not_done",
    ),
    Mutant(
        "activity that comes back after its turn",
        before="if turn > self._ended:",
        after="if True:",
        test="test_what_comes_late_of_a_turn_that_is_over_is_not_shown",
    ),
    Mutant(
        "seconds that stand still",
        before="self._editor.redraw()\nif not",
        after="if not",
        test="test_a_running_tool_is_shown_with_its_seconds",
    ),
    Mutant(
        "a message without a sign that it is waited for",
        before="} - self._answered\nawait self._draw()",
        after="} - self._answered",
        test="test_each_message_has_a_sign_until_it_is_answered",
    ),
    Mutant(
        "a console that gives a message up",
        before="pass  # the person was told",
        after="raise  # the person was told",
        test="test_the_console_sends_until_redis_answers",
    ),
)
