"""Mutants of `remoteclaw/up/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "files of the user that allow more and that doctor doesn't name",
        before='if openings else ""',
        after='if False else ""',
        test="test_agents_and_doctor_name_files_of_the_user_that_allow_more",
    ),
    Mutant(
        "a page that refuses other computers without a warning",
        before='if config.host in ("0.0.0.0", "::") and not config.hosts:',
        after="if False:",
        test="test_doctor_reports_how_other_computers_reach_the_page",
    ),
    Mutant(
        "a warning about a page on loopback",
        before="if is_loopback(config.host):\nreturn None",
        after="if False:\n        return None",
        test="test_doctor_reports_how_other_computers_reach_the_page",
    ),
    Mutant(
        "a missing warning to root about an agent that never asks",
        before='if settings.permissions == "auto" and os.geteuid() == 0:',
        after="if False:",
        test="test_up_says_what_the_agent_may_do",
    ),
    Mutant(
        "an embedded Redis that writes nothing to the disk",
        before='"appendonly": "yes",',
        after='"appendonly": "no",',
        test="test_an_accepted_message_survives_the_end_of_the_embedded_redis",
    ),
    Mutant(
        "an embedded Redis that ignores appendfsync",
        before='"appendfsync": appendfsync,',
        after='"appendfsync": "everysec",',
        test="test_the_embedded_redis_can_sync_every_write_to_the_disk",
    ),
    Mutant(
        "a repair of Redis' file without a backup",
        before="shutil.copy(file, copy)",
        after="pass",
        test="test_a_damaged_end_of_the_redis_file_is_cut_off_and_backed_up",
    ),
    Mutant(
        "a repair that keeps half a transaction",
        before="if not is_open:",
        after="if True:",
        test="test_a_damaged_end_of_the_redis_file_is_cut_off_and_backed_up",
    ),
    Mutant(
        "a repair that removes readable commands",
        before="if NEXT.search(log, readable):",
        after="if size < 0:",
        test="test_a_redis_file_damaged_elsewhere_is_reported_and_unchanged",
    ),
    Mutant(
        "an up that does not start on a full Redis",
        before="if used > self._memory_limit * MAX_USED_FRACTION:",
        after="if not used:",
        test="test_up_on_a_full_redis_finishes_accepted_messages_and_reports_it",
    ),
    Mutant(
        "a doctor that misses a port used by another program",
        before="if port is not None and not port.ok:",
        after="if False:",
        test="test_doctor_reports_a_port_used_by_another_program",
    ),
    Mutant(
        "a doctor that does not check whether an agent is signed in",
        before="or sign_in_problem_of(settings)",
        after="",
        test="test_doctor_reports_an_agent_that_is_not_signed_in",
    ),
    Mutant(
        "workers that each import the code of sessions",
        before='"remoteclaw.session.drain",',
        after="",
        test="test_a_forked_worker_loads_nothing_but_its_own_modules",
    ),
)
