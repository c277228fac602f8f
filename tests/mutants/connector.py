"""Mutants of `remoteclaw/connector/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a connector with a person's rights in an agent",
        before="if _is_of_agent(environ):",
        after="if False:",
        test="test_the_connector_gives_remoteclaws_agents_no_rights_of_the_person",
    ),
    Mutant(
        "a connector that sends its token to a fixed address",
        before='return f"{socket_directory(state_directory(environ))}/gateways", 0',
        after='url = "http://127.0.0.1:18789"',
        test="test_another_program_at_the_gateways_address_receives_nothing",
    ),
    Mutant(
        "a connector that uses a directory that others can write",
        before="if status.st_uid != os.getuid() or status.st_mode & 0o077:",
        after="if False:",
        test="test_a_socket_directory_that_others_can_use_is_refused",
    ),
    Mutant(
        "a connector with the owner's token",
        before='path = f"{state_directory(environ)}/connector-token"',
        after='path = f"{state_directory(environ)}/gateway-token"',
        test="test_the_connector_finds_a_gateway_at_any_port_without_a_setting",
    ),
    Mutant(
        "a call that is not repeated after a restart of the gateway",
        before="if not (broken.is_cut and request.is_call) or request.call.is_cancelled:",
        after="if True:",
        test="test_a_call_is_retried_under_the_same_id",
    ),
)
