"""Mutants of `remoteclaw/host/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a link that is followed below a workspace",
        before="below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=found)",
        after="below = os.open(part, flags, dir_fd=found)",
        test="test_a_link_that_comes_and_goes_leads_nowhere",
    ),
    Mutant(
        "a link that is looked for before the directory is opened",
        before="below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=found)",
        after=(
            'where = os.path.realpath(f"/proc/self/fd/{found}") + "/" + part\n'
            "if os.path.realpath(where) != where:\n"
            '    raise OSError("a link")\n'
            "below = os.open(part, flags, dir_fd=found)"
        ),
        test="test_a_link_that_comes_and_goes_leads_nowhere",
    ),
    Mutant(
        "a directory above a workspace",
        before='or ".." in parts or',
        after="or",
        test="test_what_leads_elsewhere_is_refused",
    ),
    Mutant(
        "a file that ends the block that it is shown in",
        before="max(3, 1 + longest)",
        after="3",
        test="test_a_fence_in_a_file_does_not_end_the_block",
    ),
    Mutant(
        "marks of direction on a terminal",
        before="\\u200f\\u2028-\\u202e\\u2060-\\u206f",
        after="\\u200f\\u2028\\u2029",
        test="test_no_text_can_steer_the_terminal",
    ),
    Mutant(
        "a list that a name commands",
        before="return _IN_A_LINE.sub(_escape, text)",
        after="return text",
        test="test_no_command_passes_on_what_a_terminal_obeys",
    ),
    Mutant(
        "a line of a log that a text has written",
        before="return in_a_line(super().formatMessage(record))",
        after="return super().formatMessage(record)",
        test="test_no_log_has_a_line_that_a_text_has_written",
    ),
    Mutant(
        "a process that is killed because it names a run directory",
        before="return is_holder and arguments[2:]",
        after="return arguments[2:]",
        test="test_only_the_holder_of_a_run_directory_is_ended",
    ),
    Mutant(
        "an address that is not looked at",
        before="if self._may_connect(address, port)]",
        after="if address]",
        test="test_no_spelling_of_a_private_address_is_connected_to",
    ),
    Mutant(
        "something that is posted unencrypted",
        before='if not target.startswith("https:"):',
        after="if False:",
        test="test_what_is_posted_goes_to_one_public_address_and_encrypted",
    ),
    Mutant(
        "a private address within another one",
        before="return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF), port)",
        after="return port in PORTS",
        test="test_what_only_we_can_reach_is_not_public",
    ),
    Mutant(
        "a fetched file of any size",
        before="if len(content) > MAX_ATTACHMENT_BYTES:",
        after="if False:",
        test="test_what_is_not_taken",
    ),
    Mutant(
        "workers of another machine that are taken for dead",
        before="{boot_id()}/",
        after="",
        test="test_of_another_boot_nothing_is_concluded",
    ),
    Mutant(
        "strays that are judged without their namespace",
        before="match[3].decode()\nreturn namespace != _namespace() or",
        after="match[3].decode()\nreturn",
        test="test_strays_of_another_namespace_are_left_alone",
    ),
    Mutant(
        "a shared text goes with its first reader",
        before="if other.stat().st_nlink == 1:",
        after="if other != path:",
        test="test_a_text_is_shared_as_long_as_somebody_reads_it",
    ),
    Mutant(
        "a configuration file that is there before its content",
        before="os.fsync(file.fileno())",
        after="pass",
        test="test_the_disk_has_the_content_before_the_name",
        within="replace_file",
    ),
    Mutant(
        "a configuration file that is written in place",
        before="os.rename(draft, path)",
        after="with open(path, 'wb') as place:\n    place.write(b'')\nos.rename(draft, path)",
        test="test_killed_at_any_step_there_is_the_old_file_or_the_new_one",
    ),
    Mutant(
        "two who change the configuration at once",
        before="_lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        after="_lock(path, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        test="test_two_who_change_it_at_once_lose_nothing",
    ),
    Mutant(
        "a forked program that outlives its server",
        before="die_with_parent(server)",
        after="pass",
        test="test_what_was_forked_ends_with_a_server_that_is_killed_and_another_one_is_started",
    ),
    Mutant(
        "a fork server that is not started again",
        before="or self._process.returncode is not None",
        after="",
        test="test_what_was_forked_ends_with_a_server_that_is_killed_and_another_one_is_started",
    ),
    Mutant(
        "a fork that keeps what it isn't given",
        before="if number >= beyond:",
        after="if False:",
        test="test_the_first_server_may_be_a_fork_of_its_owner",
    ),
    Mutant(
        "a fork server that takes its owner's files for modules",
        before="del sys.path[0]",
        after="pass",
        test="test_the_first_server_may_be_a_fork_of_its_owner",
    ),
    Mutant(
        "an up that Ctrl-C doesn't end",
        before="signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])\nfor descriptor",
        after="for descriptor",
        test="test_without_a_terminal_it_only_runs_and_once_in_a_home",
    ),
    Mutant(
        "a fork server that is left as a zombie",
        before="if self._is_child and self.pid is not None:",
        after="if False:",
        test="test_the_first_server_may_be_a_fork_of_its_owner",
    ),
    Mutant(
        "a fork server that its owner doesn't fork",
        before="self._begun = told, pid",
        after="pass",
        test="test_the_first_server_may_be_a_fork_of_its_owner",
    ),
    Mutant(
        "a fork server that a signal to all ends",
        before="signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        after="pass",
        test="test_a_server_ends_with_its_owner_and_ignores_other_signals",
    ),
    Mutant(
        "a forked program that ignores the signal to end",
        before="signal.signal(signal.SIGTERM, signal.SIG_DFL)",
        after="pass",
        test="test_a_signal_ends_a_forked_program_alone",
    ),
    Mutant(
        "a program that leaves behind what it has started",
        before="os.killpg(process.pid, signal.SIGKILL)",
        after="process.kill()",
        test="test_a_command_that_hangs_is_ended_with_all_that_it_has_started",
    ),
)
