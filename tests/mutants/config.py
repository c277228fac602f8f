"""Mutants of `remoteclaw/config/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a profile that goes before the file",
        before="if key not in named.model_fields_set",
        after="if True",
        test="test_what_the_file_says_of_a_channel_goes_before_its_profile",
    ),
    Mutant(
        "a name in place of an id",
        before="if form and not re.fullmatch(form, one):",
        after="if False:",
        test="test_a_channel_that_has_a_form_for_ids_refuses_names",
    ),
    Mutant(
        "a workspace with the state directory in it",
        before="if Path(os.path.realpath(state))",
        after="if False and Path(os.path.realpath(state))",
        test="test_a_workspace_with_the_state_directory_in_it_is_refused",
    ),
    Mutant(
        "keys of MCP servers that are shown",
        before="args: Annotated[tuple[str, ...], SECRET]",
        after="args: Annotated[tuple[str, ...], BY_PEOPLE]",
        test="test_no_text_that_may_be_a_secret_is_shown",
    ),
    Mutant(
        "a broken configuration that counts",
        before="check_tools(config)",
        after="",
        test="test_a_broken_file_changes_nothing_and_is_said_once",
    ),
    Mutant(
        "an editor's change that is overwritten",
        before="if self.read().data != plan.before.data:",
        after="if False:",
        test="test_what_an_editor_wrote_meanwhile_is_not_lost",
    ),
    Mutant(
        "an agent that changes any setting",
        before="closed = [one.name for one in found if one.setting and not one.setting.agents_may]",
        after="closed: list[str] = []",
        test="test_an_agent_changes_what_is_open_and_nothing_else",
    ),
    Mutant(
        "an agent that names agents of its own",
        before="yield Place((*here, key), setting), {} if is_section else one",
        after="pass",
        test="test_one_wrong_part_and_nothing_is_done",
    ),
    Mutant(
        "a name that ends at its first dot",
        before="name = max(fitting, key=len)",
        after="name = min(fitting, key=len)",
        test="test_a_name_with_dots_is_found",
    ),
    Mutant(
        "a secret that is overwritten by how it was shown",
        before="elif value != old:",
        after="else:",
        test="test_a_secret_repeated_as_it_was_shown_stays",
    ),
    Mutant(
        "a tool that does nothing there and is listed",
        before="if tool.tool not in lacks)",
        after="if tool.tool)",
        test="test_tools_that_do_nothing_on_a_channel_are_not_listed",
    ),
    Mutant(
        "pins of strangers in groups",
        before="if subject.is_group and not party.ownership:",
        after="if False:",
        test="test_deleting_and_pinning_in_a_group_is_for_owners[message_pin]",
    ),
    Mutant(
        "an agent is shown what the writer of the turn may use",
        before="if is_group:\n    people |=",
        after="if False:\n    people |=",
        test="test_what_is_offered_in_a_group_is_what_anybody_may_use_there",
    ),
    Mutant(
        "a turn that has the rights of the first who is answered",
        before="senders = sorted({sender for sender in subject.senders if sender is not None})",
        after="senders = [sender for sender in subject.senders if sender is not None][:1]",
        test="test_a_turn_for_several_people_of_a_group_has_the_rights_of_the_least",
    ),
    Mutant(
        "another session's message with its reader's rights",
        before='entry.message.from_ if entry.origin == "chat" else None',
        after="entry.message.from_",
        test="test_what_nobody_wrote_takes_no_denial_away",
    ),
    Mutant(
        "a command behind an allowed one",
        before="return not _OPERATORS & set(command) and command.isprintable()",
        after="return command.isprintable()",
        test="test_no_other_command_hides_behind_an_allowed_one",
    ),
    Mutant(
        "a command on the line behind an allowed one",
        before="return not _OPERATORS & set(command) and command.isprintable()",
        after="return not _OPERATORS & set(command)",
        test="test_no_other_command_hides_behind_an_allowed_one",
    ),
    Mutant(
        "a program whose name begins like an allowed one",
        before='command.startswith(f"{self.of} ")',
        after="command.startswith(self.of)",
        test="test_no_other_command_hides_behind_an_allowed_one",
    ),
    Mutant(
        "an allowed command in any directory",
        before="not intent.cwd or _is_in(intent.cwd, workspace, workspace)",
        after="True",
        test="test_a_rule_allows_nothing_else",
    ),
    Mutant(
        "an edit through a link out of the workspace",
        before="{Path(os.path.realpath(way)) for way in",
        after="{Path(os.path.normpath(way)) for way in",
        test="test_edits_are_nothing_else",
    ),
    Mutant(
        "an edit by a path that CLIs understand in two ways",
        before="for way in (joined, os.path.normpath(joined))",
        after="for way in (joined,)",
        test="test_edits_are_nothing_else",
    ),
    Mutant(
        "an edit of a file that CLIs look for elsewhere",
        before='if not path or path.startswith("~") or path != path.strip() or',
        after="if not path or",
        test="test_edits_are_nothing_else",
    ),
    Mutant(
        "an edit of what git starts",
        before="and not but & {part.casefold() for part in place.relative_to(directory).parts}",
        after="",
        test="test_edits_are_nothing_else",
    ),
    Mutant(
        "edits that nobody allowed",
        before='"allow" if spec.permissions == "edits" else "ask"',
        after='"allow"',
        test="test_edits_are_files_of_the_workspace",
    ),
    Mutant(
        "a host that has an allowed one in its address",
        before="address is not None and address[1].lower() == self.of",
        after="address is not None and self.of in intent.url",
        test="test_a_rule_allows_nothing_else",
    ),
    Mutant(
        "a refusal that proposes what is no rule",
        before="if is_enough and len(listed) <= MOST_PROPOSED",
        after="if len(listed) <= MOST_PROPOSED",
        test="test_a_refusal_names_the_permissions_that_allow_it",
    ),
    Mutant(
        "a default agent that is not main",
        before='"main" if "main" in self.agents else next(iter(self.agents))',
        after="next(iter(self.agents))",
        test="test_main_is_the_default_agent_else_the_first_one",
    ),
    Mutant(
        "a project that is configured no more, and an agent that works elsewhere instead",
        before="if project is None:",
        after="if project not in self.projects:",
        test="test_a_project_that_is_configured_no_more_is_said_and_nothing_is_done_elsewhere",
    ),
)
