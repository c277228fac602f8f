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
        "parameters that nobody knows",
        before='extra="forbid",\nstrict=True',
        after='extra="ignore",\nstrict=True',
        test="test_bad_parameters_are_refused_in_a_sentence",
    ),
)
