"""Mutants of `remoteclaw/client/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a command that runs a method itself because the gateway has refused it",
        before="raise _error_of(first_of(group), home, is_open=is_open) from None",
        after='raise GatewayMissing("refused") from None',
        test="test_a_gateway_that_refuses_the_command_is_not_bypassed",
    ),
    Mutant(
        "a message that is abandoned after a temporary error",
        before="if not error.is_temporary or loop.time() >= until:",
        after="if True:",
        test="test_a_link_repeats_a_message_until_redis_answers_and_it_counts_once",
    ),
    Mutant(
        "keys typed while disconnected that are sent after a reconnect",
        before="if not self._is_open.is_set():\nreturn None",
        after="await self._is_open.wait()",
        test="test_attach_reconnects_to_a_restarted_gateway",
    ),
    Mutant(
        "a token that is sent to the socket of another user",
        before="token_files(home.check().path)[0]",
        after="token_files(home.path)[0]",
        test="test_a_state_directory_of_others_gets_no_token",
    ),
)
