"""Mutants of `remoteclaw/client/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a message that is abandoned after a temporary error",
        before="if error.code not in _TEMPORARY or loop.time() >= until:",
        after="if True:",
        test="test_a_link_repeats_a_message_until_redis_answers_and_it_counts_once",
    ),
    Mutant(
        "a link that ends with its gateway",
        before="with contextlib.suppress(_ConnectionLost):",
        after="with contextlib.nullcontext():",
        test="test_a_link_finds_a_new_gateway_after_the_first_one_was_killed",
    ),
    Mutant(
        "a too large message that is sent again and again",
        before="if len(data) > self._max_request_bytes:",
        after="if False:",
        test="test_a_too_large_message_is_refused_and_the_link_stays_open",
    ),
    Mutant(
        "an invalid gateway address that causes a crash",
        before="except (InvalidURI, InvalidHandshake, ValueError) as error:",
        after="except (InvalidURI, InvalidHandshake) as error:",
        test="test_an_invalid_gateway_address_is_reported",
    ),
    Mutant(
        "a hanging gateway that is reported only after forty seconds",
        before='"ping_interval": PING_EVERY_S,\n"ping_timeout": PONG_S,',
        after="",
        test="test_a_hanging_gateway_is_reported_and_the_message_is_answered_once",
    ),
    Mutant(
        "keys typed while disconnected that are sent after a reconnect",
        before="if not self._is_open.is_set():\nreturn None",
        after="await self._is_open.wait()",
        test="test_attach_reconnects_to_a_restarted_gateway",
    ),
)
