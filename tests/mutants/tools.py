"""Mutants of `remoteclaw/tools/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an unset setting that is left out of the result",
        before="if field.is_required():",
        after="if False:",
        test="test_an_unset_setting_is_returned_as_null",
    ),
    Mutant(
        "unknown parameters that are accepted",
        before='extra="forbid",\nstrict=True',
        after='extra="ignore",\nstrict=True',
        test="test_bad_parameters_are_refused_in_a_sentence",
    ),
)
