"""Mutants of `remoteclaw/config/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a secret in a diff",
        before="value = values[setting.path] if is_shown else HIDDEN",
        after="value = values[setting.path]",
        test="test_a_diff_masks_secrets_and_escapes_invisible_characters",
    ),
    Mutant(
        "a wide approvals table that overrides a narrow one",
        before="sections = (config, agent, channel, group and group[1])",
        after="sections = (group and group[1], channel, agent, config)",
        test="test_the_narrowest_table_decides_each_setting",
    ),
    Mutant(
        "a name that is accepted as an id",
        before="if form and not re.fullmatch(form, id_):",
        after="if False:",
        test="test_a_channel_with_an_id_form_refuses_other_ids",
    ),
    Mutant(
        "a workspace that contains the state directory",
        before="if Path(state)",
        after="if False and Path(state)",
        test="test_a_workspace_that_contains_the_state_directory_is_refused",
    ),
    Mutant(
        "arguments of MCP servers that are shown",
        before="args: Annotated[tuple[str, ...], SECRET]",
        after="args: Annotated[tuple[str, ...], BY_PEOPLE]",
        test="test_only_texts_known_to_be_harmless_are_shown",
    ),
    Mutant(
        "an invalid configuration that is used",
        before="check_tools(config)",
        after="",
        test="test_an_invalid_file_is_logged_once_and_keeps_the_old_configuration",
    ),
    Mutant(
        "an editor's change that is overwritten",
        before="if self.read().data != plan.before.data:",
        after="if False:",
        test="test_a_concurrent_change_by_an_editor_is_not_overwritten",
    ),
    Mutant(
        "an agent that may change any setting",
        before="if setting.declaration and not setting.declaration.agents_may",
        after="if False",
        test="test_an_agent_changes_only_the_settings_that_are_open_to_agents",
    ),
    Mutant(
        "an agent that may add agents",
        before="yield SettingPath((*here, key), declaration), {} if is_section else entry",
        after="pass",
        test="test_a_patch_with_one_invalid_part_changes_nothing",
    ),
    Mutant(
        "a secret that is overwritten by its hidden form",
        before="elif value != old:",
        after="else:",
        test="test_a_secret_written_back_in_hidden_form_is_kept",
    ),
    Mutant(
        "a command that is chained to an allowed one",
        before="return not _OPERATORS & set(command) and command.isprintable()",
        after="return command.isprintable()",
        test="test_an_allowed_command_does_not_allow_commands_chained_to_it",
    ),
    Mutant(
        "an allowed command in any directory",
        before='return intent.cwd is not None and is_in(intent.cwd or ".", workspace, workspace)',
        after="return True",
        test="test_an_allow_rule_does_not_allow_other_requests",
    ),
    Mutant(
        "an allowed command in an unknown directory",
        before='intent.cwd is not None and is_in(intent.cwd or ".", workspace, workspace)',
        after='is_in(intent.cwd or ".", workspace, workspace)',
        test="test_a_command_in_an_unknown_directory_needs_a_person",
    ),
    Mutant(
        "a rule with more arguments that allows files elsewhere",
        before="and all(is_in(path, workspace, directory) for path in _paths(text))",
        after="",
        test="test_a_rule_with_more_arguments_allows_no_files_elsewhere_and_no_programs",
    ),
    Mutant(
        "an edit of a file with several names",
        before="return file.is_file() and status.st_nlink > 1",
        after="return False",
        test="test_permission_edits_asks_for_a_file_with_several_names",
    ),
    Mutant(
        "an edit of a file that programs find in a home directory",
        before="if _is_of_home(file, base):",
        after="if False:",
        test="test_permission_edits_asks_for_files_that_programs_find_in_a_home_directory",
    ),
    Mutant(
        "a reading command with any option",
        before="if not re.fullmatch(reader.options, word.text):",
        after="if False:",
        test="test_other_commands_need_a_permission",
    ),
    Mutant(
        "git in a repository with any settings",
        before="return settings.keys() <= _KEYS",
        after="return True",
        test="test_a_repository_whose_settings_may_name_a_program_needs_a_permission",
    ),
    Mutant(
        "an edit through a symlink out of the workspace",
        before="{Path(os.path.realpath(each)) for each in",
        after="{Path(os.path.normpath(each)) for each in",
        test="test_permission_edits_asks_for_any_other_path",
    ),
    Mutant(
        "an edit of files from which git starts programs",
        before="if _NAMES & {*parts} or any(part.endswith(_SUFFIXES) for part in parts):",
        after="if False:",
        test="test_permission_edits_asks_for_any_other_path",
    ),
    Mutant(
        "edits without a permission",
        before='"allow" if spec.conduct == "edits" else "ask"',
        after='"allow"',
        test="test_permission_edits_allows_edits_in_the_workspace",
    ),
    Mutant(
        "a URL that contains the name of an allowed host",
        before="address is not None and address[1].lower() == self.target",
        after="address is not None and self.target in intent.url",
        test="test_an_allow_rule_does_not_allow_other_requests",
    ),
    Mutant(
        "a turn in another directory after its project was removed",
        before="if project is None:",
        after="if project not in self.projects:",
        test="test_a_chat_whose_project_is_not_configured_runs_no_turn_and_reports_why",
    ),
    Mutant(
        "a question that a setting answers",
        before="if event.questions:",
        after="if False:",
        test="test_no_setting_answers_a_question",
    ),
    Mutant(
        "a plan that a setting approves",
        before="if event.plan is not None:",
        after="if False:",
        test="test_plans_need_approval_even_with_automatic_permissions",
    ),
    Mutant(
        "a read-only branch whose CLI changes files",
        before="if spec.only_reads and not is_reading and not _reads(event):",
        after="if False:",
        test="test_a_branch_may_only_read_and_only_what_its_parent_may_read",
    ),
    Mutant(
        "a sender who answers for the other people of a turn",
        before="return is_owner or set(people) == {who}",
        after="return is_owner or who in people",
        test="test_a_batch_needs_a_permission_of_each_of_its_people",
    ),
    Mutant(
        "a permission for owners that serves a guest",
        before='[each, OWNERS] if is_owned_by(config, *each.split(":", 1)) else [each]',
        after="[each, OWNERS]",
        test="test_a_permission_holds_only_for_the_person_for_whom_it_was_given",
    ),
)
