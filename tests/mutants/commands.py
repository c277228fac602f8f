"""Mutants of `remoteclaw/commands/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a group that reads the cron jobs of other chats",
        before="and (not call.is_group or job.session == call.session)",
        after="",
        test="test_jobs_of_other_chats_are_shown_in_direct_chats_only",
    ),
    Mutant(
        "cron jobs that everybody adds in a chat",
        before='pause|resume|run|remove JOB]",\n            scope="owner",',
        after='pause|resume|run|remove JOB]",',
        test="test_only_owners_use_the_command",
    ),
    Mutant(
        "a change that is allowed by a paired user",
        before="if (request.change or request.budget) and not (is_owner or by == OPERATOR):",
        after="if request.budget and not (is_owner or by == OPERATOR):",
        test="test_only_owners_decide_on_a_change",
    ),
    Mutant(
        "a change of another host's file",
        before="elif change.host == home.host_id:",
        after="else:",
        test="test_a_change_is_made_by_the_host_of_its_configuration",
    ),
    Mutant(
        "a change that is made although the file has changed",
        before="if content.hash != change.base:",
        after="if False:",
        test="test_a_change_is_refused_if_the_file_has_changed_since_the_request",
    ),
    Mutant(
        "a change that is made twice",
        before="if content.hash == change.after:\n        return",
        after="if False:\n        return",
        test="test_a_process_killed_after_the_answer_leaves_the_change_to_the_gateway",
    ),
    Mutant(
        "a change that is made although it is denied",
        before='if answer.verdict == "deny":',
        after="if False:",
        test="test_the_first_answer_counts_from_the_chat_or_from_an_operator",
    ),
    Mutant(
        "a change that was replaced after it was shown",
        before="if plan.after.hash != change.after:",
        after="if False:",
        test="test_a_request_forged_in_redis_cannot_exceed_an_agents_rights",
    ),
    Mutant(
        "a program that a repository configures and git runs",
        before="return replace(git, env=env)",
        after="return git",
        test="test_diff_runs_no_program_that_the_repository_configures",
    ),
    Mutant(
        "a pairing that is approved by a user who is no owner",
        before='"[CODE | here as AGENT]", scope="owner",',
        after='"[CODE | here as AGENT]",',
        test="test_only_owners_can_approve_a_code",
    ),
    Mutant(
        "a project that is chosen by a user who is no owner",
        before='settings.project, "[NAME]", scope="owner",',
        after='settings.project, "[NAME]",',
        test="test_only_owners_can_choose_a_project",
    ),
    Mutant(
        "permissions that cannot be revoked",
        before="count = await call.fleet.requests.forget_rules(call.session.sid)",
        after="count = 1",
        test="test_a_user_answers_a_permission_request_in_the_chat",
    ),
    Mutant(
        "permissions that are revoked by a user who is no owner",
        before="if not call.is_owner: "
        'return CommandReply("That is for owners of this installation.")',
        after="",
        test="test_only_owners_can_revoke_permissions",
    ),
    Mutant(
        "a number that allows a request that its sender has not read",
        before="each.answer is None or each.answer.by != sender",
        after="False",
        test="test_a_number_meant_for_an_answered_request_does_not_answer_the_next_one",
    ),
    Mutant(
        "a number that answers a request although newer text follows",
        before="has_later_message = is_over = waiting[0].id not in newest",
        after="has_later_message = is_over = False",
        test="test_a_number_answers_a_card_until_an_agent_writes_below_it",
    ),
    Mutant(
        "a number that answers a request shown in another chat",
        before="shown = [*(each for each in own if each.chat is None), *others]",
        after="shown = [*own, *others]",
        test="test_another_chat_answers_a_request_and_the_conversation_gets_one_sentence",
    ),
    Mutant(
        "a reply to another message that answers a request",
        before="request.shown == call.reply_to",
        after="True",
        test="test_the_real_claude_receives_a_chosen_option_and_free_text",
    ),
    Mutant(
        "a member's command that ends what belongs to others",
        before="return self.is_owner or is_open or not self.session.is_shared",
        after="return True",
        test="test_a_member_can_not_end_the_turn_of_an_owner",
    ),
    Mutant(
        "a command that allows an action that people can't see completely",
        before='if request.incomplete and verdict not in ("deny", "words"):',
        after="if False:",
        test="test_a_long_action_without_room_for_its_text_can_only_be_denied",
    ),
    Mutant(
        "a budget about which anybody decides who may answer requests",
        before="if (request.change or request.budget) and not (is_owner or by == OPERATOR):",
        after="if request.change and not (is_owner or by == OPERATOR):",
        test="test_only_owners_decide_about_budgets",
    ),
)
