"""Mutants of `remoteclaw/fleet/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "scripts of a newer version under a process that runs",
        before="body = _SOURCES[name]",
        after='body = (Path(__file__).parent / "scripts" / f"{name}.lua").read_text()',
        test="test_an_upgrade_beneath_a_process_changes_none_of_its_scripts",
    ),
    Mutant(
        "a lost user's signed tokens that stay valid",
        before="return until_ms is not None and issued_ms <= until_ms",
        after="return False",
        test="test_a_token_that_is_not_valid_any_more_closes_its_connections[lost]",
    ),
    Mutant(
        "a lost user who never gets in again",
        before="return until_ms is not None and issued_ms <= until_ms",
        after="return until_ms is not None",
        test="test_a_token_that_is_not_valid_any_more_closes_its_connections[lost]",
    ),
    Mutant(
        "a terminal that is settled and counts as held",
        before="if not holder or worker != holder or not place",
        after="if not holder or not place",
        test="test_it_is_nobodys_before_its_time_is_over_and_then_anybodys",
    ),
    Mutant(
        "a request that hides that it may have been done already",
        before="asked = replace(request, is_again=is_again)",
        after="asked = request",
        test="test_what_may_have_run_already_is_asked_anew_and_says_so",
    ),
    Mutant(
        "a session that works though its turn is over",
        before='self.status == "running" and not self.turn and not self.waiting',
        after="False",
        test="test_a_session_is_idle_as_soon_as_its_turn_is_over",
    ),
    Mutant(
        "a browser that is notified without its token",
        before="if view is None or view.is_expired:",
        after="if view is None:",
        test="test_without_its_token_a_browser_is_told_nothing",
        within="Pushes",
    ),
    Mutant(
        "browsers without end",
        before="for token in newest[:-MOST]:",
        after="for token in ():",
        test="test_no_more_than_the_newest_browsers_of_a_person_are_notified",
    ),
    Mutant(
        "a name that poses as another person's",
        before="_code(name)",
        after="name",
        test="test_another_chat_answers_and_both_learn_what_came_of_it",
    ),
    Mutant(
        "a title that stays when a new conversation begins",
        before='is_new = command is not None and command.name == "reset"',
        after="is_new = False",
        test="test_a_session_is_called_after_its_first_words",
    ),
    Mutant(
        "a title that half a session's name fits, twice",
        before='if exact or field == "label" or not wanted:',
        after="if True:",
        test="test_a_session_is_called_after_its_first_words",
    ),
    Mutant(
        "a full disk that is called a right that is missing",
        before="if problem := unwritable(str(error)):",
        after="if problem := None:",
        test="test_a_disk_that_takes_nothing_is_named_and_passes",
    ),
    Mutant(
        "a command that another session's agent gives",
        before='if entry.origin != "chat" or entry.is_command is not None:',
        after="if False:",
        test="test_only_people_give_commands",
    ),
    Mutant(
        "a person who speaks as an operator",
        before='if entry.origin == "operator":',
        after='if entry.message.text.startswith("operator"):',
        test="test_an_operator_s_words_are_no_command_of_a_chat",
    ),
    Mutant(
        "a call that begins late in a claim",
        before="GUARD * self._claim_ms / 1000",
        after="self._claim_ms / 1000",
        test="test_no_call_begins_late_in_a_claim",
    ),
    Mutant(
        "a claim that outlives its process",
        before="if other and _has_ended(other.decode()):",
        after="if False:",
        test="test_the_claim_of_a_process_that_was_killed_is_not_waited_for",
    ),
    Mutant(
        "a claim that is taken from a process that runs",
        before="return bool(process) and not is_alive(process)",
        after="return bool(process)",
        test="test_the_claim_of_a_process_that_was_killed_is_not_waited_for",
    ),
    Mutant(
        "a frozen claim that is believed",
        before="while not self.is_mine:",
        after="while False:",
        test="test_a_copy_that_was_frozen_sends_nothing",
    ),
    Mutant(
        "a refusal before a turn's last message that nobody reads",
        before="entries = [reply.turn]",
        after="pass",
        test="test_a_refused_message_before_the_last_one_is_told_with_its_turn",
    ),
    Mutant(
        "finish split in two",
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
        test="test_a_worker_at[finish-before-kill]",
    ),
    Mutant(
        "a lease that is not renewed",
        before="news_of_turn = await self._renew()",
        after="continue",
        test="test_renewing_tells_of_a_message_and_of_a_stop",
    ),
    Mutant(
        "a message without an answer that is called not sent",
        before="if error.may_have_run:",
        after="if False:",
        test="test_a_message_without_an_answer_is_perhaps_sent",
    ),
    Mutant(
        "a message without a server that is called perhaps sent",
        before="may_have_run or _may_have_run(error)",
        after="True",
        test="test_a_message_that_found_no_server_is_not_sent",
    ),
    Mutant(
        "a lost conversation that is told again",
        before="has_remembered=conversation is not None",
        after="has_remembered=self.state.has_remembered",
        test="test_a_conversation_that_was_dropped_is_lost_once",
    ),
    Mutant(
        "sweeper off",
        before="await self.sweep()",
        after="",
        test="test_a_worker_at[acquire-before-kill]",
    ),
    Mutant(
        "queues of dead hosts that nobody clears",
        before="if await client.exists(keys.host(name)):",
        after="if True:",
        test="test_the_queue_of_a_host_that_is_gone_is_removed",
    ),
    Mutant(
        "commands that don't work on a full Redis",
        before="_PROBE_OF_ROOM if needs_room else _PROBE",
        after="_PROBE_OF_ROOM",
        test="test_memory_that_is_full_at_the_start_is_named_to_those_that_need_some",
    ),
    Mutant(
        "an owner that does not fence itself",
        before="if boottime() > self.stop_at:",
        after="if False:",
        test="test_a_lease_that_nobody_renews_is_given_up",
    ),
    Mutant(
        "what a chat has sent is counted by threads",
        before="replace(session, thread=None, task=None).sid",
        after="session.sid",
        test="test_a_chat_sends_three_hundred_messages_an_hour",
    ),
    Mutant(
        "a cap that is forgotten at a hand-over",
        before='busy_since_ms=_ms(text.get("busy_since_ms")),',
        after="busy_since_ms=None,",
        test="test_the_cap_is_not_forgotten_when_the_session_changes_hands",
    ),
    Mutant(
        "a gateway's address that another machine uses",
        before="{host_id}:{boot_id()}",
        after="{host_id}",
        test="test_each_machine_has_a_gateway_of_its_own",
    ),
    Mutant(
        "a result that is written beside the end of its turn",
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
        test="test_a_worker_with_a_task_of_another_session_at[finish-before-kill]",
    ),
    Mutant(
        "a retried result that counts as said by a person",
        before="keys.bell(sid) if is_said else None",
        after="keys.bell(sid)",
        test="test_a_retried_result_is_not_said_by_a_person",
    ),
    Mutant(
        "a task that may everything once its depth is forgotten",
        before="MAX_DEPTH if key.task else 0",
        after="0",
        test="test_a_task_that_is_retried_when_nothing_else_is_known_of_it",
    ),
    Mutant(
        "a hint that names people",
        before='"/".join([*key.split("/")[:2], sid[:8]])',
        after="key",
        test="test_it_shows_queues_workers_and_jobs_readably",
    ),
    Mutant(
        "a note is lost with its process",
        before='f"{session_id}{NOTE_SEPARATOR}{note}"',
        after="session_id",
        test="test_a_note_is_kept_with_the_id",
    ),
    Mutant(
        "a gateway that is forgotten while it starts anew",
        before="if not stays():",
        after="if True:",
        test="test_who_asks_meanwhile_waits_and_is_answered",
    ),
    Mutant(
        "a chosen model that no list shows",
        before="return self.model or (agent.model if agent else None)",
        after="return agent.model if agent else None",
        test="test_a_session_has_the_model_that_was_chosen_for_it",
    ),
    Mutant(
        "reactions that are told each time",
        before='is_told = is_told or (line["sid"] == sid and "from" in line)',
        after="pass",
        test="test_reactions_are_told_to_the_session_that_they_are_for_and_once",
    ),
    Mutant(
        "reactions that are told to another session",
        before='if line["sid"] == sid and not is_told:',
        after="if not is_told:",
        test="test_reactions_are_told_to_the_session_that_they_are_for_and_once",
    ),
    Mutant(
        "a whole text in a chat's history",
        before="text = text[: LONGEST + 1].encode",
        after="return text\ntext = text.encode",
        test="test_it_is_bounded_and_ends_by_itself",
    ),
    Mutant(
        "a topic that reads another one",
        before='if thread in (None, line["thread"]) and len(found) < limit:',
        after="if len(found) < limit:",
        test="test_each_thread_is_read_by_itself_and_the_chat_as_a_whole",
    ),
    Mutant(
        "requests that are kept and not found",
        before='match=keys.ask("*")',
        after="match=keys.ASKS",
        test="test_a_request_that_is_closed_is_found_with_who_has_answered",
    ),
    Mutant(
        "a session that its own hint drives out",
        before='if words and not words.decode().endswith(f"/{self.sid[:8]}"):',
        after="if words:",
        test="test_a_turn_is_in_the_way_of_others_and_not_of_its_own_hint",
        within="_has_hints_of_others",
    ),
    Mutant(
        "a request whose file is gone once it is shown",
        before="kept = reply.attachments",
        after="pass",
        test="test_what_is_long_is_whole_in_a_file_below_its_card",
    ),
    Mutant(
        "a number that only the newest card takes",
        before='if b"" in ids else ids',
        after="if False else ids[-1:]",
        test="test_a_number_answers_the_older_card_once_the_newer_one_is_answered",
    ),
    Mutant(
        "an approval that a crash loses",
        before="request.is_question or request.is_plan",
        after="request.is_question",
        test="test_a_crash_loses_neither_a_plan_nor_its_answer",
    ),
    Mutant(
        "a link that is good twice",
        before="client.getdel",
        after="client.get",
        test="test_a_link_is_good_once",
    ),
    Mutant(
        "sessions that wait before those that run",
        before='key=lambda one: one[0] != [b"running"]',
        after="key=lambda one: one[1]",
        test="test_sessions_that_run_are_told_before_those_that_wait",
    ),
    Mutant(
        "a refused reply that is tried again as a message",
        before="if letter.stream:",
        after="if False:",
        test="test_a_reply_that_was_refused_is_sent_again",
    ),
    Mutant(
        "a worker of which nobody knows what it works on",
        before='found = re.search("[0-9a-f]{8}$", (about or b"").decode(errors="replace"))',
        after="found = None",
        test="test_who_works_on_what_is_told_and_what_is_warm_then",
    ),
    Mutant(
        "a branch in the place of a task with the same prompt",
        before="asked = orjson.dumps([str(place), message.text, label, knows])",
        after="asked = orjson.dumps([str(place), message.text, label])",
        test="test_an_attempt_that_begins_anew_gets_the_branch_of_the_one_before",
    ),
    Mutant(
        "a session that is free before what its owner has left is gone",
        before="await asyncio.to_thread(end_left)",
        after="pass",
        test="test_what_a_dead_holder_has_left_is_ended_before_anybody_has_its_session",
    ),
    Mutant(
        "a terminal that is settled and counts as held",
        before="if not holder or worker != holder or not place",
        after="if not holder or not place",
        test="test_it_is_nobodys_before_its_time_is_over_and_then_anybodys",
    ),
)
