"""Mutants of `remoteclaw/up/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a backup with the secrets of the configuration",
        before="if is_url or (is_secret and not with_secrets):",
        after="if is_url:",
        test="test_secrets_are_in_a_backup_only_if_asked_for",
    ),
    Mutant(
        "a backup with files of secrets",
        before="if with_secrets:\nfiles |= found",
        after="if True:\n    files |= found",
        test="test_secrets_are_in_a_backup_only_if_asked_for",
    ),
    Mutant(
        "an `up` that cuts off its turns at SIGTERM",
        before="await asyncio.gather(*(worker.wait() for worker in self._workers.values()))",
        after="pass",
        test="test_up_finishes_its_turns_after_sigterm",
    ),
    Mutant(
        "files of the user that allow more and that doctor doesn't name",
        before='if openings else ""',
        after='if False else ""',
        test="test_agents_and_doctor_name_files_of_the_user_that_allow_more",
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
        "a repair that removes readable commands",
        before="if NEXT.search(log, readable):",
        after="if size < 0:",
        test="test_a_redis_file_damaged_elsewhere_is_reported_and_unchanged",
    ),
)
