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
)
