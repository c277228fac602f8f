"""Mutants of the page's scripts: `remoteclaw/gateway/page/static/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a picture in a format that can contain scripts",
        before='return /^RIFF.{4}WEBP/s.test(start) ? "image/webp" : "";',
        after='return /^RIFF.{4}WEBP/s.test(start) ? "image/webp" : "image/svg+xml";',
        test="test_a_conversation_reads_like_a_chat_and_hides_its_work_until_it_is_opened",
    ),
    Mutant(
        "a link in a terminal that runs script in the page",
        before='return url && ["http:", "https:"].includes(url.protocol) ? url.href : null;',
        after="return link ?? null;",
        test="test_output_of_a_program_in_a_terminal_never_becomes_markup",
    ),
)
