"""Mutants of `remoteclaw/connector/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a connector with a person's rights below an agent",
        before="if _is_of_agent(environ):",
        after="if False:",
        test="test_it_gives_agents_of_remoteclaw_no_rights_of_the_person",
    ),
    Mutant(
        "a connector that sends its token to an address",
        before='return f"{_home(environ)}/gateways", 0',
        after='url = "http://127.0.0.1:18789"',
        test="test_a_stranger_who_listens_at_the_address_gets_nothing",
    ),
    Mutant(
        "a connector that uses a directory of others",
        before="if found.st_uid != os.getuid() or found.st_mode & 0o077:",
        after="if False:",
        test="test_a_directory_in_which_others_could_listen_is_not_used",
    ),
    Mutant(
        "a connector with the owner's token",
        before='path = f"{_home(environ)}/connector-token"',
        after='path = f"{_home(environ)}/gateway-token"',
        test="test_a_gateway_at_any_port_is_found_without_a_setting",
    ),
    Mutant(
        "a call that a gateway which was restarted never gets",
        before="if not (broken.is_cut and request.is_call) or request.call.is_cancelled:",
        after="if True:",
        test="test_a_call_is_sent_again_under_the_same_id",
    ),
    Mutant(
        "a call that has its whole time again with each attempt",
        before="self._until = self._until or now + self.timeout_s",
        after="self._until = now + self.timeout_s",
        test="test_attempts_have_no_more_time_than_one_call",
    ),
)
