"""Mutants of `remoteclaw/host/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a symlink that is followed below a workspace",
        before="below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)",
        after="below = os.open(part, flags, dir_fd=descriptor)",
        test="test_a_symlink_swapped_in_during_the_opening_is_not_followed",
    ),
    Mutant(
        "a path with .. that leads above a workspace",
        before='or ".." in parts or',
        after="or",
        test="test_a_path_that_leads_out_of_the_root_is_refused",
    ),
    Mutant(
        "a log line that a text has forged",
        before="return escape_line(super().formatMessage(record))",
        after="return super().formatMessage(record)",
        test="test_foreign_text_cannot_forge_a_line_of_a_log",
    ),
    Mutant(
        "a process that is killed because its arguments name a run directory",
        before="return is_holder and arguments[2:]",
        after="return arguments[2:]",
        test="test_only_the_holder_of_a_run_directory_is_ended",
    ),
    Mutant(
        "a fetch from any address",
        before="if self._may_connect(address, port)]",
        after="if address]",
        test="test_no_connection_is_made_to_any_spelling_of_a_private_address",
    ),
    Mutant(
        "a private IPv4 address inside an IPv6 address",
        before="return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF), port)",
        after="return port in PORTS",
        test="test_private_addresses_are_not_public",
    ),
    Mutant(
        "a fetched file of any size",
        before="if len(content) > MAX_ATTACHMENT_BYTES:",
        after="if False:",
        test="test_unsuitable_responses_are_refused",
    ),
    Mutant(
        "workers of another machine that are considered dead",
        before="{boot_id()}/",
        after="",
        test="test_processes_of_another_boot_are_assumed_to_be_alive",
    ),
    Mutant(
        "stray processes that are ended in another namespace",
        before="match[3].decode()\nreturn namespace != _namespace() or",
        after="match[3].decode()\nreturn",
        test="test_strays_of_another_pid_namespace_are_not_ended",
    ),
    Mutant(
        "a configuration file that is renamed before it is synced",
        before="os.fsync(file.fileno())",
        after="pass",
        test="test_a_new_configuration_file_is_synced_before_it_is_renamed",
        within="replace_file",
    ),
    Mutant(
        "a configuration file that is written in place",
        before="os.rename(draft, path)",
        after="with open(path, 'wb') as place:\n    place.write(b'')\nos.rename(draft, path)",
        test="test_a_write_killed_at_any_step_leaves_the_old_or_the_new_file",
    ),
    Mutant(
        "two processes that change the configuration at once",
        before="_lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        after="_lock(path, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        test="test_concurrent_changes_of_two_processes_are_all_kept",
    ),
    Mutant(
        "a forked program that outlives its server",
        before="die_with_parent(server)",
        after="pass",
        test="test_forked_programs_end_with_a_killed_fork_server_and_another_one_starts",
    ),
)
