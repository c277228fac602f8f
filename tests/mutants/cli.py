"""Mutants of `remoteclaw/cli/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a first sender who becomes the owner without a question",
        before='if click.confirm(f"{who} {did}. Is that you?", default=True):',
        after="if True:",
        test="test_a_bot_is_added_with_its_owner_and_answers",
    ),
    Mutant(
        "an account whose token another process replaces",
        before="                self._without_secrets(current)",
        after="                pass",
        test="test_of_two_that_add_an_account_at_once_one_succeeds_and_keeps_its_token",
    ),
    Mutant(
        "a send that fails although Redis may have the message",
        before='"chat.send", params, persists=order.wait_s > 0',
        after='"chat.send", params',
        test="test_send_repeats_the_message_until_redis_answers",
    ),
    Mutant(
        "a login link in a log",
        before='if sys.stdout.isatty():\n_print_row("page"',
        after='if True:\n            _print_row("page"',
        test="test_up_without_a_terminal_prints_the_option_for_the_project_and_takes_yes",
    ),
    Mutant(
        "a request that is printed with control sequences",
        before='echo_text(found["what"])',
        after='import click; click.echo(found["what"])',
        test="test_no_command_prints_control_sequences_from_foreign_text",
    ),
)
