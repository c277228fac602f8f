"""Mutants of `remoteclaw/chat/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a text with control sequences for the terminal",
        before="text.append(printable(span.text).expandtabs(4), ",
        after="text.append(span.text, ",
        test="test_no_text_can_send_control_sequences_to_the_terminal",
    ),
    Mutant(
        "an answer that is lost while disconnected",
        before='outcome = {**result, "reply": "\\n\\n".join(texts)}',
        after="outcome = {}",
        test="test_an_answer_given_while_disconnected_is_shown_once",
    ),
    Mutant(
        "an answer that is shown twice because its final text comes late",
        before="return position > earlier and (is_same_attempt or not is_same_turn)",
        after="return False",
        test="test_a_live_answer_whose_final_text_comes_after_the_next_one_has_begun_is_shown_once",
    ),
)
