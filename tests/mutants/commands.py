"""Mutants of `remoteclaw/commands/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "an answer that its chat is told twice",
        before="return Told(told, counts=True, is_shown=True)",
        after="return Told(told, counts=True)",
        test="test_a_request_is_shown_and_answered_by_who_may",
    ),
    Mutant(
        "an unknown command that a model is paid for",
        before="if create_cli_runtime(asked.runtime).capabilities.takes_commands:",
        after="if True:",
        test="test_an_unknown_command_is_one_of_the_cli_or_says_that_there_is_none",
    ),
    Mutant(
        "a model's name that is an option",
        before="AgentConfig(model=wanted)",
        after="pass",
        test="test_a_session_has_a_model_before_anything_is_said",
    ),
    Mutant(
        "a terminal that does not move",
        before="session=asked.chat_with(name)",
        after="session=None",
        test="test_commands_of_a_chat_with_agents_that_have_none_of_their_own",
    ),
    Mutant(
        "a program that a repository names",
        before="return _Git(git, workspace, env)",
        after="return _Git(git, workspace, {'PATH': os.environ['PATH']})",
        test="test_no_program_that_a_repository_names_is_run",
    ),
    Mutant(
        "a repository within that is looked into",
        before='"--ignore-submodules=all"',
        after='"--ignore-submodules=none"',
        test="test_a_repository_within_is_not_looked_into",
    ),
    Mutant(
        "an index that git's own would be",
        before='shutil.copyfile(index, own / "index")',
        after='os.symlink(index, own / "index")',
        test="test_changed_and_new_files_are_shown_and_nothing_is_touched",
    ),
    Mutant(
        "a file that ends the block that it is shown in",
        before="max(3, 1 + longest)",
        after="3",
        test="test_a_fence_in_a_file_does_not_end_the_block",
    ),
    Mutant(
        "an earlier conversation that is chosen and not told",
        before="notes=notes,",
        after="",
        test="test_commands_of_a_chat_with_agents_that_have_none_of_their_own",
    ),
    Mutant(
        "anybody who lets others in",
        before='"[CODE]", scope="owner",',
        after='"[CODE]",',
        test="test_nobody_else_lets_anybody_in",
    ),
    Mutant(
        "anybody who says where an agent works",
        before='choosing.project, "[NAME]", scope="owner",',
        after='choosing.project, "[NAME]",',
        test="test_nobody_else_chooses_a_project",
    ),
    Mutant(
        "an operator's denial without its reason",
        before='name="the operator", is_owner=True, words=words,',
        after='name="the operator", is_owner=True,',
        test="test_a_request_that_is_closed_is_found_with_who_has_answered",
    ),
    Mutant(
        "an operator who is told that another answer was theirs",
        before='return Told(f"{BEFORE} {told}")',
        after='return Told(f"{BEFORE} {told}", counts=True)',
        test="test_the_command_fails_if_its_answer_does_not_count",
    ),
    Mutant(
        "what was allowed, and nobody can take back",
        before="count = await asked.fleet.asks.forget_rules(asked.session.sid)",
        after="count = 1",
        test="test_a_person_answers_in_the_chat",
    ),
    Mutant(
        "what is allowed, and nobody sees",
        before="for rule in await asks.rules(sid)",
        after="for rule in ()",
        test="test_a_person_answers_in_the_chat",
    ),
    Mutant(
        "what an owner has allowed, taken back by anybody",
        before='if not asked.is_owner: return Answer("That is for owners of this installation.")',
        after="",
        test="test_only_owners_take_back_what_is_allowed",
    ),
    Mutant(
        "a number that is for the agent when it is read again",
        before="if here.again:\n    assert",
        after="if False:\n    assert",
        test="test_a_chat_reads_once_what_became_of_a_request",
    ),
    Mutant(
        "a number that allows what nobody has read yet",
        before="one.answer is None or one.answer.by != who",
        after="False",
        test="test_a_number_for_what_has_just_ended_allows_nothing_else",
    ),
    Mutant(
        "a number for what an agent has made look like a request",
        before="is_said or any(",
        after="any(",
        test="test_a_number_is_not_for_what_the_agent_has_written_over[words]",
    ),
    Mutant(
        "a number that is taken from a newer turn",
        before="if here.is_over:",
        after="if False:",
        test="test_a_number_is_not_for_what_the_agent_has_written_over[words]",
    ),
    Mutant(
        "a question that is allowed",
        before="if request.is_question and (",
        after="if False and (",
        test="test_who_does_not_answer_leaves_the_question_open",
    ),
    Mutant(
        "a message that is taken for the answer to another",
        before="request.shown == asked.reply_to",
        after="True",
        test="test_the_real_claude_hears_a_number_and_own_words",
    ),
    Mutant(
        "an answer that fits no plan",
        before='if not words if verdict == "words" else verdict not in dict(request.offered):',
        after="if False:",
        test="test_answers_that_fit_no_plan_are_refused",
    ),
    Mutant(
        "changes of files that are allowed with a command",
        before='elif verdict == "edits" or (verdict == "words" and not request.is_question):',
        after='elif verdict == "words" and not request.is_question:',
        test="test_answers_that_fit_no_plan_are_refused",
    ),
    Mutant(
        "a reply to a plan that the agent takes for a message",
        before="takes_words = request.is_question or request.is_plan",
        after="takes_words = request.is_question",
        test="test_a_plan_is_changed_as_often_as_people_say_so",
    ),
    Mutant(
        "a late word about a plan that wakes nobody",
        before='if verdict == "deny" and words:',
        after="if False:",
        test="test_a_late_answer_wakes_the_agent",
    ),
    Mutant(
        "numbers of choices that an agent is told as they are",
        before="verdict, words = _numbered(request, words) or (verdict, words)",
        after="pass",
        test="test_an_operator_answers_a_question_by_numbers",
    ),
)
