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
        "a check for symlinks before the directory is opened",
        before="below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)",
        after=(
            'where = os.path.realpath(f"/proc/self/fd/{descriptor}") + "/" + part\n'
            "if os.path.realpath(where) != where:\n"
            '    raise OSError("a link")\n'
            "below = os.open(part, flags, dir_fd=descriptor)"
        ),
        test="test_a_symlink_swapped_in_during_the_opening_is_not_followed",
    ),
    Mutant(
        "a path with .. that leads above a workspace",
        before='or ".." in parts or',
        after="or",
        test="test_a_path_that_leads_out_of_the_root_is_refused",
    ),
    Mutant(
        "a file that ends its own code block",
        before="max(3, 1 + longest)",
        after="3",
        test="test_a_code_fence_in_a_file_does_not_end_the_diff_block",
    ),
    Mutant(
        "bidirectional control characters on a terminal",
        before="\\u2800{DEFAULT_IGNORABLE}",
        after="\\u2800",
        test="test_no_text_can_send_control_sequences_to_the_terminal",
    ),
    Mutant(
        "a name that breaks a line of a list",
        before="return _UNSAFE_IN_LINE.sub(_escape, text)",
        after="return text",
        test="test_no_command_prints_control_sequences_from_foreign_text",
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
        "a post without encryption",
        before='if not target.startswith("https:"):',
        after="if False:",
        test="test_post_accepts_only_https_at_public_addresses",
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
        "a shared text that is deleted with its first reader",
        before="if other.stat().st_nlink == 1:",
        after="if other != path:",
        test="test_a_shared_text_exists_until_its_last_reader_is_gone",
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
    Mutant(
        "a fork server that is not started again",
        before="or self._process.returncode is not None",
        after="",
        test="test_forked_programs_end_with_a_killed_fork_server_and_another_one_starts",
    ),
    Mutant(
        "a fork that keeps other open files",
        before="if number >= count:",
        after="if False:",
        test="test_the_first_fork_server_can_be_a_fork_of_its_owner",
    ),
    Mutant(
        "a fork server that imports files of its owner's directory",
        before="del sys.path[0]",
        after="pass",
        test="test_the_first_fork_server_can_be_a_fork_of_its_owner",
    ),
    Mutant(
        "an up that Ctrl-C does not end",
        before="signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])\nfor descriptor",
        after="for descriptor",
        test="test_up_runs_without_a_terminal_and_only_once_per_state_directory",
    ),
    Mutant(
        "a fork server that is left as a zombie",
        before="if self._is_child and self.pid is not None:",
        after="if False:",
        test="test_the_first_fork_server_can_be_a_fork_of_its_owner",
    ),
    Mutant(
        "a first fork server that is not a fork of its owner",
        before="self._first = status, pid",
        after="pass",
        test="test_the_first_fork_server_can_be_a_fork_of_its_owner",
    ),
    Mutant(
        "a fork server that a signal to the process group ends",
        before="signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        after="pass",
        test="test_a_fork_server_ends_with_its_owner_and_ignores_sigterm",
    ),
    Mutant(
        "a forked program that ignores SIGTERM",
        before="signal.signal(signal.SIGTERM, signal.SIG_DFL)",
        after="pass",
        test="test_a_signal_ends_only_the_forked_program_that_gets_it",
    ),
    Mutant(
        "a program that is ended without its children",
        before="os.killpg(pid, signal.SIGKILL)",
        after="os.kill(pid, signal.SIGKILL)",
        test="test_a_transcription_command_that_hangs_is_ended_with_its_children",
    ),
)
