"""Mutants of `remoteclaw/cli/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an owner who is whoever has written first",
        before='if click.confirm(f"{who} has written. Is that you?", default=True):',
        after="if True:",
        test="test_a_bot_is_added_with_its_owner_and_answers",
    ),
    Mutant(
        "a token that stays though it is refused",
        before="self._kept.unlink(missing_ok=True)",
        after="pass",
        test="test_a_token_that_is_refused_leaves_nothing_behind",
    ),
    Mutant(
        "a send that gives up what Redis has perhaps taken",
        before='"chat.send", params, persists=order.wait_s > 0',
        after='"chat.send", params',
        test="test_send_repeats_what_redis_does_not_answer",
    ),
    Mutant(
        "a banner that is broken within words",
        before="if sys.stdout.isatty():\nroom =",
        after="if False:\n    room =",
        test="test_words_stay_whole_on_a_narrow_terminal",
        within="echo_words",
    ),
    Mutant(
        "a pipe that is not read behind the words",
        before='return f"{text}\\n\\n{piped}" if piped.strip() else text',
        after="return text",
        test="test_what_is_piped_in_stands_behind_the_words",
    ),
    Mutant(
        "a stream of another message's answer",
        before='if told["turn"] != self.turn:',
        after="if False:",
        test="test_only_ones_own_answer_is_printed_and_each_word_once",
    ),
    Mutant(
        "a message that is shown before the one that was missed",
        before='told["index"] != len(self._whole)',
        after="False",
        test="test_only_ones_own_answer_is_printed_and_each_word_once",
    ),
    Mutant(
        "a terminal that obeys what is streamed",
        before="shown = printable(text)",
        after="shown = text",
        test="test_only_ones_own_answer_is_printed_and_each_word_once",
    ),
    Mutant(
        "live text that a stream doesn't wait for",
        before="sys.stdout.flush()",
        after="pass",
        test="test_an_answer_is_printed_while_it_is_written",
        within="_write",
    ),
    Mutant(
        "Markdown that nobody paints",
        before="_painter() if sys.stdout.isatty() else None",
        after="None",
        test="test_on_a_terminal_the_markdown_is_painted",
    ),
    Mutant(
        "a chat that is opened on a pipe",
        before="if not (sys.stdin.isatty() and sys.stdout.isatty()):",
        after="if False:",
        test="test_what_is_typed_wrong_is_answered_by_one_sentence",
    ),
    Mutant(
        "help that waits for libraries",
        before='"""The edge of the command line: one line for an error, no traceback."""',
        after="import asyncio",
        test="test_help_loads_no_library_but_its_own",
    ),
    Mutant(
        "an -h that is no option",
        before='context_settings={"help_option_names": ["-h", "--help"]}',
        after="context_settings={}",
        test="test_every_command_explains_itself_with_h",
    ),
    Mutant(
        "a project that is asked about at every start",
        before="None if workspace or settings.workspace else _project(home)",
        after="_project(home)",
        test="test_it_asks_once_whether_the_agent_works_in_this_project",
    ),
    Mutant(
        "an answer that is not kept",
        before="if workspace or runtime:",
        after="if runtime:",
        test="test_a_no_is_kept_as_well",
    ),
    Mutant(
        "a question where no project is",
        before="return None if is_other or any(map(here.is_relative_to, (state, own))) else here",
        after="return here",
        test="test_it_does_not_ask_where_no_project_is",
    ),
    Mutant(
        "an up without a terminal that doesn't say that it has no chat",
        before='echo("There is no chat here: `remoteclaw chat` opens one in a terminal.")',
        after="pass",
        test="test_without_a_terminal_it_says_what_to_set_and_yes_is_an_answer",
    ),
    Mutant(
        "a second up that is only refused",
        before="if with_console and (pid := running_pid(home)) is not None:",
        after="if False:",
        test="test_options_are_kept_and_a_second_up_is_the_chat_with_the_first",
    ),
    Mutant(
        "a help on one line",
        before="isinstance(error, click.exceptions.NoArgsIsHelpError)",
        after="False",
        test="test_a_group_without_a_command_shows_its_help",
    ),
    Mutant(
        "a table of which --json knows nothing",
        before="@json_option\n@with_fleet\nasync def list_tokens",
        after="@with_fleet\nasync def list_tokens",
        test="test_every_command_that_prints_facts_has_json",
    ),
    Mutant(
        "a fact with another name",
        before='"given_up_ms": _given_up_ms(letter)',
        after='"given_up": _given_up_ms(letter)',
        test="test_json_has_the_names_that_programs_know",
    ),
    Mutant(
        "a table that breaks at the terminal's edge",
        before="max(_row_width(widths) - room, 0)",
        after="0",
        test="test_a_table_fits_into_the_terminal",
    ),
    Mutant(
        "a job that is not known by its name",
        before="if job in (each.id, each.name)",
        after="if job == each.id",
        test="test_a_job_is_shown_changed_paused_and_run_on_the_command_line",
    ),
    Mutant(
        "a repair that nobody is told of",
        before="if ready.repaired:",
        after="if False:",
        test="test_a_kill_takes_everything_along_and_a_power_failure_is_repaired_and_said",
    ),
    Mutant(
        "a terminal that shows nothing any more",
        before="asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)",
        after="pass",
        test="test_a_chat_that_is_told_to_end_leaves_the_terminal_as_it_was",
    ),
    Mutant(
        "a file that is read and not sent",
        before='"attachments": files,',
        after='"attachments": [],',
        test="test_a_file_goes_by_the_gateway_that_is_there",
    ),
)
