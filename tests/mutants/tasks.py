"""Mutants of `remoteclaw/tasks/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "results that start new tasks forever",
        before="relays=relays_of(turn.entries) + 1,",
        after="relays=0,",
        test="test_turns_about_results_cannot_start_new_tasks_forever",
    ),
    Mutant(
        "sessions that trigger each other forever",
        before="hops=hops_of(turn.entries) + 1,",
        after="hops=0,",
        test="test_sessions_cannot_trigger_each_other_forever",
    ),
    Mutant(
        "a message to a session that waits for the sender",
        before="if target == caller.parent or target.sid in caller.turn.via:",
        after="if target == caller.parent:",
        test="test_a_session_cannot_write_to_a_session_that_waits_for_it",
    ),
    Mutant(
        "a joined message to a task that is reported as waiting",
        before="return outcome is not None and outcome.turn not in (None, entry_id)",
        after="return False",
        test="test_a_message_to_a_running_task_joins_its_turn[collect]",
    ),
    Mutant(
        "a waiting message to a task that is reported as joined",
        before="return outcome is not None and outcome.turn not in (None, entry_id)",
        after="return True",
        test="test_a_message_that_does_not_join_the_turn_waits",
    ),
    Mutant(
        "a task's result without its earlier answers",
        before="answers = [_text_of(reply) for reply in earlier]",
        after="answers: list[str] = []",
        test="test_a_message_that_missed_the_turn_is_answered_in_the_same_result",
    ),
    Mutant(
        "a task's result with the name of an earlier run",
        before='run = f"{lease.sid}-{first_entry or turn.id}"',
        after='run = f"{lease.sid}-{state.task_entry or turn.id}"',
        test="test_another_run_of_a_task_can_use_the_lease_of_the_first",
    ),
    Mutant(
        "a stopped task's result without its partial text",
        before='if status == "done":',
        after="if True:",
        test="test_a_stopped_task_returns_its_partial_text_and_its_last_tools",
    ),
)
