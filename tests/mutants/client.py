"""Mutants of `remoteclaw/client/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a message that is given up",
        before="if not persists or error.code not in _FOR_NOW:",
        after="if True:",
        test="test_what_redis_does_not_answer_is_sent_until_it_does_and_counts_once",
    ),
    Mutant(
        "a chat that dies with its gateway",
        before="except _Lost:\ncontinue",
        after="except _Lost:\n    raise",
        test="test_a_gateway_that_was_killed_is_found_again_by_its_private_socket",
    ),
    Mutant(
        "a paste that is sent for ever",
        before="if len(data) > self._most_bytes:",
        after="if False:",
        test="test_what_is_too_large_is_refused_and_the_link_stays",
    ),
    Mutant(
        "a wrong address as a crash",
        before="except (InvalidURI, InvalidHandshake, ValueError) as error:",
        after="except (InvalidURI, InvalidHandshake) as error:",
        test="test_a_wrong_address_is_one_sentence",
    ),
    Mutant(
        "a gateway that hangs and is not noticed for forty seconds",
        before='"ping_interval": PING_EVERY_S,\n"ping_timeout": PONG_S,',
        after="",
        test="test_a_gateway_that_hangs_is_named_and_what_was_typed_is_answered_once",
    ),
    Mutant(
        "keys that are typed when the gateway is back",
        before="if not self._is_open.is_set():\nreturn None",
        after="await self._is_open.wait()",
        test="test_a_gateway_that_restarts_is_found_again",
    ),
)
