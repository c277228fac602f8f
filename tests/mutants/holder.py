"""Mutants of `remoteclaw/holder/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a holder's clock that stops with the machine",
        before="clock_gettime(time.CLOCK_BOOTTIME)",
        after="clock_gettime(time.CLOCK_MONOTONIC)",
        test="test_clocks_include_the_time_that_the_machine_sleeps",
    ),
    Mutant(
        "a holder that doesn't end without beats",
        before="if now() > self.deadline:\n    self.end()",
        after="",
        test="test_the_process_tree_ends_when_beats_stop",
    ),
    Mutant(
        "a program that outlives its killed holder",
        before="prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)  # the holder itself may be killed",
        after="",
        test="test_the_program_dies_with_a_holder_that_is_killed",
    ),
    Mutant(
        "an agent that the kernel kills no sooner than Redis",
        before="raise_oom_score()",
        after="",
        test="test_the_kernel_kills_the_program_before_its_holder_if_memory_is_full",
        within="become_agent",
    ),
    Mutant(
        "an attached agent that is ended to make room",
        before="self.is_unwanted = False  # an agent",
        after="if self.is_unwanted: self.end()  # an agent",
        test="test_an_attached_agent_is_not_ended_to_make_room",
    ),
    Mutant(
        "run directories of another machine that are removed",
        before="if run.name.endswith(_boot()) else",
        after="if True else",
        test="test_run_directories_of_another_machine_are_left_alone",
    ),
    Mutant(
        "a terminal's program that blocks until its client reads",
        before="self.start = max(self.start, self.end - RING_BYTES)",
        after="assert self.end - self.start <= RING_BYTES",
        test="test_a_client_that_does_not_read_does_not_block_the_program",
    ),
    Mutant(
        "output with a wrong offset",
        before="self.offset = max(self.offset, ring.start)",
        after="self.offset = ring.start",
        test="test_a_client_that_is_killed_during_a_flood_loses_no_output",
    ),
    Mutant(
        "an input queue without a limit",
        before="if self._input_bytes >= MAX_INPUT_BYTES or not",
        after="if not",
        test="test_input_is_queued_in_order_for_a_program_that_does_not_read",
    ),
    Mutant(
        "a terminal that outlives its deadline",
        before='self.finish("deadline")',
        after="pass",
        test="test_the_terminal_ends_when_beats_stop",
    ),
    Mutant(
        "a terminal that outlives its `up`",
        before='self.finish("lifeline")',
        after="pass",
        test="test_the_terminal_ends_with_its_lifeline",
    ),
    Mutant(
        "the last output of a program that is not read",
        before="for _ in range(RING_BYTES // SHORT_BYTES):",
        after="for _ in range(0):",
        test="test_the_last_output_of_a_program_is_read",
    ),
    Mutant(
        "a working directory that was replaced after it was opened",
        before="os.fchdir(self.directory)",
        after="os.chdir(self.cwd)",
        test="test_the_program_runs_in_the_directory_that_was_opened",
    ),
    Mutant(
        "a key that works for holders of the other mode",
        before='(version, mode) == (PROTOCOL, "pty") and',
        after="",
        test="test_a_client_without_the_key_is_denied_everything",
    ),
    Mutant(
        "unauthenticated clients without a limit",
        before="if len(self.strangers) > MAX_STRANGERS:",
        after="if False:",
        test="test_clients_that_only_connect_are_dropped",
    ),
    Mutant(
        "an invalid message that ends the terminal",
        before="except (ValueError, IndexError, TypeError):",
        after="except ZeroDivisionError:",
        test="test_an_invalid_message_costs_only_its_clients_connection",
    ),
    Mutant(
        "input for a program whose deadline has passed",
        before="self.check(ready)  # before the program gets input\nself.feed()",
        after="self.feed()\nself.check(ready)",
        test="test_a_frozen_terminal_past_its_deadline_gets_no_queued_input",
    ),
)
