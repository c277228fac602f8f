"""Mutants of the page's scripts: `remoteclaw/gateway/page/static/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a link in a terminal that runs script in the page",
        before='return url && ["http:", "https:"].includes(url.protocol) ? url.href : null;',
        after="return link ?? null;",
        test="test_output_of_a_program_in_a_terminal_never_becomes_markup",
    ),
)
