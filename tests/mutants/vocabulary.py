"""Mutants of the modules at the top of `remoteclaw/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a channel with two spellings",
        before="return channel_name(value)",
        after="return value",
        test="test_speaking_for_an_owner_needs_what_the_owners_agent_may",
    ),
    Mutant(
        "a clock that stops with the machine",
        before="clock_gettime(time.CLOCK_BOOTTIME)",
        after="clock_gettime(time.CLOCK_MONOTONIC)",
        test="test_clocks_count_the_time_that_the_machine_sleeps",
    ),
    Mutant(
        "a prompt of gemini's that names tools which it doesn't have",
        before="replace(self, tools=None, system_prompt=self.plain_prompt)",
        after="replace(self, tools=None)",
        test="test_gemini_obeys_nothing_of_a_workspace_and_has_no_tools_then",
    ),
)
