"""Mutants of `remoteclaw/runtimes/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "instructions that are lost behind a command",
        before="if not turn.has_failed and not turn.is_command:",
        after="if not turn.has_failed:",
        test="test_a_command_is_sent_bare_and_the_instructions_come_later",
    ),
    Mutant(
        "a conversation of another workspace",
        before="if _ID.fullmatch(file.stem) and cwd == workspace:",
        after="if _ID.fullmatch(file.stem):",
        test="test_claude_s_newest_come_first_with_what_was_said_first",
    ),
    Mutant(
        "what an agent took up is not believed",
        before="return [SteeredEvent(tool_id)]",
        after="return []",
        test="test_a_message_joins_the_running_turn",
    ),
    Mutant(
        "a plan's limit that is taken for a short one",
        before='is_reached = limit.get("status") == "rejected"',
        after='is_reached = limit.get("status") == "never"',
        test="test_the_end_of_a_limit_is_the_one_of_the_field_and_stays_known",
    ),
    Mutant(
        "a summary for the agent itself that is said to the person",
        before="if message_id in self._own:",
        after="if False:",
        test="test_what_opencode_notes_in_its_log_is_read_before_what_it_says",
    ),
    Mutant(
        "a turn that waits for its model without an end",
        before="if is_lasting or now + wait_s - self._failing_since > self._most_s:",
        after="if is_lasting:",
        test="test_a_turn_that_has_said_nothing_is_not_waited_for",
    ),
    Mutant(
        "work that is dropped because its model is busy for a minute",
        before="BEGUN_S if self._has_begun else FRESH_S",
        after="FRESH_S",
        test="test_a_turn_that_has_done_something_is_waited_for_longer",
    ),
    Mutant(
        "an answer that stays half said after codex began anew",
        before="return self._prose.take_back() if saying else []",
        after="return []",
        test="test_a_stream_that_breaks_once[codex]",
    ),
    Mutant(
        "a command of codex' that goes on when it was stopped",
        before='await self._peer.request("thread/backgroundTerminals/clean", thread)',
        after="pass",
        test="test_a_command_that_is_stopped_does_nothing_more[codex]",
    ),
    Mutant(
        "a permission that is given because somebody was asked",
        before='"deny": "decline"}',
        after='"deny": "accept"}',
        test="test_with_nobody_to_ask_nothing_is_done_and_the_person_is_told[codex]",
    ),
    Mutant(
        "codex trusts whatever it works in",
        before="_trust(spec),",
        after="",
        test="test_settings_of_the_workspace_count_only_if_it_is_trusted[codex-ask]",
    ),
    Mutant(
        "codex edits the user's settings",
        before="_trust(spec),",
        after="",
        test="test_a_tool_is_used_and_told_and_no_settings_of_the_user_are_touched[codex]",
    ),
    Mutant(
        "codex trusts the repository around its workspace",
        before="for parent in Path(name).parents",
        after="for parent in ()",
        test="test_codex_does_not_obey_a_repository_that_it_was_told_to_trust[codex]",
    ),
    Mutant(
        "gemini trusts a workspace whatever is in it",
        before="(problem := trust_problem(spec.workspace, spec.env, asks=asks)) is None",
        after="True",
        test="test_gemini_obeys_nothing_of_a_workspace_and_has_no_tools_then",
    ),
    Mutant(
        "gemini's workspaces are not looked at above",
        before="for directory in (workspace, *sorted(above)):",
        after="for directory in (workspace,):",
        test="test_a_workspace_where_something_would_be_obeyed_is_not_trusted",
        within="_obeyed",
    ),
    Mutant(
        "a server of another's that is taken for ours by its name",
        before='if spec.own_server and call_id.startswith(f"mcp_{spec.own_server}_"):',
        after='if call_id.startswith(f"mcp_{OWN_SERVER}"):',
        test="test_a_server_of_the_users_own_that_is_called_like_ours_needs_a_permission",
    ),
    Mutant(
        "a first turn of claude's without the user's own servers",
        before='env.setdefault("MCP_CONNECTION_NONBLOCKING", "0")',
        after='env.setdefault("MCP_CONNECTION_NONBLOCKING", "1")',
        test="test_the_users_own_servers_are_not_there_unless_they_are_inherited[claude-ask]",
    ),
    Mutant(
        "a first turn of codex' without the user's own servers",
        before='if status == "starting":',
        after='if status == "unheard of":',
        test="test_the_users_own_servers_are_not_there_unless_they_are_inherited[codex-ask]",
    ),
    Mutant(
        "codex believes what a configured tool says of itself",
        before='"prompt" if permissions == "deny" else "approve"',
        after='"auto" if permissions == "deny" else "approve"',
        test="test_who_may_do_nothing_uses_no_tool_of_a_server[codex-False]",
    ),
    Mutant(
        "codex believes what a tool of the user's own servers says of itself",
        before='elif spec.permissions == "deny" and APPROVAL not in own:',
        after="elif False:",
        test="test_who_may_do_nothing_uses_no_tool_of_a_server[codex-True]",
    ),
    Mutant(
        "a server that answers itself in the person's name",
        before="and not self._is_of_codex(message)",
        after="and False",
        test="test_a_question_of_a_servers_own_is_not_answered_for_the_person[codex]",
    ),
    Mutant(
        "a server that says what codex says when it asks",
        before="or server in self._unasked:",
        after=":",
        test="test_a_question_of_a_servers_own_is_not_answered_for_the_person[codex]",
    ),
    Mutant(
        "a number that is a file's name",
        before='"head": r"-n\\d*|-\\d+",',
        after='"head": r"-n\\d*|-\\d+|\\d+",',
        test="test_whatever_else_codex_calls_reading_is_asked_for",
    ),
    Mutant(
        "a space that a shell takes for a part of a name",
        before=(
            "if not command.isprintable():\n"
            "    return False\n"
            'program, *arguments = command.split(" ")'
        ),
        after="program, *arguments = command.split()",
        test="test_whatever_else_codex_calls_reading_is_asked_for",
    ),
    Mutant(
        "gemini allows what it may not use",
        before='if spec.permissions != "deny" else ()',
        after="",
        test="test_who_may_do_nothing_uses_no_tool_of_a_server[gemini-False]",
    ),
    Mutant(
        "opencode runs what lies in its workspace",
        before="if not spec.trust_workspace and (problem",
        after="if False and (problem",
        test="test_opencode_does_not_start_where_it_would_run_plugins[opencode]",
    ),
    Mutant(
        "an option of an agent's that means the opposite",
        before='"deny": "reject_once"}',
        after='"deny": "allow_once"}',
        test="test_a_permission_is_answered_with_the_option_that_fits",
    ),
    Mutant(
        "a resumed claude asks another model",
        before="if model := spec.model or (spec.note",
        after="if model := spec.model or (''",
        test="test_a_resumed_claude_asks_the_model_that_was_named",
    ),
    Mutant(
        "claude's prompt has its run directory",
        before="allowed = _reading(run_dir / FILES)",
        after="argv.append(f'--add-dir={run_dir}'); allowed = _reading(run_dir / FILES)",
        test="test_no_path_of_the_process_is_told_to_the_model",
    ),
    Mutant(
        "a resumed codex is told its prompt each time",
        before="if session_id is None or prompt == spec.note:",
        after="if session_id is None:",
        test="test_after_an_idle_time_only_the_new_message_is_new[codex]",
    ),
    Mutant(
        "tasks of claude that are no plan",
        before='elif made := mapping(result.get("task")):',
        after="elif made := {}:",
        test="test_claude_s_tasks_are_its_plan",
    ),
    Mutant(
        "a change that claude's tool refused",
        before='if change is not None and result.get("success"):',
        after="if change is not None:",
        test="test_claude_s_tasks_are_its_plan",
    ),
    Mutant(
        "tokens of the last request alone",
        before="self._before += self._request",
        after="self._before = AgentUsage()",
        test="test_the_tokens_of_all_requests_so_far_are_told",
    ),
    Mutant(
        "a shell that the model has made",
        before="len(shell) == 3 and shell[0] in _SHELLS",
        after="len(shell) == 3",
        test="test_what_else_codex_wants_to_start_has_no_rule",
    ),
    Mutant(
        "a patch that moves a file away",
        before="changes), *moved)",
        after="changes),)",
        test="test_a_patch_of_codex_is_all_its_files",
    ),
    Mutant(
        "a request of codex' for more than the call",
        before="if any(params.get(name) for name in _MORE):",
        after="if False:",
        test="test_what_else_codex_wants_to_start_has_no_rule",
    ),
    Mutant(
        "a tool of a server's that is called like one of opencode's",
        before='name = text(call.get("kind")), text(before.get("title"))',
        after='name = text(call.get("kind")), text(before.get("title")).rpartition("_")[2]',
        test="test_opencode_s_own_tools_are_known_by_their_first_title",
    ),
    Mutant(
        "a model that answers on though it was given back",
        before="if model := spec.model or self._own_model:",
        after="if model := spec.model:",
        test="test_a_session_that_is_gone_on_with_has_the_agents_own_model_again",
    ),
    Mutant(
        "another model that answers in place of one that can't be had",
        before="if answer.error is not None and self._spec.model:",
        after="if False:",
        test="test_the_person_is_told_of_a_model_that_can_not_be_chosen",
    ),
    Mutant(
        "a command that the agent doesn't have and a model is paid for",
        before="if not self._commands or name in self._commands:",
        after="if True:",
        test="test_an_unknown_command_is_not_sent",
    ),
    Mutant(
        "opencode's conversations of other workspaces",
        before="WHERE directory = ? AND parent_id",
        after="WHERE ? AND parent_id",
        test="test_opencode_s_are_read_from_its_database",
    ),
    Mutant(
        "gemini's conversations of other workspaces",
        before='and first.get("projectHash") == project',
        after="",
        test="test_gemini_s_are_told_in_notes",
    ),
    Mutant(
        "answers that claude does not hear",
        before='asked = {**asked, "answers":',
        after='_ = {**asked, "answers":',
        test="test_a_crash_between_two_questions_loses_no_answer",
    ),
)
