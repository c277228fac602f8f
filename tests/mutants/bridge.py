"""Mutants of `remoteclaw/bridge/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a conversation whose prompt follows an edit of the operator's files",
        before="identity = await source.find(digest) if digest else None",
        after="identity = None",
        test="test_an_edit_leaves_the_prompt_of_a_long_conversation_as_it_is[claude]",
    ),
    Mutant(
        "a memory that is told with each turn",
        before="run.identity_mark = run.identity_mark.removeprefix(UNTOLD)",
        after="pass",
        test="test_what_an_owner_has_it_remember_is_told_in_the_next_conversation_once[claude]",
    ),
    Mutant(
        "a verdict from a tag that a person has forged",
        before="{re.escape(key)}",
        after="[0-9a-f]*",
        test="test_a_message_whose_aside_yields_no_answer_is_answered_once_in_a_later_turn",
    ),
    Mutant(
        "a file that an answer attaches without any checks",
        before="asyncio.to_thread(self._outgoing.read, file)",
        after="asyncio.to_thread(file.read_bytes)",
        test="test_protected_files_cannot_be_attached_to_an_answer",
    ),
    Mutant(
        "a key store that can be sent from a workspace",
        before="if name := _key_store(path):",
        after="if name := '':",
        test="test_protected_files_cannot_be_sent_with_a_tool",
    ),
    Mutant(
        "files that are sent by an agent whose permissions are `deny`",
        before='if self.permissions == "deny":',
        after="if False:",
        test="test_an_agent_with_permissions_deny_sends_no_files",
    ),
    Mutant(
        "a channel's secret in text that people see",
        before="for section in (*config.channels.values(), config.gateway):",
        after="for section in (config.gateway,):",
        test="test_secrets_are_hidden_and_nothing_else",
    ),
    Mutant(
        "a secret in the recorded input of a tool",
        before="self._excerpt(arguments, MAX_INPUT_CHARS)",
        after="arguments[:MAX_INPUT_CHARS]",
        test="test_a_secret_reaches_neither_redis_nor_a_viewer",
    ),
    Mutant(
        "an argument of a tool that a group sees",
        before='if shown == "names":',
        after="if False:",
        test="test_how_much_of_a_tool_is_shown_depends_on_the_chat",
    ),
    Mutant(
        "a secret that is shown because it contains a control character",
        before="text = _without_controls(text[: max_chars + MAX_READ_CHARS])",
        after="text = text[:MAX_READ_CHARS]",
        test="test_a_control_character_in_a_secret_does_not_keep_it_from_being_hidden",
    ),
    Mutant(
        "a secret that is truncated before it is hidden",
        before="line(self, text: str, max_chars: int) -> str:",
        after="line(self, text: str, max_chars: int) -> str:\n    text = text[:max_chars]",
        test="test_a_secret_is_hidden_before_the_line_is_truncated",
    ),
    Mutant(
        "a sender without an id",
        before='message.from_ if entry.origin == "chat" else None',
        after="None",
        test="test_a_name_cannot_imitate_an_id_or_a_header",
    ),
    Mutant(
        "a turn without a total time limit",
        before="if self._used_s + self._clock() - self._began_at > limits.turn_s:",
        after="if False:",
        test="test_a_turn_is_stopped_after_turn_s",
    ),
    Mutant(
        "files of the running turn that are removed to make room",
        before="if entry.name not in keep:",
        after="if True:",
        test="test_the_directory_of_received_files_has_a_size_limit",
    ),
    Mutant(
        "an answer that repeats a message that a tool has sent",
        before="if p.index not in self.repeated_by_tool",
        after="if True",
        test="test_an_answer_that_repeats_a_message_of_a_tool_is_not_delivered",
    ),
    Mutant(
        "a message that is delivered twice after a stream breaks",
        before="if text and delivered == [text]:",
        after="if False:",
        test="test_text_that_is_repeated_after_a_reset_is_not_delivered_again",
    ),
    Mutant(
        "a CLI's error text in a remote chat",
        before="if run.is_local:",
        after="if True:",
        test="test_other_channels_do_not_show_the_reason_of_a_failure",
    ),
    Mutant(
        "a secret in a CLI's reason",
        before="run.scrubber.line(run.error.detail, MAX_REASON_CHARS)",
        after="run.error.detail",
        test="test_the_reason_of_a_failure_has_no_secrets",
    ),
    Mutant(
        "a request with an invisible character",
        before="or _IGNORABLE.match(character)",
        after="",
        test="test_every_character_that_a_font_shows_as_nothing_is_an_escape",
    ),
    Mutant(
        "a request that hides a command behind blanks",
        before='return f"[{_BLANK}×{length}]"',
        after='return " " * length',
        test="test_a_text_can_neither_hide_nor_imitate",
    ),
    Mutant(
        "a request whose secret hides a line end",
        before="for word in _WORD.finditer(secret[0]):",
        after='for word in re.finditer("(?s:.+)", secret[0]):',
        test="test_a_secret_hides_nothing_but_its_own_words",
    ),
    Mutant(
        "a request in whose address a letter imitates another",
        before="(*_in_hosts(text), *_beside_ascii(text))",
        after="_beside_ascii(text)",
        test="test_a_text_can_neither_hide_nor_imitate",
    ),
    Mutant(
        "an action that people allow without seeing all of it",
        before="return ShownText(with_note(shown, TOO_LONG), full_text, TOO_LONG)",
        after="return ShownText(with_note(shown, TOO_LONG), full_text)",
        test="test_an_action_that_not_even_a_file_shows_can_only_be_denied",
    ),
    Mutant(
        "a request that hides arguments",
        before='given.keys() <= {"command"}',
        after="True",
        test="test_no_argument_of_a_tool_is_hidden",
    ),
    Mutant(
        "a plan that is approved because no person can be asked",
        before='if event.plan is not None and self._spec.permissions == "auto":',
        after="if event.plan is not None:",
        test="test_without_people_a_plan_is_approved_only_by_automatic_permissions",
    ),
    Mutant(
        "a conversation that is given up before the new one is asked",
        before="is_tried = run.fork_of is not None or run.begins_anew",
        after="is_tried = run.fork_of is not None",
        test="test_a_refused_conversation_is_kept_until_a_new_one_is_answered",
    ),
)
