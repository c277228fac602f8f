"""Mutants of `remoteclaw/fleet/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a fork of a session on a full server",
        before='"fire", "fork", "pairing"',
        after='"fire", "pairing"',
        test="test_a_full_server_refuses_to_fork_a_session",
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
        "a revoked user whose newer tokens are refused as well",
        before="return until_ms is not None and issued_ms <= until_ms",
        after="return until_ms is not None",
        test="test_connections_close_when_their_signed_token_becomes_invalid[lost]",
    ),
    Mutant(
        "a terminal under settlement that counts as held",
        before="if not holder or worker != holder or not place",
        after="if not holder or not place",
        test="test_a_terminal_lease_can_be_taken_over_only_after_it_expires",
    ),
    Mutant(
        "a repeated request that hides that its action may have run",
        before="asked = replace(request, is_again=is_again)",
        after="asked = request",
        test="test_a_command_that_may_have_run_already_is_asked_again_with_a_warning",
    ),
    Mutant(
        "a session that counts as running after its turn",
        before='self.status == "running" and not self.turn and not self.waiting',
        after="False",
        test="test_a_session_is_idle_as_soon_as_its_turn_is_over",
    ),
    Mutant(
        "a browser that is notified without a valid token",
        before="if view is None or view.is_expired:",
        after="if view is None:",
        test="test_a_browser_without_a_valid_token_is_not_notified",
        within="PushSubscriptions",
    ),
    Mutant(
        "an unlimited number of notified browsers",
        before="for token in newest[:-MAX_BROWSERS]:",
        after="for token in ():",
        test="test_only_the_ten_newest_browsers_of_a_person_are_notified",
    ),
    Mutant(
        "a display name that poses as another person",
        before="_code(name)",
        after="name",
        test="test_another_chat_answers_a_request_and_both_chats_see_the_result",
    ),
    Mutant(
        "a title that stays after a new conversation begins",
        before='is_new = command is not None and command.name == "reset"',
        after="is_new = False",
        test="test_the_title_of_a_session_is_its_first_message",
    ),
    Mutant(
        "a partial title that matches two sessions",
        before='if exact or field == "label" or not text:',
        after="if True:",
        test="test_the_title_of_a_session_is_its_first_message",
    ),
    Mutant(
        "a full disk that is reported as a missing permission",
        before="if problem := write_problem(str(error)):",
        after="if problem := None:",
        test="test_a_full_disk_is_reported_until_it_has_space_again",
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
        "a claim that outlasts its killed process",
        before="if other and _has_ended(other.decode()):",
        after="if False:",
        test="test_the_claim_of_a_killed_process_is_free_at_once",
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
        "a refusal of an earlier message that is missing in the outcome",
        before="entries = [reply.turn]",
        after="pass",
        test="test_a_refused_message_before_the_last_is_noted_in_its_turns_outcome",
    ),
    Mutant(
        "a finish that sends its replies in a separate step",
        before='left, hints, now, queue, hint = await self._lease.run_fenced(\n    "finish",',
        after=(
            "for payload in payloads:\n"
            "    await self._lease.scripts.client.xadd(\n"
            "        self._reply_stream, {'reply': orjson.dumps(payload)}\n"
            "    )\n"
            "payloads = ()\n"
            "left, hints, now, queue, hint = await self._lease.run_fenced(\n"
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
        before="may_have_run or _may_have_run(error)",
        after="True",
        test="test_an_append_that_reaches_no_server_is_reported_as_not_sent",
    ),
    Mutant(
        "a lost conversation that is reported twice",
        before="has_remembered=conversation is not None",
        after="has_remembered=self.state.has_remembered",
        test="test_a_dropped_conversation_counts_as_lost_once",
    ),
    Mutant(
        "a sweeper that does nothing",
        before="await self.sweep()",
        after="",
        test="test_messages_have_one_outcome_if_a_worker_fails_at[acquire-before-kill]",
    ),
    Mutant(
        "queues of lost hosts that stay",
        before='if "@" not in name or await client.exists(keys.host(name)):',
        after="if True:",
        test="test_the_queue_of_a_lost_host_is_removed",
    ),
    Mutant(
        "read-only commands that fail on a full Redis",
        before="_PROBE_OF_ROOM if needs_room else _PROBE",
        after="_PROBE_OF_ROOM",
        test="test_full_memory_is_refused_at_the_start_only_to_programs_that_need_room",
    ),
    Mutant(
        "a frozen owner that keeps its lease",
        before="if boottime() > self.stop_at:",
        after="if False:",
        test="test_an_owner_that_was_frozen_too_long_gives_up_its_lease",
    ),
    Mutant(
        "a limit on sent messages that counts each thread alone",
        before="replace(session, thread=None, task=None).sid",
        after="session.sid",
        test="test_the_turns_of_a_chat_send_at_most_300_messages_an_hour",
    ),
    Mutant(
        "a queue's cap that is lost when the session changes workers",
        before='busy_since_ms=_ms(text.get("busy_since_ms")),',
        after="busy_since_ms=None,",
        test="test_the_cap_still_applies_after_another_worker_takes_over",
    ),
    Mutant(
        "a gateway's address that another machine uses",
        before="{host_id}:{boot_id()}",
        after="{host_id}",
        test="test_each_machine_has_its_own_gateway_address",
    ),
    Mutant(
        "a task's result that is written in a step before its turn's end",
        before='left, hints, now, queue, hint = await self._lease.run_fenced(\n    "finish",',
        after=(
            "if task_result:\n"
            "    got, sid = task_result, task_result.to.sid\n"
            '    await self._lease.scripts.client.xadd(keys.inbound(sid), {"entry": got.entry})\n'
            "    await self._lease.scripts.client.zadd(keys.ACTIVE, {sid: 0})\n"
            '    await self._lease.scripts.client.hset(keys.state(sid), "status", "scheduled")\n'
            '    await self._lease.scripts.client.hset(keys.state(sid), "key", str(got.to))\n'
            "    task_result = None\n"
            "left, hints, now, queue, hint = await self._lease.run_fenced(\n"
            '    "finish",'
        ),
        test="test_the_result_of_a_task_arrives_once_if_its_worker_fails_at[finish-before-kill]",
    ),
    Mutant(
        "a retried result that counts as a person's message",
        before="keys.bell(sid) if is_of_person else None",
        after="keys.bell(sid)",
        test="test_a_retried_result_does_not_count_as_a_persons_message",
    ),
    Mutant(
        "a retried task with unlimited depth",
        before="MAX_DEPTH if key.task else 0",
        after="0",
        test="test_a_task_retried_after_its_state_expired_still_returns_its_result",
    ),
    Mutant(
        "a hint whose description has personal data",
        before='"/".join([*key.split("/")[:2], sid[:8]])',
        after="key",
        test="test_the_dashboard_shows_queues_workers_and_jobs_but_no_personal_data",
    ),
    Mutant(
        "a note that is lost with its process",
        before='f"{session_id}{NOTE_SEPARATOR}{note}"',
        after="session_id",
        test="test_a_note_is_stored_with_the_id",
    ),
    Mutant(
        "a gateway whose address is removed during its restart",
        before="if not is_restarting():",
        after="if True:",
        test="test_requests_during_a_gateway_restart_wait_and_are_answered",
    ),
    Mutant(
        "a chosen model that is missing in lists",
        before="return self.model or (agent.model if agent else None)",
        after="return agent.model if agent else None",
        test="test_lists_show_the_model_chosen_for_a_session",
    ),
    Mutant(
        "reactions that are passed more than once",
        before='is_older = is_older or (line["sid"] == sid and "from" in line)',
        after="pass",
        test="test_reactions_are_passed_once_to_the_session_they_are_for",
    ),
    Mutant(
        "reactions that are passed to another session",
        before='if line["sid"] == sid and not is_older:',
        after="if not is_older:",
        test="test_reactions_are_passed_once_to_the_session_they_are_for",
    ),
    Mutant(
        "a text of unlimited length in a chat's history",
        before="text = text[: MAX_TEXT_CHARS + 1].encode",
        after="return text\ntext = text.encode",
        test="test_the_history_of_a_chat_is_bounded_and_expires",
    ),
    Mutant(
        "a topic whose history has messages of other topics",
        before='if thread in (None, line["thread"]) and len(messages) < limit:',
        after="if len(messages) < limit:",
        test="test_a_history_is_read_by_thread_or_as_a_whole",
    ),
    Mutant(
        "stored requests that are not listed",
        before='match=keys.request("*")',
        after="match=keys.REQUESTS",
        test="test_a_closed_request_is_listed_with_its_answer",
    ),
    Mutant(
        "a session that gives way to its own hint",
        before='if description and not description.decode().endswith(f"/{self.sid[:8]}"):',
        after="if description:",
        test="test_a_worker_is_needed_for_other_sessions_but_not_for_its_own_hint",
        within="_has_hints_of_others",
    ),
    Mutant(
        "a request whose file is deleted after delivery",
        before="kept = reply.attachments",
        after="pass",
        test="test_a_long_request_is_attached_in_full_as_a_file",
    ),
    Mutant(
        "a number that answers only the newest card",
        before='if b"" in ids else ids',
        after="if False else ids[-1:]",
        test="test_a_number_answers_the_older_card_once_the_newer_one_is_answered",
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
        "waiting sessions that are listed before running ones",
        before='key=lambda one: one[0] != [b"running"]',
        after="key=lambda one: one[1]",
        test="test_running_sessions_are_listed_before_waiting_ones",
    ),
    Mutant(
        "a refused reply that is retried as an inbound message",
        before="if letter.stream:",
        after="if False:",
        test="test_a_dead_letter_of_a_refused_reply_is_sent_again",
    ),
    Mutant(
        "a busy worker without its session in the status",
        before='match = re.search("[0-9a-f]{8}$", (description or b"").decode(errors="replace"))',
        after="match = None",
        test="test_fleet_status_lists_busy_workers_and_warm_agents",
    ),
    Mutant(
        "a branch that is taken for a task with the same prompt",
        before="asked = orjson.dumps([str(place), message.text, label, knows])",
        after="asked = orjson.dumps([str(place), message.text, label])",
        test="test_a_new_attempt_reuses_the_branch_of_the_previous_attempt",
    ),
    Mutant(
        "a session that is free before its dead owner's leftovers ended",
        before="await asyncio.to_thread(end_left)",
        after="pass",
        test="test_leftovers_of_a_dead_holder_end_before_its_session_is_free",
    ),
    Mutant(
        "a long action that people allow although its text has no room in Redis",
        before="return replace(request, what=with_note(request.what, NO_FILE), incomplete=NO_FILE)",
        after="return request",
        test="test_a_long_action_without_room_for_its_text_can_only_be_denied",
    ),
    Mutant(
        "a button that allows an action that people can't see completely",
        before="if self.incomplete:",
        after="if False:",
        test="test_requests_in_a_webhook_show_exactly_what_will_run",
    ),
)
