"""Mutants of `remoteclaw/config/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a workspace with the state directory in it",
        before="if value is not None and Path(os.path.realpath(state))",
        after="if False and Path(os.path.realpath(state))",
        test="test_a_workspace_with_the_state_directory_in_it_is_refused",
    ),
    Mutant(
        "keys of MCP servers that are shown",
        before='("env", "headers", "args")',
        after='("env", "headers")',
        test="test_no_text_that_may_be_a_secret_is_shown",
    ),
    Mutant(
        "a broken configuration that counts",
        before="check_tools(config)",
        after="",
        test="test_a_broken_file_changes_nothing_and_is_said_once",
    ),
    Mutant(
        "a configuration file that is there before its content",
        before="os.fsync(descriptor)",
        after="pass",
        test="test_the_disk_has_the_content_before_the_name",
        within="_replace",
    ),
    Mutant(
        "a configuration file that is written in place",
        before="os.rename(draft, path)",
        after="with open(path, 'wb') as place:\n    place.write(b'')\nos.rename(draft, path)",
        test="test_killed_at_any_step_there_is_the_old_file_or_the_new_one",
    ),
    Mutant(
        "two who change the configuration at once",
        before="fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        after="fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        test="test_two_who_change_it_at_once_lose_nothing",
    ),
    Mutant(
        "an editor's change that is overwritten",
        before="if before is not None and self.read().content != before.content:",
        after="if False:",
        test="test_what_an_editor_wrote_meanwhile_is_not_lost",
    ),
    Mutant(
        "an agent that changes any setting",
        before="closed = [one.name for one in found if one.setting and not one.setting.agents_may]",
        after="closed: list[str] = []",
        test="test_an_agent_changes_what_is_open_and_nothing_else",
    ),
    Mutant(
        "an agent that names agents of its own",
        before="yield Difference(here, names)",
        after="pass",
        test="test_one_wrong_part_and_nothing_is_done",
    ),
    Mutant(
        "a secret that is overwritten by how it was shown",
        before="elif is_secret and _is_equal(value, old):\n    continue",
        after="",
        test="test_a_secret_repeated_as_it_was_shown_stays",
    ),
)
