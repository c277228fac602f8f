"""Mutants of `remoteclaw/up/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a page that other computers are refused, unsaid",
        before='if config.host in ("0.0.0.0", "::") and not config.hosts:',
        after="if False:",
        test="test_doctor_says_what_other_computers_meet_at_the_page",
    ),
    Mutant(
        "a page on loopback that is warned of",
        before="if is_loopback(config.host):\nreturn None",
        after="if False:\n        return None",
        test="test_doctor_says_what_other_computers_meet_at_the_page",
    ),
    Mutant(
        "a root who is not warned of what runs without asking",
        before='if settings.permissions == "auto" and os.geteuid() == 0:',
        after="if False:",
        test="test_it_says_in_plain_words_what_the_agent_may_do",
    ),
    Mutant(
        "a Redis that keeps nothing on the disk",
        before='"appendonly": "yes",',
        after='"appendonly": "no",',
        test="test_what_was_accepted_survives_its_end",
    ),
    Mutant(
        "a Redis that writes each second though it was told to write always",
        before='"appendfsync": appendfsync,',
        after='"appendfsync": "everysec",',
        test="test_it_can_be_told_to_lose_nothing_even_without_power",
    ),
    Mutant(
        "a damaged file of Redis that is not kept",
        before="shutil.copy(file, copy)",
        after="pass",
        test="test_a_damaged_end_is_removed_and_kept_beside_it",
    ),
    Mutant(
        "half a transaction that stays in Redis' file",
        before="if not is_open:",
        after="if True:",
        test="test_a_damaged_end_is_removed_and_kept_beside_it",
    ),
    Mutant(
        "a repair that removes what is readable",
        before="if NEXT.search(found, readable):",
        after="if size < 0:",
        test="test_a_file_that_is_damaged_elsewhere_is_named_and_left_as_it_is",
    ),
    Mutant(
        "an up that does not start on a full Redis",
        before="if used > self._memory_limit * MAX_USED:",
        after="if not used:",
        test="test_on_a_full_redis_it_finishes_what_was_accepted_and_says_that_it_is_full",
    ),
    Mutant(
        "a doctor who doesn't see that another program has the port",
        before="if port is not None and not port.ok:",
        after="if False:",
        test="test_doctor_names_a_port_that_another_program_has",
    ),
    Mutant(
        "a doctor who doesn't ask whether an agent is signed in",
        before="or sign_in_problem_of(settings)",
        after="",
        test="test_doctor_names_an_agent_that_is_not_signed_in",
    ),
    Mutant(
        "workers that each load a session's code",
        before='"remoteclaw.session.drain",',
        after="",
        test="test_a_forked_worker_loads_nothing_but_its_own_modules",
    ),
)
