"""Mutants of the Lua scripts of `remoteclaw/fleet/`."""

from tests.mutants import Mutant

FENCED = "begin mark publish finish live remember reset close release renew postpone"
FENCE = "if fence then return fence end"


def _unfenced(script: str) -> Mutant:
    return Mutant(
        f"{script} without fencing",
        before=FENCE,
        after="",
        test="test_an_expired_lease_is_taken_over_and_the_old_holder_is_fenced",
        within=script,
    )


MUTANTS = (
    *map(_unfenced, FENCED.split()),
    Mutant(
        "steer without fencing",
        before=FENCE,
        after="",
        test="test_nothing_joins_a_turn_under_a_lost_lease",
        within="steer",
    ),
    Mutant(
        "a stray hint that asks before the time",
        before="held[5] and tonumber(held[5]) > now",
        after="false",
        test="test_a_stray_hint_does_not_ask_before_the_time",
    ),
    Mutant(
        "a message that wakes a postponed session",
        before="status == 'scheduled' and not postponed_until and",
        after="status == 'scheduled' and",
        test="test_what_comes_meanwhile_waits_behind",
    ),
    Mutant(
        "a sweeper that hints before the time",
        before="redis.call('ZADD', keys.active, args.until_ms, args.sid)",
        after="redis.call('ZADD', keys.active, now, args.sid)",
        test="test_a_stray_hint_does_not_ask_before_the_time",
    ),
    Mutant(
        "a stop that has to wait for the limit's end",
        before="'postponed_until_ms') == 1 then wake(sid, state) end",
        after="'postponed_until_ms') == 1 then end",
        test="test_a_stop_wakes_a_session_that_waits",
    ),
    Mutant(
        "a postponed attempt that counts as a failed one",
        before="redis.call('HINCRBY', keys.state, 'forgiven_attempts', 1)",
        after="",
        test="test_an_end_of_the_tries_is_told",
        within="postpone",
    ),
    Mutant(
        "a postponed turn whose agent loses its tools",
        before="and not is_resumed then",
        after="then",
        test="test_the_agent_of_a_turn_that_is_postponed_keeps_its_tools",
    ),
    Mutant(
        "a command that is mute behind a turn that is being postponed",
        before="if newest and not id_at_most(newest[1], args.newest) then return 'news' end",
        after="",
        test="test_a_new_conversation_that_comes_while_the_turn_is_postponed",
    ),
    Mutant(
        "a stop that waits behind what it stops",
        before="if args.at_once == 'stop' then",
        after="if false then",
        test="test_a_person_stops_a_running_turn",
    ),
    Mutant(
        "a conversation that ends again when its reply was lost",
        before="if done == args.turn then return heard end",
        after="",
        test="test_reset",
    ),
    Mutant(
        "a record that outlives its conversation",
        before="redis.call('DEL', keys.session_map, keys.record)",
        after="redis.call('DEL', keys.session_map)",
        test="test_there_need_be_no_archive",
    ),
    Mutant(
        "an id that outlives its conversation",
        before="redis.call('DEL', keys.session_map, keys.record)",
        after="redis.call('DEL', keys.record)",
        test="test_settings_of_the_session_stay",
    ),
    Mutant(
        "an operator's end of a conversation that lets go on what runs",
        before="args.stopped = stop_one(args.sid, keys.state, keys.inbound)",
        after="",
        test="test_it_stops_what_runs_and_what_waits",
    ),
    Mutant(
        "ended conversations that are not forgotten",
        before="names[#names + 1]",
        after="local _",
        test="test_what_has_ended_is_forgotten_with_the_rest",
        within="forget",
    ),
    Mutant(
        "a conversation that is as old as its last question",
        before="redis.call('HSET', keys.state, 'last_heard_ms', by_now(keys.state))",
        after="redis.call('HSET', keys.state, 'last_heard_ms', string.match(turn, '%d+'))",
        test="test_it_is_the_time_of_the_answer_that_counts",
    ),
    Mutant(
        "a copy that is too old to begin",
        before=", 'last_heard_ms', now_ms())",
        after=")",
        test="test_a_copy_is_not_too_old_to_begin",
    ),
    Mutant(
        "calls without fencing",
        before=FENCE,
        after="",
        test="test_a_turn_that_another_worker_has_taken_over_and_nothing_is_sent",
        within="_calls",
    ),
    Mutant(
        "a call of a turn that is over",
        before="if running[1] ~= 'running' or running[2] ~= args.turn then",
        after="if false then",
        test="test_a_turn_that_ends_meanwhile_and_nothing_is_sent",
    ),
    Mutant(
        "a call that is done twice",
        before="return made and {'again', made}",
        after="return nil",
        test="test_two_calls_of_one_name_at_once_send_one_message",
    ),
    Mutant(
        "a retry without what had joined the turn",
        before="if batch then batch = batch .. ',' .. steered end",
        after="",
        test="test_after_a_crash_the_turn_is_repeated_with_all_that_had_joined_it",
    ),
    Mutant(
        "a turn that is being stopped takes up more",
        before="or id_at_most(turn, stop)",
        after="",
        test="test_nothing_joins_a_turn_that_is_being_stopped",
    ),
    Mutant(
        "a joined turn that counts although it was given back",
        before=", 'steered.' .. args.attempt)",
        after=")",
        test="test_a_message_that_comes_too_late_gets_a_turn_of_its_own",
    ),
    Mutant(
        "a message alone with the failures of others",
        before="attempts_at(args.outcomes .. head)",
        after="2",
        test="test_a_message_is_tried_alone_as_often_as_any_other",
    ),
    Mutant(
        "live text that outlives its turn",
        before="keys.side_effects, keys.live",
        after="keys.side_effects",
        test="test_a_tool_is_shown_while_it_runs",
    ),
    Mutant(
        "receipt without fencing",
        before="if token and token ~= args.token then",
        after="if false then",
        test="test_a_stream_has_one_reader_at_a_time",
        within="receipt",
    ),
    Mutant(
        "a preview of a reader that was replaced",
        before="if token and token ~= args.token then",
        after="if false then",
        test="test_a_preview_is_noted_by_the_reader_alone",
        within="preview",
    ),
    Mutant(
        "a preview that is removed though it is the answer",
        before="if args.preview then redis.call('HDEL', keys.previews, args.preview) end",
        after="",
        test="test_one_message_shows_a_turn_and_becomes_its_answer",
        within="receipt",
    ),
    Mutant(
        "live text that no adapter hears",
        before="if keys.account then",
        after="if false then",
        test="test_one_message_shows_a_turn_and_becomes_its_answer",
    ),
    Mutant(
        "a mark without fencing",
        before="if token and token ~= args.token then",
        after="if false then",
        test="test_a_mark_is_obeyed_from_the_reader_alone",
        within="sending",
    ),
    Mutant(
        "a mark that hides another adapter's",
        before="if noted and noted ~= args.instead_of",
        after="if false and noted ~= args.instead_of",
        test="test_a_process_at[sending-after-kill]",
    ),
    Mutant(
        "a reply sent that was dropped",
        before="redis.call('HDEL', keys.marks, args.reply)\n  return 0",
        after="redis.call('HDEL', keys.marks, args.reply)\n  return 1",
        test="test_what_is_dropped_while_it_waits_is_not_sent",
    ),
    Mutant(
        "a mark that outlives its receipt",
        before="redis.call('HDEL', keys.marks, args.reply)",
        after="",
        test="test_a_lost_answer_is_said_again_once_and_says_so",
        within="receipt",
    ),
    Mutant(
        "a refused reply that is gone",
        before="if letter then",
        after="if false then",
        test="test_a_refused_answer_is_a_dead_letter_with_its_reason",
        within="receipt",
    ),
    Mutant(
        "a dead reply that stays when it is sent again",
        before="redis.call('XDEL', keys.dead_letters, args.letter)",
        after="",
        test="test_a_refused_answer_is_a_dead_letter_with_its_reason",
        within="resend",
    ),
    Mutant(
        "a message of ours that leads nowhere",
        before="for _, said in ipairs(keys.said) do",
        after="for _, said in ipairs({}) do",
        test="test_what_the_platform_has_leads_back_to_its_turn",
    ),
    Mutant(
        "a receipt that does not name its reply stream",
        before="'id', keys.replies .. ' ' .. args.reply",
        after="'id', args.reply",
        test="test_a_broadcast_to_two_channels_tells_what_came_of_each",
    ),
    Mutant(
        "expire without fencing",
        before="if redis.call('HGET', keys.state, 'epoch') ~= args.epoch then return 0 end",
        after="",
        test="test_ending_a_lease_does_not_reach_its_successor",
    ),
    Mutant(
        "unconditional close",
        before="if redis.call('XLEN', keys.inbound) > 0 then return 'pending' end",
        after="",
        test="test_a_message_that_arrives_before_close_is_not_stranded",
    ),
    Mutant(
        "no dedupe",
        before="if seen then",
        after="if false then",
        test="test_a_repeated_message_is_the_same_entry",
        within="append",
    ),
    Mutant(
        "no hint for a repetition",
        before="return {'duplicate', seen, queue_if_scheduled(keys.state)}",
        after="return {'duplicate', seen, ''}",
        test="test_a_repetition_hints_a_session_that_still_waits",
    ),
    Mutant(
        "no nonce on acquire",
        before="if state == 'running' and nonce ~= args.nonce and expires > now then",
        after="if state == 'running' and expires > now then",
        test="test_acquire",
    ),
    Mutant(
        "no nonce on begin",
        before="if begun ~= args.nonce then\n  before",
        after="if true then\n  before",
        test="test_begin",
    ),
    Mutant(
        "no record of what finish did",
        before="redis.call('HSET', keys.state, 'finished_turn', turn)",
        after="",
        test="test_finish_is_one_step_and_counts_once",
    ),
    Mutant(
        "usage that is added before it is known whether it was",
        before="if turn ~= args.turn then",
        after=(
            "if args.usage then redis.call('HINCRBY', keys.usage, args.agent, 1) end\n"
            "if turn ~= args.turn then"
        ),
        test="test_a_turn_counts_once_however_often_its_end_is_told",
    ),
    Mutant(
        "usage of a day that is kept for ever",
        before="redis.call('PEXPIRE', keys.usage_day, args.usage_ms)",
        after="",
        test="test_a_turn_counts_once_however_often_its_end_is_told",
    ),
    Mutant(
        "an index that is published twice",
        before="if index < published then return 0 end",
        after="",
        test="test_a_message_of_a_turn_is_published_once",
    ),
    Mutant(
        "no batch record",
        before="if not batch then",
        after="if true then",
        test="test_a_collected_batch_is_repeated_exactly",
    ),
    Mutant(
        "a batch that is never taken apart",
        before="attempt - forgiven >= 2",
        after="attempt - forgiven >= 200",
        test="test_what_kills_its_worker_takes_no_other_message_along",
    ),
    Mutant(
        "only the last attempt's phase counts",
        before="before = further(before or '', phase or '')",
        after="before = phase or ''",
        test="test_what_an_attempt_did_is_not_forgotten_by_one_that_did_less",
    ),
    Mutant(
        "an epoch that counts from one",
        before="math.max(now, tonumber(epoch or 0) + 1)",
        after="tonumber(epoch or 0) + 1",
        test="test_an_epoch_is_never_below_the_clock",
    ),
    Mutant(
        "a lost lease of which the next attempt does not hear",
        before="further(before[2] or '', 'spawned')",
        after="before[2] or ''",
        test="test_a_lost_lease_is_noticed_and_the_next_attempt_hears_of_it",
    ),
    Mutant(
        "a retry of a dead letter that counts twice",
        before="return became and {became, ''} or {}",
        after="return {}",
        test="test_retry",
    ),
    Mutant(
        "a sweeper that swells every queue",
        before=(
            "looks % 10 == tonumber(args.patient_looks) or redis.call('LLEN', 'rq:queue:' .. "
            "queue) == 0"
        ),
        after="true",
        test="test_the_sweeper_does_not_swell_a_queue_that_is_long",
    ),
    Mutant(
        "dropped replies whose files stay",
        before="redis.call('UNLINK', 'rc:blob:{' .. reply.sid .. '}:' .. file.blob)",
        after="",
        test="test_what_an_operator_drops_is_gone_with_its_files_and_its_outcome_says_so",
    ),
    Mutant(
        "a configured limit of memory that does not hold",
        before="own, limit = said('maxmemory'), MAX_MEMORY",
        after="own, limit = said('maxmemory'), 0",
        test="test_the_lowest_limit_of_its_memory_counts",
    ),
    Mutant(
        "files that are not kept as long as their message",
        before="for _, blob in ipairs(keys.blobs) do redis.call('PERSIST', blob) end",
        after="",
        test="test_what_waits_is_kept_for_as_long_as_it_waits",
    ),
    Mutant(
        "a message without one of its files",
        before="return {'incomplete', '', ''}",
        after="break",
        test="test_a_message_whose_file_is_gone_is_refused_and_not_stored",
    ),
    Mutant(
        "a file that is stored under a lost lease",
        before=FENCE,
        after="",
        test="test_an_agent_s_files_are_stored_by_the_owner_of_the_lease_alone",
        within="store",
    ),
    Mutant(
        "a late piece that shortens a file's life",
        before="if left ~= -1 then",
        after="if true then",
        test="test_a_piece_that_is_sent_again_late_does_not_shorten_its_life",
    ),
    Mutant(
        "files that outlive their message",
        before=(
            "-- A dead letter keeps its files: it may be retried.\nif args.status ~= 'dead' "
            "then\n  for _, blob in ipairs(keys.blobs) do redis.call('UNLINK', blob) end\nend"
        ),
        after="",
        test="test_what_was_answered_is_not_kept",
    ),
    Mutant(
        "a dead letter without its files",
        before="if args.status ~= 'dead' then",
        after="if true then",
        test="test_a_dead_letter_keeps_its_files_until_it_is_retried_or_dropped[drop]",
    ),
    Mutant(
        "files that outlive their delivery",
        before="for _, blob in ipairs(keys.blobs) do redis.call('UNLINK', blob) end",
        after="",
        test="test_an_answer_s_files_reach_the_adapter_with_its_last_message",
        within="receipt",
    ),
    Mutant(
        "a stop that begin does not look at",
        before=(
            "if id_at_most(entries[#entries][1], stop) and (attempt == 1 or not is_dropped) then"
        ),
        after="if false then",
        test="test_a_running_turn_is_stopped_and_what_waits_behind_it_too",
    ),
    Mutant(
        "no limit to what is accepted",
        before=(
            "if args.at_once ~= 'stop' and is_full_for('messages') then return {'full', '', ''} end"
        ),
        after="",
        test="test_a_full_server_refuses_what_is_new_and_finishes_what_is_not",
    ),
    Mutant(
        "tools that ignore how full Redis is",
        before="if is_full_for(args.epoch and 'tools' or 'messages') then",
        after="if false then",
        test="test_what_agents_ask_for_is_refused_before_messages_are",
    ),
    Mutant(
        "a stranger's agent that fills Redis",
        before="if not args.epoch then return nil end",
        after="if true then return nil end",
        test="test_the_owner_is_answered_whatever_a_stranger_s_turns_do",
    ),
    Mutant(
        "tools that take the room of messages",
        before="tools = 0.7,",
        after="tools = 0.8,",
        test="test_what_agents_ask_for_is_refused_before_messages_are",
    ),
    Mutant(
        "messages that take the room for finishing",
        before="messages = 0.8}",
        after="messages = 1}",
        test="test_what_was_accepted_is_finished_when_nothing_new_is_taken",
    ),
    Mutant(
        "dead letters that are retried on a full server",
        before="if is_full_for('messages') then return {'full'} end",
        after="",
        test="test_a_dead_letter_is_retried_when_there_is_room",
    ),
    Mutant(
        "outcomes that are kept for a week on a server that fills",
        before="is_full_for('files') and math.min(args.outcome_ms, HOUR_MS) or args.outcome_ms",
        after="args.outcome_ms",
        test="test_what_is_kept_to_be_looked_at_goes_first",
    ),
    Mutant(
        "any number of bytes sent by a chat",
        before="sent_bytes = 4 * 1024 * 1024}",
        after="sent_bytes = math.huge}",
        test="test_a_chat_sends_four_megabytes_an_hour",
    ),
    Mutant(
        "one conversation that keeps any number of bytes waiting",
        before="or bytes_of(keys.inbound) > MOST_WAITING_BYTES * room",
        after="",
        test="test_one_conversation_keeps_a_bounded_number_of_bytes_waiting",
    ),
    Mutant(
        "what was not sent that counts",
        before="args.sends = {sent_messages = messages, sent_bytes = 0}",
        after=(
            "redis.call('HINCRBY', keys.sent, 'sent_messages', messages)\n"
            "args.sends = {sent_messages = messages, sent_bytes = 0}"
        ),
        test="test_what_was_not_sent_counts_towards_nothing",
    ),
    Mutant(
        "a late renewal that wakes what was postponed",
        before="if redis.call('HGET', keys.state, 'status') ~= 'running' then return {'', ''} end",
        after="",
        test="test_a_renewal_that_comes_late_does_not_wake_what_was_postponed",
    ),
    Mutant(
        "one conversation that stores any number of files",
        before="+ args.size > most then return -1 end",
        after="+ args.size > math.huge then return -1 end",
        test="test_one_conversation_stores_a_bounded_number_of_files",
    ),
    Mutant(
        "files that are looked at with their first piece alone",
        before="if is_full_for('files') then",
        after="if ARGV[2] == '0' and is_full_for('files') then",
        test="test_a_file_for_which_there_is_no_room_leaves_none_of_it",
    ),
    Mutant(
        "any number of bytes that no adapter reads",
        before="and bytes <= MOST_UNREAD_BYTES then",
        after="then",
        test="test_streams_have_a_bound_in_bytes",
    ),
    Mutant(
        "a batch that straddles a stop",
        before="up_to_stop(args.entry_ids, stop)",
        after="args.entry_ids",
        test="test_what_was_stopped_is_not_run_with_what_came_after_the_stop",
    ),
    Mutant(
        "a recorded turn that is dropped for others",
        before=(
            "if batch and begun ~= args.nonce and wanted == 'dropped' then wanted = 'accepted' end"
        ),
        after="",
        test="test_a_turn_that_was_cut_off_is_not_dropped_for_what_came_behind_it",
    ),
    Mutant(
        "a left-over hint that takes a session from its host",
        before="if state == 'scheduled' and host and host ~= args.host then",
        after="if false then",
        test="test_a_hint_that_is_left_over_takes_no_session_from_its_host",
    ),
    Mutant(
        "a task that is started again by the next attempt",
        before="if made_before then",
        after="if false then",
        test="test_an_attempt_that_begins_anew_gets_the_sessions_of_the_one_before",
    ),
    Mutant(
        "any number of unfinished tasks",
        before="if busy >= tonumber(args.most) then",
        after="if false then",
        test="test_how_many_may_be_unfinished",
    ),
    Mutant(
        "a cancelled task that has a result",
        before="if is_unwanted then redis",
        after="if false then redis",
        test="test_a_cancelled_task_and_all_below_it_end_without_a_result",
    ),
    Mutant(
        "a stop that spares what the session has started",
        before="ipairs(descendants(sid))",
        after="ipairs({})",
        test="test_who_stops_a_session_stops_what_it_has_started",
    ),
    Mutant(
        "a label that two sessions have",
        before="if owner and owner ~= sid and",
        after="if false and",
        test="test_a_label_is_an_agents_own_and_finds_its_session",
    ),
    Mutant(
        "any number of turns that wait",
        before="then return 'full' end",
        after="then return 'free' end",
        test="test_no_turn_waits_when_no_worker_would_be_left",
    ),
    Mutant(
        "replies that nobody reads for ever",
        before="give_up_unread(stream, 8)",
        after="",
        test="test_what_no_adapter_reads_is_given_up_after_three_days",
    ),
    Mutant(
        "answers of last month",
        before="give_up_unread(keys.replies, math.huge)",
        after="",
        test="test_an_adapter_that_comes_late_delivers_nothing_old",
    ),
    Mutant(
        "replies given up while an adapter is started again",
        before="local AWAY_MS = HOUR_MS",
        after="local AWAY_MS = -100000",
        test="test_an_adapter_that_is_started_again_has_still_all_to_deliver",
    ),
    Mutant(
        "a live adapter's replies given up",
        before="return not claimed or now_ms() - claimed > AWAY_MS",
        after="return true",
        test="test_what_a_live_adapter_has_still_to_deliver_stays",
    ),
    Mutant(
        "a result of the conversation that has ended",
        before="told.origin == 'result' then",
        after="false then",
        test="test_results_that_wait_behind_the_command_are_not_told_to_the_next_agent",
    ),
    Mutant(
        "a conversation that ends again with each message",
        before="return math.max(now_ms(), last",
        after="return math.min(now_ms(), last",
        test="test_a_clock_that_was_ahead_ends_one_conversation_at_most",
    ),
    Mutant(
        "a result before all of it is done",
        before="if is_unfinished(child) then return false end",
        after="",
        test="test_a_task_that_starts_tasks_has_one_result",
    ),
    Mutant(
        "turns that wait for each other",
        before="if sid == own then return 'circle' end",
        after="",
        test="test_two_turns_that_run_dont_wait_for_each_other",
    ),
    Mutant(
        "a wait that outlives its turn",
        before="redis.call('ZREM', keys.waits, name)  -- its turn is over",
        after="count = count + 1",
        test="test_a_wait_ends_with_its_turn[invoke]",
    ),
    Mutant(
        "a cancelled task that a second try gets back",
        before=(
            "if not id_at_most(id, "
            "redis.call('HGET', 'rc:st:{' .. sid .. '}', 'unwanted_entry')) then"
        ),
        after="if true then",
        test="test_a_second_try_starts_anew_what_the_first_one_has_cancelled",
    ),
    Mutant(
        "a result that interrupts a turn",
        before="session_key = args.owed_key, lane = 'background'}",
        after=(
            "session_key = args.owed_key, lane = 'background', bell = 'rc:bell:{' .. "
            "args.owed_sid .. '}'}"
        ),
        test="test_a_result_waits_for_the_running_turn[interrupt]",
    ),
    Mutant(
        "a due time that two schedulers take",
        before="if not is_current then return {'changed', '', ''} end",
        after="",
        test="test_a_due_time_that_two_have_seen_is_taken_by_one",
    ),
    Mutant(
        "a run of a cron job that is settled twice",
        before=(
            "if redis.call('HGET', keys.open, args.run_name) ~= args.run then return 'settled' end"
        ),
        after="",
        test="test_a_run_of_a_job_that_was_removed_is_noted_once",
    ),
    Mutant(
        "a settling that undoes a change of the job",
        before=(
            "if (redis.call('HGET', keys.jobs, args.job_id) or nil) ~= args.before "
            "then return 'changed' end"
        ),
        after="",
        test="test_a_change_at_the_moment_of_settling_is_kept",
    ),
    Mutant(
        "a cron job that runs as it was",
        before=(
            "if redis.call('HGET', keys.jobs, args.job_id) ~= args.before then return "
            "{'changed', ''} end"
        ),
        after="",
        test="test_a_job_that_is_changed_meanwhile_runs_as_it_is_now",
    ),
    Mutant(
        "a cron job that is written under a lost lease",
        before=FENCE,
        after="",
        test="test_a_turn_that_somebody_else_took_over_adds_nothing",
        within="_calls",
    ),
    Mutant(
        "a change of a job that undoes its firing",
        before="if job ~= args.before then return {'changed', ''} end",
        after="",
        test="test_a_change_does_not_undo_a_firing",
    ),
    Mutant(
        "rights that forget who joined the turn",
        before="ipairs({batch or '', steered or ''})",
        after="ipairs({batch or ''})",
        test="test_a_message_that_joins_narrows_the_rights_of_the_turn",
    ),
    Mutant(
        "a position that a late adapter moves",
        before="if token and token ~= args.token then return redis",
        after="if false then return redis",
        test="test_only_the_reader_moves_the_position",
        within="advance",
    ),
    Mutant(
        "messages that are counted again",
        before="if redis.call('GET', keys.position) == args.position then return 0 end",
        after="",
        test="test_what_is_counted_once_is_counted_once",
    ),
    Mutant(
        "a claim that another one gives up",
        before="if redis.call('GET', keys.reader) ~= args.token then return 0 end",
        after="",
        test="test_who_leaves_makes_room_at_once_and_takes_nobody_elses",
        within="leave",
    ),
    Mutant(
        "codes for any number of strangers",
        before="if open >= MOST_OPEN then return '' end",
        after="",
        test="test_three_strangers_may_ask_at_once_on_each_account",
    ),
    Mutant(
        "a code for each message of a stranger",
        before="if request.id == asked.id then",
        after="if false then",
        test="test_a_stranger_has_one_code_and_the_message_that_asked_has_it_again",
    ),
    Mutant(
        "a code that is valid for ever",
        before="if request.at_ms + args.valid_ms <= now_ms() then return '' end",
        after="",
        test="test_a_code_is_valid_for_an_hour",
    ),
    Mutant(
        "a dead letter of which all parts are sent again",
        before="redis.call('HSET', keys.marks, id, fields.mark)",
        after="",
        test="test_what_is_given_up_and_sent_again_goes_on_where_it_was",
    ),
    Mutant(
        "a message that passes a chat twice",
        before="if entry[2][2] == args.name then",
        after="if false then",
        test="test_what_is_taken_in_twice_has_passed_once",
        within="pass",
    ),
    Mutant(
        "a chat of which everything is kept",
        before="'MAXLEN', args.most, '*', 'name', args.name,",
        after="'*', 'name', args.name,",
        test="test_it_is_bounded_and_ends_by_itself",
    ),
    Mutant(
        "a chat that is never forgotten",
        before="redis.call('PEXPIRE', keys.history, args.keep_ms)",
        after="",
        test="test_it_is_bounded_and_ends_by_itself",
        within="pass",
    ),
    Mutant(
        "a turn that is begun again in another directory",
        before="if attempt == 1 then  -- a turn that is begun again works where it was",
        after="if true then",
        test="test_a_turn_that_is_begun_again_works_where_it_was",
    ),
    Mutant(
        "a chat that loses its project when nobody writes for a week",
        before="if redis.call('HEXISTS', keys.state, 'project') == 0 then",
        after="if true then",
        test="test_a_chat_that_has_a_project_is_remembered_however_long_nobody_writes",
    ),
    Mutant(
        "a copy of itself that works elsewhere",
        before="if project then redis.call('HSET', keys.state, 'project', project) end",
        after="",
        test="test_what_an_agent_starts_and_sends_is_of_the_project",
    ),
    Mutant(
        "a copy of a conversation elsewhere",
        before="if project then redis.call('HSET', keys.new_state, 'project', project) end",
        after="",
        test="test_a_copy_of_a_conversation_is_in_its_project",
    ),
    Mutant(
        "a request: ask without fencing",
        before="if fence then return fence end",
        after="",
        test="test_a_lost_lease_neither_asks_nor_takes",
        within="ask",
    ),
    Mutant(
        "a request: take without fencing",
        before="if fence then return fence end",
        after="",
        test="test_a_lost_lease_neither_asks_nor_takes",
        within="take",
    ),
    Mutant(
        "a request: lapse without fencing",
        before="if fence then return fence end",
        after="",
        test="test_a_lost_lease_neither_asks_nor_takes",
        within="lapse",
    ),
    Mutant(
        "a request: retract without fencing",
        before="if fence then return fence end",
        after="",
        test="test_a_lost_lease_neither_asks_nor_takes",
        within="retract",
    ),
    Mutant(
        "a request for a turn that is over",
        before="if args.turn ~= turn then return redis.error_reply",
        after="if false then return redis.error_reply",
        test="test_a_lost_lease_neither_asks_nor_takes",
        within="ask",
    ),
    Mutant(
        "an answer that is taken for a turn that is over",
        before="if args.turn ~= turn then return redis.error_reply",
        after="if false then return redis.error_reply",
        test="test_a_lost_lease_neither_asks_nor_takes",
        within="take",
    ),
    Mutant(
        "a turn that lets the requests of another one lapse",
        before="if redis.call('HGET', keys.state, 'turn') ~= args.turn then return 0 end",
        after="",
        test="test_a_lost_lease_neither_asks_nor_takes",
        within="lapse",
    ),
    Mutant(
        "a turn that takes back the request of another one",
        before="if args.turn ~= turn then return 0 end",
        after="",
        test="test_a_lost_lease_neither_asks_nor_takes",
        within="retract",
    ),
    Mutant(
        "a grant that passes twice",
        before="close_ask(granted, 'used')",
        after="",
        test="test_a_later_answer_wakes_the_session_and_passes_once",
        within="ask",
    ),
    Mutant(
        "a grant that passes for ever",
        before="state == 'granted' and tonumber(until_ms) > now",
        after="state == 'granted'",
        test="test_a_grant_passes_for_an_hour",
        within="ask",
    ),
    Mutant(
        "an attempt that adopts its own request",
        before="of == turn and by ~= attempt and",
        after="of == turn and",
        test="test_two_that_want_the_same_at_once_are_answered_each",
        within="ask",
    ),
    Mutant(
        "an answer that a crash loses",
        before="state == 'given' and args.is_question == '1'",
        after="false",
        test="test_a_crash_between_two_questions_loses_no_answer",
    ),
)
