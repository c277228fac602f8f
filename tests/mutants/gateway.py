"""Mutants of `remoteclaw/gateway/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an operator's task that has more rights than the operator",
        before='may_speak = self.operator.has("admin")',
        after="may_speak = True",
        test="test_what_an_operator_sets_going_is_the_user_s",
    ),
    Mutant(
        "a call that is asked again and wants its file again",
        before="if made is None:",
        after="if True:",
        test="test_a_repeated_call_does_not_need_its_file_any_more",
        within="send",
    ),
    Mutant(
        "a tool's file from anywhere",
        before="asyncio.to_thread(outgoing.read, path)",
        after="asyncio.to_thread(path.read_bytes)",
        test="test_what_no_tool_sends",
    ),
    Mutant(
        "files that a gateway holds all at once",
        before="async with call.transfers.one(call.principal, is_fetched=is_fetched):",
        after="if True:",
        test="test_a_call_waits_for_its_turn_to_hold_a_file",
    ),
    Mutant(
        "one agent that takes the places of all",
        before="await held.enter_async_context(own)",
        after="pass",
        test="test_one_agent_does_not_take_the_places_of_all",
    ),
    Mutant(
        "an account that nobody reads for",
        before='if account not in (known or {"default"}):',
        after="if False:",
        test="test_there_is_no_such_place",
    ),
    Mutant(
        "a question that is asked again while it is worked on",
        before="if outcome and not outcome.is_final:",
        after="if False:",
        test="test_what_was_not_answered_in_time_is_not_sent_again",
    ),
    Mutant(
        "a wait that the agent's CLI gives up first",
        before="min(params.timeout, contract.SEND_WAIT_S)",
        after="params.timeout",
        test="test_nothing_waits_longer_than_agents_clis_do",
    ),
    Mutant(
        "an agent that names another session as its own",
        before="if not isinstance(principal, Operator):\n    return None",
        after="if False:\n    return None",
        test="test_an_agent_names_no_other_session_of_a_chat",
    ),
    Mutant(
        "a message that failed and is written down as sent",
        before='if any(one.status != "failed" for one in sent):',
        after="if True:",
        test="test_what_the_platform_refused_is_noted_as_not_sent",
    ),
    Mutant(
        "a message to a console that nobody has",
        before="if (provider, own) in readers.until_ms or not accounts:",
        after="if True:",
        test="test_what_a_command_line_s_session_sends_to_the_console_arrives",
    ),
    Mutant(
        "a time of day that is silently UTC",
        before="tz=wanted.tz or (zone if by_wall_clock else None)",
        after="tz=wanted.tz",
        test="test_a_time_is_in_the_zone_of_the_agent_else_of_the_host",
    ),
    Mutant(
        "a stranger's turn that writes everywhere",
        before="if not tool_policy.may_send(",
        after="if False and not tool_policy.may_send(",
        test="test_a_stranger_s_turn_writes_to_no_other_chat",
    ),
    Mutant(
        "a message elsewhere that doesn't say where it comes from",
        before=(
            'return f"(From {own.provider}:{own.channel_id}, by {own.agent}:)\\n{text}".rstrip()'
        ),
        after="return text",
        test="test_what_may_be_sent_elsewhere_says_where_it_comes_from",
    ),
    Mutant(
        "a task for nobody",
        before="people=call.people(parent.key),",
        after="people=(),",
        test="test_a_task_and_its_result_have_the_rights_of_who_asked[1-True]",
    ),
    Mutant(
        "a cron job that is an owner's whoever made it",
        before="people = call.people(session)",
        after='people = ("telegram:1",)',
        test="test_a_cron_run_has_the_rights_that_its_maker_has_now[666-False]",
    ),
    Mutant(
        "a spawned session with all rights",
        before="caller.turn.entries, depth=caller.depth)",
        after="caller.turn.entries)",
        test="test_a_task_may_no_more_than_its_depth",
    ),
    Mutant(
        "a page of the history that leaves something out",
        before="list(itertools.accumulate((item.at for item in items), max))",
        after="[item.at for item in items]",
        test="test_history_has_pages",
    ),
    Mutant(
        "a run of a cron job that is doubled",
        before="if is_new and not params.force:",
        after="if False:",
        test="test_a_run_under_way_is_not_doubled_unless_forced",
    ),
    Mutant(
        "a job of another agent's that an agent sees",
        before="return call.caller is None or call.caller.session.agent == agent",
        after="return True",
        test="test_for_an_agent_there_are_the_jobs_of_its_own_agent",
    ),
    Mutant(
        "a gateway that any name leads to",
        before="if not is_own_name(hosts[0].lower(), config):",
        after="if False:",
        test="test_cve_2025_66416_mcp_can_not_be_reached_by_a_name_of_others",
    ),
    Mutant(
        "a gateway that any page may use",
        before="if any(origin.lower() not in config.origins for origin in origins):",
        after="if False:",
        test="test_cve_2025_52882_a_socket_on_loopback_wants_a_token_and_an_origin",
    ),
    Mutant(
        "a connector's token that may do everything",
        before='TokenFile(directory, "connector", "write")',
        after='TokenFile(directory, "connector", "admin")',
        test="test_an_older_installation_gets_the_connectors_token",
    ),
    Mutant(
        "a gateway that takes its private socket with it when it is restarted",
        before="if not restarts:",
        after="if True:",
        test="test_who_asks_while_it_is_restarted_waits",
    ),
    Mutant(
        "a token in an address",
        before='if _has_secret(scope["query_string"]):',
        after="if False:",
        test="test_a_token_in_an_address_is_refused_and_said",
    ),
    Mutant(
        "a token that is believed because it is there",
        before="if own is not None and is_same(own, given):",
        after="if own is not None:",
        test="test_cve_2026_28472_that_there_is_a_token_proves_nothing",
    ),
    Mutant(
        "a scope that nobody looks at",
        before="if not principal.has(method.scope):\n    raise",
        after="if False:\n    raise",
        test="test_over_http",
    ),
    Mutant(
        "tools between turns",
        before="if caller.turn is None:\n    raise CallRefused",
        after="if False:\n    raise CallRefused",
        test="test_a_token_is_worth_nothing_between_turns",
    ),
    Mutant(
        "connections that outlive their token",
        before="return self._own(principal.credential) == principal",
        after="return True",
        test="test_connections_with_the_old_token_of_the_gateway_are_closed",
    ),
    Mutant(
        "a token of an agent before that still counts",
        before="caller.grant is None or not is_same(caller.grant.digest, agent.digest):",
        after="caller.grant is None:",
        test="test_the_token_of_an_agent_before_is_worth_nothing",
    ),
    Mutant(
        "what is shown may be used by everybody",
        before="check_allowed(self._config(), caller, method)",
        after="pass",
        test="test_a_refusal_is_a_tools_error_that_a_model_can_read",
    ),
    Mutant(
        "a tool that the process was not granted",
        before="if caller.grant is not None and tool.tool in caller.grant.tools:",
        after="if True:",
        test="test_rights_are_the_narrower_of_grant_and_policy",
    ),
    Mutant(
        "a tool that the policy of now denies",
        before="if ruling.allowed and caller.turn.is_whole:",
        after="if caller.turn.is_whole:",
        test="test_rights_are_the_narrower_of_grant_and_policy",
    ),
    Mutant(
        "a change whose base nobody looks at",
        before="if base_hash not in (None, version.hash):",
        after="if False:",
        test="test_configuration.py::test_a_file_that_has_changed_since_is_left_alone",
    ),
    Mutant(
        "a change that was noted and is never made",
        before=(
            "return None  # it was noted, and then this gateway was killed before it was written"
        ),
        after="return answer",
        test="test_what_was_noted_and_not_written_is_done_when_it_is_asked_again",
    ),
    Mutant(
        "a change that is done before it is confirmed",
        before="if not waits:",
        after="if True:",
        test="test_nothing_is_changed_before_a_person_says_so",
    ),
    Mutant(
        "a change that is confirmed for another file",
        before="if version.hash != change.base:",
        after="if False:",
        test="test_approvals.py::test_a_file_that_has_changed_since_is_left_alone",
    ),
    Mutant(
        "a change that is confirmed twice and done twice",
        before='if change.status == "done":\n    return change\nversion',
        after="version",
        test="test_what_is_confirmed_is_done_once",
    ),
    Mutant(
        "a change that is confirmed and was exchanged",
        before="if plan.after.hash != change.after:",
        after="if False:",
        test="test_what_somebody_put_there_gives_no_more_than_an_agent_has",
    ),
    Mutant(
        "a gateway that turns callers away while it starts anew",
        before="server.serve([listening.dup() for listening in sockets])",
        after="server.serve(list(sockets))",
        test="test_who_asks_meanwhile_waits_and_is_answered",
    ),
    Mutant(
        "a gateway that ends and can't come back",
        before="_check_start(call)",
        after="",
        test="test_with_a_configuration_that_cannot_be_used_it_stays",
    ),
    Mutant(
        "a gateway that starts anew although it is asked to end",
        before="return gateway.restart.wanted.is_set() and not stop.is_set()",
        after="return gateway.restart.wanted.is_set()",
        test="test_asked_to_end_while_it_starts_anew_it_ends",
    ),
)
