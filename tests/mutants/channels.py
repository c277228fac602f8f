"""Mutants of `remoteclaw/channels/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "everybody on the page is admitted as the person of the token file",
        before="return super().admits(sender) or sender == own",
        after="return True",
        test="test_the_person_of_the_token_file_is_admitted_and_nobody_else",
    ),
    Mutant(
        "an agent's mention that notifies people",
        before="return unmentioned(before + span.text, self.me)[len(before) :]",
        after="return span.text",
        test="test_an_agent_mentions_nobody[telegram]",
    ),
    Mutant(
        "a bot's token that a proxy sees",
        before='"trust_env": url.startswith("https:")',
        after='"trust_env": True',
        test="test_the_token_goes_to_no_proxy_without_encryption",
    ),
    Mutant(
        "a message without the required mention that is read",
        before="return self._group(incoming).require_mention",
        after="return False",
        test="test_a_group_gets_access_as_a_whole_and_has_one_session",
    ),
    Mutant(
        "a thread without a session that is followed",
        before="if is_begun or await self.context.fleet.sessions.exists(session):",
        after="if True:",
        test="test_in_a_thread_the_agent_is_mentioned_once_also_across_a_restart",
    ),
    Mutant(
        "words to others in a followed thread that are a command",
        before="not incoming.is_for_us and commands.is_plain_command(incoming.text)",
        after="not incoming.is_for_us",
        test="test_in_a_followed_thread_only_known_commands_count_without_a_mention",
    ),
    Mutant(
        "threads that one person begins without a limit",
        before="_Counts(MAX_THREADS_PER_HOUR, 3_600_000)",
        after="_Counts(10_000, 3_600_000)",
        test="test_a_person_can_begin_twenty_threads_an_hour",
    ),
    Mutant(
        "a repeated message to the page that is stored twice",
        before="message, once=reply.key )",
        after='message, once="" )',
        test="test_a_delivery_with_a_lost_response_is_repeated_and_marked_without_keys[web]",
    ),
    Mutant(
        "an operation that is performed after its deadline",
        before="if left_s <= 0:",
        after="if False:",
        test="test_an_operation_that_has_waited_too_long_is_not_done",
    ),
    Mutant(
        "one queue for all topics of a chat",
        before="place = Place(reply.channel_id, reply.thread_id)",
        after="place = Place(reply.channel_id)",
        test="test_topics_of_a_chat_are_delivered_independently",
    ),
    Mutant(
        "concurrent replies in one chat",
        before="self._waiting.get(place)",
        after="None",
        test="test_a_chat_that_hangs_delays_no_other_chat",
    ),
    Mutant(
        "a repeated send that is not marked as one",
        before='is_again=step == "repeat"',
        after="is_again=False",
        test="test_a_reply_with_an_unknown_outcome_is_sent_once_more_and_says_so",
    ),
    Mutant(
        "a reply with an unknown outcome that is repeated forever",
        before="self._is_over = self._mark.doubts >= MAX_DOUBTS or",
        after="self._is_over =",
        test="test_a_reply_whose_outcome_is_unknown_twice_is_a_dead_letter",
    ),
    Mutant(
        "a chat at its rate limit that delays another one",
        before="self._windows[rate, scope] = Window(rate)",
        after="alike = (one for (each, _), one in self._windows.items() if each == rate)\n"
        "self._windows[rate, scope] = next(alike, Window(rate))",
        test="test_a_chat_at_its_limit_delays_itself_alone",
    ),
    Mutant(
        "a message that is on the platform and is sent again",
        before="if is_again and not self._is_looked_up and",
        after="if False and",
        test="test_a_message_whose_response_was_lost_is_found_and_not_repeated",
    ),
    Mutant(
        "a lost message for which an earlier one with the same words is taken",
        before="if not id_ or not await self._reader.is_delivered(chat, id_):",
        after="if True:",
        test="test_an_earlier_message_with_the_same_words_is_not_taken_for_a_lost_one",
    ),
    Mutant(
        "a key that is relied on after the platform has forgotten it",
        before="return asked_at + window_s - age_ms / 1000",
        after="return math.inf",
        test="test_a_key_is_not_relied_on_once_its_window_is_over",
    ),
    Mutant(
        "a keyed send that is retried forever",
        before="self._tries >= MAX_TRIES",
        after="self._tries >= 10_000",
        test="test_a_keyed_send_is_not_retried_forever",
    ),
    Mutant(
        "a part that is recorded as sent only when the next one begins",
        before="if is_sent and part is not parts[-1]",
        after="if False",
        test="test_a_sent_part_is_recorded_before_the_next_part_begins",
    ),
    Mutant(
        "an earlier adapter's delivery mark that is ignored",
        before="self._stored, self._mark = stored, Mark.decode(stored)",
        after="self._stored = stored",
        test="test_parts_that_were_delivered_are_not_sent_again",
    ),
    Mutant(
        "a delivery that takes an earlier delivery's mark for its own",
        before="self._name = uuid.uuid4().hex",
        after='self._name = "one"',
        test="test_a_send_that_was_cancelled_with_its_relay_is_repeated_by_the_next_relay",
    ),
    Mutant(
        "an error in a reply's parts that ends the relay",
        before="raise PlatformRefused(why) from None",
        after="raise",
        test="test_a_reply_that_the_adapter_cannot_split_blocks_no_other",
    ),
    Mutant(
        "a delivery mark that is withdrawn only in Redis",
        before="None if is_untouched else self._mark",
        after="self._mark",
        test="test_a_send_that_certainly_failed_leaves_no_delivery_mark",
    ),
    Mutant(
        "a refused file that is not reported",
        before="if str(part.index) in self._mark.kept and (part.name or not self._reply.call)",
        after="if False",
        test="test_a_refused_file_is_reported_and_kept_and_the_text_is_delivered",
    ),
    Mutant(
        "a button that counts for a stranger",
        before="if not is_admitted and not (is_here and request.chat):",
        after="if False:",
        test="test_a_button_answers_a_request_and_the_agent_continues",
    ),
    Mutant(
        "a button of another chat that counts",
        before="return AnswerOutcome(ELSEWHERE)",
        after="pass",
        test="test_a_button_answers_a_request_and_the_agent_continues",
    ),
    Mutant(
        "a refused edit of a preview that loses the answer",
        before="except PlatformRefused:\n    return None",
        after="except PlatformRefused:\n    raise",
        test="test_a_refused_edit_of_a_preview_does_not_lose_the_answer",
    ),
    Mutant(
        "a receipt that is lost when its relay is cancelled",
        before="await asyncio.shield(task)",
        after="await task",
        test="test_a_delivered_reply_gets_its_receipt_even_if_the_relay_is_cancelled",
    ),
    Mutant(
        "a lost response that counts as not sent",
        before="case NetworkError() if isinstance(cause, _NOT_SENT):",
        after="case NetworkError() if cause:",
        test="test_each_telegram_error_maps_to_its_exception",
    ),
    Mutant(
        "a refused connection that counts as an unknown outcome",
        before="case NetworkError() if isinstance(cause, _NOT_SENT):",
        after="case NetworkError() if False:",
        test="test_an_unreachable_telegram_server_is_reported_as_away",
    ),
    Mutant(
        "a token in the log",
        before="logging.getLogger(name).setLevel(logging.CRITICAL + 1)",
        after="pass",
        test="test_no_log_has_the_token_or_a_text",
    ),
    Mutant(
        "an update that is acknowledged as soon as it was read",
        before='last = max((update["update_id"] + 1 for update in updates), default=offset)',
        after='last = max((update["update_id"] + 1 for update in updates), default=offset)\n'
        "await self._updates(last, 0)",
        test="test_a_poll_acknowledges_only_updates_before_its_cursor",
    ),
    Mutant(
        "a message that a stop has overtaken and that runs after a crash",
        before='await self.context.fleet.edits.note_handled(session, known, "-")',
        after="[True]",
        test="test_a_stop_overtakes_a_slow_file_and_withdraws_its_message",
        within="_withdraw_overtaken",
    ),
    Mutant(
        "a stop that withdraws a message of another conversation",
        before="if is_admitted and is_own and other.session_of(access, other.incoming) == session:",
        after="if is_admitted:",
        test="test_a_stop_withdraws_no_message_of_another_conversation",
    ),
    Mutant(
        "an edit that is lost because its message was accepted before a crash",
        before="found = [*kept, report]",
        after="found = [*kept, *([report] if len(kept) == len(found) and kept == found else [])]",
        test="test_an_edit_is_not_lost_if_its_message_was_accepted_before_a_crash",
    ),
    Mutant(
        "an edit that nobody answers after a crash",
        before="if accepted is None and (message is None or message.digest == digest):",
        after="if message is None or message.digest == digest:",
        test="test_a_crash_after_an_edit_leaves_nobody_without_an_answer",
    ),
    Mutant(
        "an answer that is lost because Telegram refuses its formatting",
        before="if not refused:",
        after="if True:",
        test="test_text_whose_formatting_telegram_refuses_is_sent_as_plain_text",
    ),
    Mutant(
        "an answer that is lost because the quoted message is gone",
        before='"allow_sending_without_reply": True,',
        after="",
        test="test_a_reply_to_a_deleted_message_is_still_sent",
    ),
    Mutant(
        "replies that are lost when a group becomes a supergroup",
        before="self._moved[str(chat)] = str(moved.new_chat_id)",
        after="raise",
        test="test_replies_to_a_moved_group_go_to_its_supergroup",
    ),
    Mutant(
        "an unknown update that blocks the others",
        before="except (KeyError, TypeError, ValueError, AttributeError) as error:",
        after="except ZeroDivisionError as error:",
        test="test_an_update_of_an_unknown_shape_blocks_no_other",
    ),
    Mutant(
        "an edit that counts as a repetition of the message",
        before='id=f"{envelope.id}.{edit}" if edit else envelope.id',
        after="id=envelope.id",
        test="test_an_edit_is_a_message_that_names_the_one_it_replaces",
    ),
    # Access, and accepting messages.
    Mutant(
        "a stranger whose messages are read",
        before="return Verdict.ADMITTED if may_write else Verdict.STRANGER",
        after="return Verdict.ADMITTED",
        test="test_a_stranger_who_was_granted_access_is_answered",
    ),
    Mutant(
        "messages of bots that are read",
        before="if incoming.is_bot or self.settings is None:",
        after="if self.settings is None:",
        test="test_messages_of_bots_and_in_unlisted_groups_are_ignored",
    ),
    Mutant(
        "groups without access that are read",
        before="return Verdict.NEW_GROUP if self.is_owner(incoming) else Verdict.IGNORED",
        after="return Verdict.ADMITTED",
        test="test_messages_of_bots_and_in_unlisted_groups_are_ignored",
    ),
    Mutant(
        "a command that gets another sender's rights",
        before="is_owner=access.is_owner(self.incoming)",
        after="is_owner=True",
        within="_command_call",
        test="test_a_command_has_the_rights_of_its_sender",
    ),
    Mutant(
        "a name that grants the access of an id",
        before='sender=str(sender["id"]),',
        after='sender=str(sender["first_name"]),',
        test="test_access_depends_on_ids_and_not_on_names",
        within="_envelope",
    ),
    Mutant(
        "a sender without a rate limit",
        before="_Counts(MAX_PER_MINUTE, 60_000)",
        after="_Counts(10_000_000, 60_000)",
        test="test_a_sender_over_the_rate_limit_is_told_once_and_read_again_a_minute_later",
    ),
    Mutant(
        "ids that are not validated",
        before='self.message("-")',
        after="",
        within="handle",
        test="test_an_unreadable_message_is_set_aside_and_blocks_no_other",
    ),
    Mutant(
        "a command whose repetition is answered again",
        before='*(once or (self.name, ""))',
        after="str(id(self))",
        test="test_a_process_or_redis_killed_at_any_command_loses_nothing[inbox_store-before-kill]",
    ),
    Mutant(
        "files without a size limit",
        before="if (file.size or 0) > max_bytes:",
        after="if False:",
        test="test_files_are_received_and_one_that_is_too_large_is_refused",
    ),
    Mutant(
        "a failed message that is not reported to its sender",
        before='await self.reply(FAILED, once=(incoming.id, "failed"))',
        after="",
        test="test_a_message_that_fails_here_is_reported_to_its_sender_and_blocks_no_other",
    ),
    Mutant(
        "reports that are acknowledged before they are stored",
        before="reports = [*filter(self._is_to_handle, _acts(with_edits(batch.incoming)))]",
        after="reports = [*filter(self._is_to_handle, _acts(with_edits(batch.incoming)))]\n"
        "if batch.acknowledge: await batch.acknowledge()",
        test="test_reports_are_acknowledged_once_they_are_stored",
    ),
    Mutant(
        "a cursor that goes back",
        before="if cursor != before and not goes_back:",
        after="if cursor != before:",
        test="test_a_cursor_that_only_grows_never_goes_back",
    ),
    Mutant(
        "old messages that are answered after an outage",
        before="if self._late.is_late(incoming):",
        after="if False:",
        test="test_messages_that_are_too_old_are_not_answered_and_their_chat_is_told_once",
    ),
    Mutant(
        "a slow report that is removed before it was handled",
        before="await asyncio.wait((handling.task,))\nif is_crowded",
        after="self._finished.add(stored, handling.place, 'accepted')\n"
        "await asyncio.wait((handling.task,))\nif is_crowded",
        test="test_a_slow_message_survives_a_crash_behind_the_cursor",
    ),
    Mutant(
        "a message that overtakes an earlier one of its conversation",
        before="if kind in (None, _overtakes_as(each.incoming))",
        after="if False",
        test="test_a_slow_file_delays_only_its_own_conversation",
    ),
    Mutant(
        "a frozen process that accepts messages after another took over",
        before="await self._reader.ensure_claim()"
        "  # the process may have been frozen during the poll",
        after="",
        test="test_a_frozen_channel_process_does_nothing_after_another_took_over",
    ),
    Mutant(
        "a signature that does not cover the body",
        before='signed = b".".join((at.encode(), body))',
        after="signed = at.encode()",
        test="test_a_signature_covers_the_body_the_token_and_the_time",
    ),
    Mutant(
        "a signature that never expires",
        before="if abs(now_s - int(at)) > WINDOW_S:",
        after="if False:",
        test="test_a_signature_covers_the_body_the_token_and_the_time",
    ),
    Mutant(
        "a repeated webhook post with a new key",
        before='key = f"{reply.key}:{part.index}"',
        after='key = f"{reply.key}:{part.index}:{time.time()}"',
        test="test_a_repeated_webhook_post_has_the_same_key",
    ),
    Mutant(
        "a transcription command that gets the environment's secrets",
        before="env=past_proxies(inherit(os.environ)),",
        after="env=past_proxies(dict(os.environ)),",
        test="test_the_transcription_command_gets_the_recording_and_no_secret",
    ),
    Mutant(
        "a stranger's reaction that is stored",
        before="if verdict is Verdict.ADMITTED:",
        after="if True:",
        test="test_telegram_messages_are_read_back_with_their_reactions",
    ),
    # A process that is killed or frozen at any step loses nothing and sends nothing twice.
    Mutant(
        "a message that is sent before its delivery mark",
        before="stored = await self._store(self._mark)",
        after="stored = True",
        test="test_a_process_killed_during_a_platform_call_loses_nothing[send-after]",
    ),
    Mutant(
        "a receipt that is written before the message is sent",
        before="result = await delivery.run()",
        after="await self._receipt(reply, DeliveryResult())\nresult = await delivery.run()",
        test="test_a_process_killed_during_a_platform_call_loses_nothing[send-before]",
    ),
    Mutant(
        "a cursor that is stored before its messages are",
        before="moves = _moves(batch.cursors, cursors, grows=grows)",
        after="moves = _moves(batch.cursors, cursors, grows=grows)\n"
        "await inbox.store(self._reader, [], moves)",
        test="test_a_process_or_redis_killed_at_any_command_loses_nothing[inbox_store-after-kill]",
    ),
    Mutant(
        "a message that is accepted before its sender is checked",
        before="match verdict:",
        after='await self._append(SessionKey("main", access.provider, access.account, '
        "incoming.chat, incoming.sender), incoming.text, access, (), is_command=None)\n"
        "match verdict:",
        test="test_a_stranger_gets_a_pairing_code_once_and_no_session[test]",
    ),
    Mutant(
        "a send after the claim has expired",
        before="# Redis may have answered late, or this process may have been frozen.\n"
        "await self._reader.ensure_claim()",
        after="pass",
        test="test_a_frozen_adapter_sends_nothing_after_its_claim_expired",
    ),
    Mutant(
        "a keyed send after the claim has expired",
        before="if not self._needs_mark:\n    await self._reader.ensure_claim()",
        after="if not self._needs_mark:",
        test="test_an_adapter_without_its_claim_repeats_no_keyed_send",
    ),
    Mutant(
        "an operation after the claim has expired",
        before="await self._reader.ensure_claim()  # again: the process may have been frozen",
        after="",
        test="test_an_adapter_without_its_claim_performs_no_operation",
    ),
    Mutant(
        "a poll after the claim has expired",
        before="await self._reader.ensure_claim()\n"
        "try:\n    return await self._adapter.poll(cursors)",
        after="try:\n    return await self._adapter.poll(cursors)",
        test="test_an_adapter_without_its_claim_polls_no_messages",
    ),
    Mutant(
        "a name that passes for another person's id",
        before="from_=incoming.sender,",
        after="from_=incoming.sender_name or incoming.sender,",
        test="test_no_display_name_can_impersonate_another_person[telegram]",
    ),
    Mutant(
        "a name that grants an owner's rights",
        before='return f"{ADMIN if is_admin else USER}{name}"',
        after="return name",
        test="test_a_login_with_the_scope_write_is_never_an_owner",
    ),
)
