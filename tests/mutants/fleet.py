"""Mutants of `remoteclaw/fleet/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a restored fleet that begins at once",
        before="await self._scripts.call(client.set, keys.RESTORED, backup_ms)",
        after="pass",
        test="test_a_conversation_goes_on_from_a_backup_once_the_operator_has_seen_what_waits",
    ),
    Mutant(
        "a reply in a backup that is sent without a look",
        before='if provider == "web":\nreturn',
        after="return",
        test="test_a_conversation_goes_on_from_a_backup_once_the_operator_has_seen_what_waits",
        within="_hold_replies",
    ),
    Mutant(
        "a worker of a drained host that goes on taking work",
        before="os.kill(os.getpid(), signal.SIGTERM)",
        after="pass",
        test="test_a_drained_host_finishes_its_turns_and_others_take_the_rest",
    ),
    Mutant(
        "a chat that the table of its server does not limit",
        before="return config.knowing(session.place, facts.within)",
        after="return config",
        test="test_the_table_of_a_server_is_for_the_chats_in_it",
    ),
    Mutant(
        "entries that are answered again because they were prefetched",
        before="self.prefetched_entries = None",
        after="pass",
        test="test_entries_read_with_the_lease_are_read_again_after_a_write",
        within="run_fenced",
    ),
    Mutant(
        "a running process that loads scripts of a newer version",
        before="body = _SOURCES[name]",
        after='body = (Path(__file__).parent / "scripts" / f"{name}.lua").read_text()',
        test="test_a_running_process_keeps_its_scripts_during_an_upgrade",
    ),
    Mutant(
        "signed tokens that stay valid after their user was revoked",
        before="return until_ms is not None and issued_ms <= until_ms",
        after="return False",
        test="test_connections_close_when_their_signed_token_becomes_invalid[lost]",
    ),
    Mutant(
        "a browser that is notified without a valid token",
        before="if view is None or view.is_expired:",
        after="if view is None:",
        test="test_a_browser_without_a_valid_token_is_not_notified",
        within="PushSubscriptions",
    ),
    Mutant(
        "a display name that poses as another person",
        before="_code(name)",
        after="name",
        test="test_another_chat_answers_a_request_and_the_conversation_gets_one_sentence",
    ),
    Mutant(
        "a command in a message of another session's agent",
        before='if entry.origin != "chat" or entry.is_command is not None:',
        after="if False:",
        test="test_only_people_give_commands",
    ),
    Mutant(
        "a chat message that counts as an operator's reset",
        before='if entry.origin == "operator":',
        after='if entry.message.text.startswith("operator"):',
        test="test_a_chat_message_with_the_text_of_an_operators_reset_resets_nothing",
    ),
    Mutant(
        "a platform call that begins shortly before its claim expires",
        before="CLAIM_FRACTION * self._claim_ms / 1000",
        after="self._claim_ms / 1000",
        test="test_no_platform_call_begins_shortly_before_its_claim_expires",
    ),
    Mutant(
        "a claim that is taken from a running process",
        before="return bool(process) and not is_alive(process)",
        after="return bool(process)",
        test="test_the_claim_of_a_killed_process_is_free_at_once",
    ),
    Mutant(
        "a claim that counts after it expired during a freeze",
        before="while not self.has_claim:",
        after="while False:",
        test="test_a_frozen_adapter_sends_nothing_after_its_claim_expired",
    ),
    Mutant(
        "a finish that sends its replies in a separate step",
        before='finished = await self._lease.run_fenced(\n    "finish",',
        after=(
            "for payload in payloads:\n"
            "    await self._lease.scripts.client.xadd(\n"
            "        self._reply_stream, {'reply': orjson.dumps(payload)}\n"
            "    )\n"
            "payloads = ()\n"
            "finished = await self._lease.run_fenced(\n"
            '    "finish",'
        ),
        test="test_messages_have_one_outcome_if_a_worker_fails_at[finish-before-kill]",
    ),
    Mutant(
        "a lease that is not renewed",
        before="stop_mark, newest_entry = await self._renew()",
        after="continue",
        test="test_the_owner_of_a_lease_is_notified_of_new_messages_and_stops",
    ),
    Mutant(
        "an append without an answer that is reported as not sent",
        before="if error.may_have_run:",
        after="if False:",
        test="test_an_append_without_an_answer_is_reported_as_perhaps_sent",
    ),
    Mutant(
        "an append without a server that is reported as perhaps sent",
        before="was_sent or may_have_run(error)",
        after="True",
        test="test_an_append_that_reaches_no_server_is_reported_as_not_sent",
    ),
    Mutant(
        "writes behind Sentinel that count at once",
        before='is_replicated="+sentinel:" in url',
        after="is_replicated=False",
        test="test_an_old_primary_that_lives_on_says_nothing_and_its_turn_is_done_elsewhere",
    ),
    Mutant(
        "an adapter that says what only an old primary has",
        before="return await self.claim() and self._scripts.moves == moves",
        after="return True",
        test="test_an_old_primary_that_lives_on_says_nothing_and_its_turn_is_done_elsewhere",
    ),
    Mutant(
        "a sweeper that does nothing",
        before="await self.sweep()",
        after="pass",
        test="test_messages_have_one_outcome_if_a_worker_fails_at[acquire-before-kill]",
    ),
    Mutant(
        "a frozen owner that keeps its lease",
        before="if boottime() > self.stop_at:",
        after="if False:",
        test="test_an_owner_that_was_frozen_too_long_gives_up_its_lease",
    ),
    Mutant(
        "a gateway's address that another machine uses",
        before="{host_id}:{boot_id()}",
        after="{host_id}",
        test="test_each_machine_has_its_own_gateway_address",
    ),
    Mutant(
        "a task's result that is written in a step before its turn's end",
        before='finished = await self._lease.run_fenced(\n    "finish",',
        after=(
            "if task_result:\n"
            "    got, sid = task_result, task_result.to.sid\n"
            '    await self._lease.scripts.client.xadd(keys.inbound(sid), {"entry": got.entry})\n'
            "    await self._lease.scripts.client.zadd(keys.ACTIVE, {sid: 0})\n"
            '    await self._lease.scripts.client.hset(keys.state(sid), "status", "scheduled")\n'
            '    await self._lease.scripts.client.hset(keys.state(sid), "key", str(got.to))\n'
            "    task_result = None\n"
            "finished = await self._lease.run_fenced(\n"
            '    "finish",'
        ),
        test="test_the_result_of_a_task_arrives_once_if_its_worker_fails_at[finish-before-kill]",
    ),
    Mutant(
        "a retried task with unlimited depth",
        before="OF_UNKNOWN_TASK if key.task else UNLIMITED",
        after="UNLIMITED",
        test="test_a_task_retried_after_its_state_expired_still_returns_its_result",
    ),
    Mutant(
        "a hint whose description has personal data",
        before='"/".join([*key.split("/")[:2], sid[:8]])',
        after="key",
        test="test_the_dashboard_shows_queues_workers_and_jobs_but_no_personal_data",
    ),
    Mutant(
        "a plan's approval that a crash loses",
        before="request.is_question or request.is_plan",
        after="request.is_question",
        test="test_a_crash_loses_neither_a_plan_nor_its_answer",
    ),
    Mutant(
        "a login link that works twice",
        before="client.getdel",
        after="client.get",
        test="test_a_login_link_works_once",
    ),
    Mutant(
        "a session that is free before its dead owner's leftovers ended",
        before="await asyncio.to_thread(end_left)",
        after="pass",
        test="test_leftovers_of_a_dead_holder_end_before_its_session_is_free",
    ),
    Mutant(
        "a button that allows an action that people can't see completely",
        before="if self.incomplete:",
        after="if False:",
        test="test_requests_in_a_webhook_show_exactly_what_will_run",
    ),
    Mutant(
        "a model that is left alone for all accounts",
        before="told = orjson.dumps([runtime, *account])",
        after="told = orjson.dumps([runtime])",
        test="test_an_agent_with_another_account_is_asked",
    ),
)
