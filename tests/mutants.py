"""Breaks one promise at a time and sees that the test which holds it turns red.

    python -m tests.mutants [NAME …]

Each mutant is a small change to a copy of the product.
A test that stays green although its promise is broken proves nothing, so that is a failure here; so
is a test that is red without the mutant.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LUA = "remoteclaw/fleet/scripts"
FENCED = "begin mark publish finish live remember reset close release renew postpone"
FENCE = "if fence then return fence end\n"
LEASE = "tests/fleet/test_lease.py"
CLOCK = "tests/fleet/test_clock.py"
UNANSWERED = "tests/fleet/test_unanswered.py"
FAILPOINT = "tests/session/test_failpoints.py"
DOORS = "tests/gateway"
SESSIONS = "tests/gateway/test_sessions.py"
SUBAGENTS = "tests/gateway/test_subagents.py"
ENDINGS = "tests/session/test_endings.py"
TOGETHER = "tests/gateway/test_together.py"
CRON = "tests/cron/test_cron.py"
RESET = "tests/session/test_reset.py"
FRESHNESS = "tests/session/test_freshness.py"
LIMITS = "tests/session/test_limits.py"
ARCHIVE = "tests/session/test_archive.py"
CRON_RUNS = "tests/cron/test_runs.py"
STEERING = "tests/session/test_steering.py"
FILES = "tests/bridge/test_attachments.py"
FETCHING = "tests/host/test_fetch.py"
OUTGOING = "tests/bridge/test_outgoing.py"
TRANSFERS = "tests/gateway/test_transfers.py"
PACE = "tests/bridge/test_pace.py"
RUNTIMES = "tests/contracts/test_runtimes.py"
CHATS = "tests/gateway/test_chats.py"
CHAT_MEDIA = "tests/gateway/test_chat_media.py"
CHAT_OPERATIONS = "tests/gateway/test_chat_operations.py"
CONFIG_FILE = "tests/config/test_edit.py"
RESTART = "tests/gateway/test_restart.py"
PRIVATE_DOOR = "tests/gateway/test_private_door.py"
CONFIGURING = "tests/gateway/test_configuration.py"
CONFIRMING = "tests/gateway/test_approvals.py"
RELOAD = "tests/config/test_reload.py"
MEMORY = "tests/fleet/test_memory.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One promise broken."""

    name: str
    file: str
    before: str
    after: str
    test: str
    """The test that has to notice."""


def _unfenced(script: str) -> Mutant:
    return Mutant(
        f"{script} without fencing",
        f"{LUA}/{script}.lua",
        FENCE,
        "",
        f"{LEASE}::test_an_expired_lease_is_taken_over_and_the_old_holder_is_fenced",
    )


MUTANTS = (
    *map(_unfenced, FENCED.split()),
    Mutant(
        "an operator's task that has more rights than the operator",
        "remoteclaw/gateway/dispatch.py",
        'may_speak = self.principal.has("admin")',
        "may_speak = True",
        "tests/gateway/test_strangers.py::test_what_an_operator_sets_going_is_the_user_s",
    ),
    Mutant(
        "what is allowed for a session is the rule for that call",
        "remoteclaw/runtimes/claude.py",
        '(one.get("type"), one.get("behavior")) == ("addRules", "allow")\n        and all(',
        "all(",
        "tests/runtimes/test_claude_process.py::test_somebody_who_is_asked_decides",
    ),
    Mutant(
        "an agent's always is taken for commands alone",
        "remoteclaw/runtimes/acp_turn.py",
        'return known.get("kind") == "execute"',
        "return True",
        "tests/runtimes/test_acp.py::test_what_is_allowed_for_a_session_ends_with_it",
    ),
    Mutant(
        "steer without fencing",
        f"{LUA}/steer.lua",
        FENCE,
        "",
        f"{STEERING}::test_nothing_joins_a_turn_under_a_lost_lease",
    ),
    Mutant(
        "a stray hint that asks before the time",
        f"{LUA}/acquire.lua",
        "held[5] and tonumber(held[5]) > now",
        "false",
        f"{LIMITS}::test_a_stray_hint_does_not_ask_before_the_time",
    ),
    Mutant(
        "a message that wakes a postponed session",
        f"{LUA}/_prelude.lua",
        "now == 'scheduled' and not not_before and",
        "now == 'scheduled' and",
        f"{LIMITS}::test_what_comes_meanwhile_waits_behind_and_its_sender_is_told_once",
    ),
    Mutant(
        "a sweeper that hints before the time",
        f"{LUA}/postpone.lua",
        "redis.call('ZADD', KEYS[2], ARGV[4], ARGV[2])",
        "redis.call('ZADD', KEYS[2], now, ARGV[2])",
        f"{LIMITS}::test_a_stray_hint_does_not_ask_before_the_time",
    ),
    Mutant(
        "a stop that has to wait for the limit's end",
        f"{LUA}/_prelude.lua",
        "    wake(sid, state)\n",
        "",
        f"{LIMITS}::test_a_stop_wakes_a_session_that_waits",
    ),
    Mutant(
        "a limit that is believed after a stop",
        f"{LUA}/_prelude.lua",
        "if login then redis.call('DEL', login) end",
        "",
        f"{LIMITS}::test_a_stop_wakes_a_session_that_waits",
    ),
    Mutant(
        "a message that ends at a limit",
        "remoteclaw/session/retries.py",
        "frozenset((ErrorCategory.USAGE_LIMIT, ",
        "frozenset((",
        f"{LIMITS}::test_a_message_waits_for_the_end_of_a_limit_and_is_answered_then",
    ),
    Mutant(
        "a limit that is told with each try",
        "remoteclaw/session/patience.py",
        "if retries.is_told(self._told, category, at_ms):",
        "if False:",
        f"{LIMITS}::test_a_limit_that_goes_on_is_told_once_and_a_new_one_again",
    ),
    Mutant(
        "a limit that each session finds out by itself",
        "remoteclaw/session/patience.py",
        "if self._limited_until_ms is None or not self._keeps_at_limit:",
        "if True:",
        f"{LIMITS}::test_other_sessions_of_the_login_wait_without_an_agent",
    ),
    Mutant(
        "one login for all",
        "remoteclaw/session/bridge_of_session.py",
        "    parts += [",
        "    _ = [",
        f"{LIMITS}::test_another_login_does_not_wait",
    ),
    Mutant(
        "one login for all whose login a hook chooses",
        "remoteclaw/session/bridge_of_session.py",
        'login += f"-{lease.sid}"',
        "pass",
        f"{LIMITS}::test_sessions_whose_login_a_hook_may_choose_do_not_wait_for_each_other",
    ),
    Mutant(
        "a limit that uses up the tries of what comes behind it",
        "remoteclaw/session/patience.py",
        "            self._tries = 1  #",
        "            pass  #",
        f"{LIMITS}::test_a_busy_model_behind_a_limit_is_asked_again",
    ),
    Mutant(
        "a limit whose time has just come that lasts a day longer",
        "remoteclaw/runtimes/waits.py",
        "elif at < now - _LATELY:",
        "elif at < now:",
        "tests/runtimes/test_waits.py::test_a_sentence_names_a_time",
    ),
    Mutant(
        "a stop of tasks that is not answered",
        "remoteclaw/session/drain.py",
        "any(entry.stopped or entry.stopped_below for",
        "any(entry.stopped for",
        f"{LIMITS}::test_a_stop_of_nothing_but_tasks_is_answered",
    ),
    Mutant(
        "an answer that is begun a second time",
        "remoteclaw/session/drain.py",
        'return not self._reached_phases & {"output", "tool"}',
        "return True",
        f"{LIMITS}::test_what_has_begun_is_not_asked_again",
    ),
    Mutant(
        "a postponed attempt that counts as a failed one",
        f"{LUA}/postpone.lua",
        "redis.call('HINCRBY', KEYS[1], 'forgiven', 1)\n",
        "",
        f"{LIMITS}::test_an_end_of_the_tries_is_told",
    ),
    Mutant(
        "a postponed turn whose agent loses its tools",
        f"{LUA}/begin.lua",
        " and not is_resumed then",
        " then",
        f"{LEASE}::test_the_agent_of_a_turn_that_is_postponed_keeps_its_tools",
    ),
    Mutant(
        "a command that is mute behind a turn that is being postponed",
        f"{LUA}/postpone.lua",
        "if newest and not id_at_most(newest[1], ARGV[3]) then return 'news' end\n",
        "",
        f"{LIMITS}::test_a_new_conversation_that_comes_while_the_turn_is_postponed",
    ),
    Mutant(
        "a stop that waits behind what it stops",
        f"{LUA}/append.lua",
        "if ARGV[9] == 'stop' then",
        "if false then",
        f"{LIMITS}::test_a_person_stops_a_running_turn",
    ),
    Mutant(
        "a conversation that ends again when its reply was lost",
        f"{LUA}/reset.lua",
        "if done == ARGV[2] then return heard end",
        "",
        "tests/fleet/test_lost_replies.py::test_reset",
    ),
    Mutant(
        "a sender who waits for a full disk",
        "remoteclaw/fleet/connection.py",
        "if is_new and _NO_DISK.search(str(error)):",
        "if False:",
        "tests/fleet/test_fitness.py::"
        "test_a_disk_that_takes_nothing_is_named_within_seconds_and_passes",
    ),
    Mutant(
        "a full disk that is called a right that is missing",
        "remoteclaw/fleet/connection.py",
        "if problem := _unwritable(str(error)):",
        "if problem := None:",
        "tests/fleet/test_fitness.py::"
        "test_a_disk_that_takes_nothing_is_named_within_seconds_and_passes",
    ),
    Mutant(
        "an attempt that ends the conversation of the one before",
        "remoteclaw/session/reset.py",
        "return  # what there is by now is of the new conversation",
        "pass",
        f"{RESET}::test_another_attempt_does_not_end_the_conversation_that_the_first_one_began",
    ),
    Mutant(
        "an agent that outlives its conversation",
        "remoteclaw/session/reset.py",
        "        await self._discard_agent()\n",
        "",
        f"{RESET}::test_the_agent_of_the_old_conversation_ends",
    ),
    Mutant(
        "a record that outlives its conversation",
        f"{LUA}/reset.lua",
        "redis.call('DEL', KEYS[2], KEYS[3])",
        "redis.call('DEL', KEYS[2])",
        f"{RESET}::test_there_need_be_no_archive",
    ),
    Mutant(
        "an id that outlives its conversation",
        f"{LUA}/reset.lua",
        "redis.call('DEL', KEYS[2], KEYS[3])",
        "redis.call('DEL', KEYS[3])",
        f"{RESET}::test_settings_of_the_session_stay",
    ),
    Mutant(
        "a command that another session's agent gives",
        "remoteclaw/fleet/commands.py",
        'if entry.origin != "chat":',
        "if False:",
        f"{RESET}::test_only_people_give_commands",
    ),
    Mutant(
        "a command that joins a running turn",
        "remoteclaw/session/steering.py",
        'if entry.deliver != "channel" or self._command_of(entry):',
        'if entry.deliver != "channel":',
        f"{RESET}::test_it_never_joins_a_running_turn_and_nothing_overtakes_it",
    ),
    Mutant(
        "a command that is answered with what came before it",
        "remoteclaw/session/queue.py",
        "itertools.takewhile(lambda entry: entry.id not in commands, from_chat)",
        "from_chat[:]",
        f"{RESET}::test_order_is_kept[collect]",
    ),
    Mutant(
        "a command that is dropped",
        "remoteclaw/session/queue.py",
        "for entry in beyond if entry.id not in commands",
        "for entry in beyond",
        f"{RESET}::test_with_drop_new_no_message_behind_a_command_is_dropped",
    ),
    Mutant(
        "a thread's past that outlives its conversation",
        "remoteclaw/session/reset.py",
        "_with(entry, thread_context=None)",
        "entry",
        f"{RESET}::test_what_was_said_in_the_thread_before_is_not_told_any_more",
    ),
    Mutant(
        "an operator's end of a conversation that lets go on what runs",
        f"{LUA}/end.lua",
        "stop_one(ARGV[1], KEYS[2], KEYS[1])",
        "",
        f"{ARCHIVE}::test_it_stops_what_runs_and_what_waits",
    ),
    Mutant(
        "an operator's end of a conversation that ends the next one too",
        f"{LUA}/end.lua",
        "if seen then",
        "if false then",
        f"{ARCHIVE}::test_a_call_that_is_repeated_ends_no_other_conversation",
    ),
    Mutant(
        "a person who speaks as an operator",
        "remoteclaw/fleet/commands.py",
        'if entry.origin == "operator":',
        'if entry.message.text.startswith("operator"):',
        f"{ARCHIVE}::test_an_operator_s_words_are_no_command_of_a_chat",
    ),
    Mutant(
        "an operator's end of a conversation that a stop prevents",
        "remoteclaw/session/drain.py",
        'if batch.is_stopped and turn.entries[0].origin != "operator":',
        "if batch.is_stopped:",
        f"{ARCHIVE}::test_a_stop_or_another_end_does_not_keep_it_from_ending",
    ),
    Mutant(
        "ended conversations that are not forgotten",
        f"{LUA}/forget.lua",
        "names[#names + 1]",
        "local _",
        f"{ARCHIVE}::test_what_has_ended_is_forgotten_with_the_rest",
    ),
    Mutant(
        "a conversation that is kept by what nobody said",
        "remoteclaw/session/drain.py",
        'has_heard=was_asked and any(e.origin == "chat" for e in entries),',
        "has_heard=was_asked,",
        f"{FRESHNESS}::test_what_nobody_said_neither_keeps_a_conversation_nor_ends_it",
    ),
    Mutant(
        "a conversation that is ended by what nobody said",
        "remoteclaw/session/reset.py",
        'next((entry for entry in entries if entry.origin == "chat"), None)',
        "entries[0]",
        f"{FRESHNESS}::test_what_nobody_said_neither_keeps_a_conversation_nor_ends_it",
    ),
    Mutant(
        "a conversation that is kept by what nobody heard",
        "remoteclaw/session/drain.py",
        "has_heard=was_asked and any(",
        "has_heard=any(",
        f"{FRESHNESS}::test_what_nobody_heard_does_not_keep_a_conversation",
    ),
    Mutant(
        "a conversation that is as old as its last question",
        f"{LUA}/finish.lua",
        "redis.call('HSET', KEYS[1], 'heard', by_now(KEYS[1]))",
        "redis.call('HSET', KEYS[1], 'heard', string.match(turn, '%d+'))",
        f"{FRESHNESS}::test_it_is_the_time_of_the_answer_that_counts",
    ),
    Mutant(
        "a day that ends twice when the clocks go back",
        "remoteclaw/bridge/freshness.py",
        "datetime.combine(day, wanted, tzinfo=zone)",
        "datetime.combine(day, wanted.replace(fold=1), tzinfo=zone)",
        f"{FRESHNESS}::test_a_day_ends_at_its_time",
    ),
    Mutant(
        "a session that ends what it has not begun",
        "remoteclaw/session/reset.py",
        "return why if has_past else None",
        "return why",
        f"{FRESHNESS}::test_a_session_that_begins_has_nothing_to_end",
    ),
    Mutant(
        "a copy that is too old to begin",
        f"{LUA}/fork.lua",
        ", 'heard', now_ms())",
        ")",
        f"{FRESHNESS}::test_a_copy_is_not_too_old_to_begin",
    ),
    Mutant(
        "an end that is said by the first attempt alone",
        "remoteclaw/session/reset.py",
        "            return self._lease.state.reset_reason\n",
        "            return None\n",
        f"{FRESHNESS}::test_another_attempt_ends_nothing_more",
    ),
    Mutant(
        "effect without fencing",
        f"{LUA}/effect.lua",
        FENCE,
        "",
        f"{CHATS}::test_a_turn_that_another_worker_has_taken_over_and_nothing_is_sent",
    ),
    Mutant(
        "an effect of a turn that is over",
        f"{LUA}/effect.lua",
        "if running[1] ~= 'running' or running[2] ~= ARGV[2] then",
        "if false then",
        f"{CHATS}::test_a_turn_that_ends_meanwhile_and_nothing_is_sent",
    ),
    Mutant(
        "a call that is done twice",
        f"{LUA}/effect.lua",
        "if seen then return {'again', seen} end\n",
        "",
        f"{CHATS}::test_two_calls_of_one_name_at_once_send_one_message",
    ),
    Mutant(
        "a call that is asked again and wants its file again",
        "remoteclaw/gateway/sending.py",
        "if made is None:",
        "if True:",
        f"{CHAT_MEDIA}::test_a_repeated_call_does_not_need_its_file_any_more",
    ),
    Mutant(
        "a tool's file from anywhere",
        "remoteclaw/gateway/media.py",
        "asyncio.to_thread(outgoing.read, path)",
        "asyncio.to_thread(path.read_bytes)",
        f"{OUTGOING}::test_what_no_tool_sends",
    ),
    Mutant(
        "files that a gateway holds all at once",
        "remoteclaw/gateway/media.py",
        "async with call.transfers.one(call.principal, is_fetched=is_fetched):",
        "if True:",
        f"{TRANSFERS}::test_a_call_waits_for_its_turn_to_hold_a_file",
    ),
    Mutant(
        "one agent that takes the places of all",
        "remoteclaw/gateway/transfers.py",
        "await held.enter_async_context(own)",
        "pass",
        f"{TRANSFERS}::test_one_agent_does_not_take_the_places_of_all",
    ),
    Mutant(
        "an answer's file from anywhere",
        "remoteclaw/bridge/attachments.py",
        "asyncio.to_thread(self._outgoing.read, file)",
        "asyncio.to_thread(file.read_bytes)",
        f"{OUTGOING}::test_what_no_answer_has_with_it",
    ),
    Mutant(
        "the state directory in a workspace as a part of it",
        "remoteclaw/bridge/outgoing.py",
        'if _is_any(path, self.home.path, self.home.sockets, Path("/proc")):',
        "if False:",
        f"{OUTGOING}::test_what_no_tool_sends",
    ),
    Mutant(
        "a key store in a workspace as a part of it",
        "remoteclaw/bridge/outgoing.py",
        "if name := _key_store(path):",
        "if name := '':",
        f"{OUTGOING}::test_what_no_tool_sends",
    ),
    Mutant(
        "files of an agent that may do nothing",
        "remoteclaw/bridge/outgoing.py",
        'if self.permissions == "deny":',
        "if False:",
        f"{OUTGOING}::test_an_agent_that_may_do_nothing_sends_no_files",
    ),
    Mutant(
        "a workspace with the state directory in it",
        "remoteclaw/config/model.py",
        "if value is not None and Path(os.path.realpath(state))",
        "if False and Path(os.path.realpath(state))",
        f"{OUTGOING}::test_a_workspace_with_the_state_directory_in_it_is_refused",
    ),
    Mutant(
        "an account that nobody reads for",
        "remoteclaw/gateway/places.py",
        'if account not in (known or {"default"}):',
        "if False:",
        f"{CHATS}::test_there_is_no_such_place",
    ),
    Mutant(
        "an operation that is done too late",
        "remoteclaw/channels/relay.py",
        "if left_s <= 0:",
        "if False:",
        f"{CHAT_OPERATIONS}::test_what_comes_too_late_is_not_done",
    ),
    Mutant(
        "an agent that hears of a message before it is recorded",
        "remoteclaw/session/steering.py",
        "if entries and await self._lease.steer([entry.id for entry in entries]):",
        "if entries:",
        f"{STEERING}::test_a_worker_that_is_killed_in_a_steered_turn",
    ),
    Mutant(
        "a retry without what had joined the turn",
        f"{LUA}/begin.lua",
        "    if batch then batch = batch .. ',' .. steered end\n",
        "",
        f"{STEERING}::test_after_a_crash_the_turn_is_repeated_with_all_that_had_joined_it",
    ),
    Mutant(
        "what an agent took up is not believed",
        "remoteclaw/runtimes/demo.py",
        "yield SteeredEvent(tool_id)",
        "pass",
        f"{STEERING}::test_a_message_joins_the_running_turn",
    ),
    Mutant(
        "a turn that is being stopped takes up more",
        f"{LUA}/steer.lua",
        " or id_at_most(turn, stop)",
        "",
        f"{STEERING}::test_nothing_joins_a_turn_that_is_being_stopped",
    ),
    Mutant(
        "a joined turn that counts although it was given back",
        f"{LUA}/finish.lua",
        ", 'steered.' .. ARGV[3])",
        ")",
        f"{STEERING}::test_a_message_that_comes_too_late_gets_a_turn_of_its_own",
    ),
    Mutant(
        "a message alone with the failures of others",
        f"{LUA}/begin.lua",
        "attempts_at(ARGV[3] .. head)",
        "2",
        f"{STEERING}::test_a_message_is_tried_alone_as_often_as_any_other",
    ),
    Mutant(
        "an agent that is kept with a message in its queue",
        "remoteclaw/bridge/bridge.py",
        "if run.delivered.ends_agent or (",
        "if (",
        "tests/runtimes/test_claude_process.py"
        "::test_a_joined_message_that_it_never_takes_up_waits_and_fails_nothing",
    ),
    Mutant(
        "a secret in what is shown of a tool",
        "remoteclaw/bridge/activity.py",
        "scrubber.line(_telling(event.input, workspace), MOST_ARGUMENT)",
        "_telling(event.input, workspace)",
        "tests/session/test_activity.py::test_a_secret_reaches_neither_redis_nor_a_viewer",
    ),
    Mutant(
        "a secret in the record of a tool",
        "remoteclaw/bridge/delivery.py",
        "self._scrub(arguments, MOST_SHOWN)",
        "arguments[:MOST_SHOWN]",
        "tests/session/test_activity.py::test_a_secret_reaches_neither_redis_nor_a_viewer",
    ),
    Mutant(
        "a secret in what a tool returned",
        "remoteclaw/bridge/delivery.py",
        "self._scrub(output, MOST_SHOWN)",
        "output[:MOST_SHOWN]",
        "tests/session/test_activity.py::test_a_secret_reaches_neither_redis_nor_a_viewer",
    ),
    Mutant(
        "an argument of a tool before a group",
        "remoteclaw/bridge/activity.py",
        'if shown == "names":',
        "if False:",
        "tests/session/test_activity.py::test_what_is_shown_is_the_chat_s",
    ),
    Mutant(
        "activity that nobody wants",
        "remoteclaw/bridge/bridge.py",
        "callbacks = replace(callbacks, on_activity=None)",
        "pass",
        "tests/session/test_activity.py::test_what_is_shown_is_the_chat_s",
    ),
    Mutant(
        "activity that gets past a hook",
        "remoteclaw/session/drain.py",
        "on_activity=answer.show_activity if self._shows_live else None",
        "on_activity=answer.show_activity",
        "tests/bridge/test_hooks.py::test_what_a_hook_may_change_is_not_shown_before",
    ),
    Mutant(
        "live text that outlives its turn",
        "remoteclaw/fleet/scripts/finish.lua",
        "KEYS[6], KEYS[13]",
        "KEYS[6]",
        "tests/session/test_activity.py::test_a_tool_is_shown_while_it_runs",
    ),
    Mutant(
        "activity that comes back after its turn",
        "remoteclaw/channels/activity.py",
        "if turn > self._ended:",
        "if True:",
        "tests/channels/test_console.py::test_what_comes_late_of_a_turn_that_is_over_is_not_shown",
    ),
    Mutant(
        "seconds that stand still",
        "remoteclaw/channels/console.py",
        "            self._editor.redraw()\n            if not",
        "            if not",
        "tests/channels/test_console.py::test_a_running_tool_is_shown_with_its_seconds",
    ),
    Mutant(
        "a control within a secret",
        "remoteclaw/bridge/scrubber.py",
        "text = _seen(text[:MOST_READ])",
        "text = text[:MOST_READ]",
        "tests/bridge/test_scrubber.py::test_a_mark_within_a_secret_does_not_save_it",
    ),
    Mutant(
        "a secret that is cut before it is hidden",
        "remoteclaw/bridge/scrubber.py",
        "line(self, text: str, most: int) -> str:\n",
        "line(self, text: str, most: int) -> str:\n        text = text[:most]\n",
        "tests/bridge/test_scrubber.py::test_a_secret_is_hidden_before_the_line_is_cut",
    ),
    Mutant(
        "a message without a sign that it is waited for",
        "remoteclaw/channels/console.py",
        "} - self._answered\n            await self._draw()",
        "} - self._answered",
        "tests/channels/test_console.py::test_each_message_has_a_sign_until_it_is_answered",
    ),
    Mutant(
        "marks of direction on a terminal",
        "remoteclaw/host/terminal.py",
        r"\u200f\u2028-\u202e\u2060-\u206f",
        r"\u200f\u2028\u2029",
        "tests/channels/test_console.py::test_an_agent_cannot_turn_the_order_of_what_is_read",
    ),
    Mutant(
        "a list that a name commands",
        "remoteclaw/host/terminal.py",
        "return _IN_A_LINE.sub(_escape, text)",
        "return text",
        "tests/cli/test_printed.py::test_no_command_passes_on_what_a_terminal_obeys",
    ),
    Mutant(
        "a line of a log that a text has written",
        "remoteclaw/host/logs.py",
        "return in_a_line(super().formatMessage(record))",
        "return super().formatMessage(record)",
        "tests/cli/test_printed.py::test_no_log_has_a_line_that_a_text_has_written",
    ),
    Mutant(
        "live text that gets past a hook",
        "remoteclaw/session/drain.py",
        'shows_live=not self._hooks.has("message_sending")',
        "shows_live=True",
        "tests/bridge/test_hooks.py::test_what_a_hook_may_change_is_not_shown_before",
    ),
    Mutant(
        "a table that holds a worker up",
        "remoteclaw/bridge/chunks.py",
        r"(?=[ \t:|]*-)[ \t:|-]*",
        r"[ \t:|-]*-[ \t:|-]*",
        "tests/test_growth.py::test_a_long_row_of_dashes_is_no_trouble_to_a_table",
    ),
    Mutant(
        "a sender without an id",
        "remoteclaw/bridge/prompt.py",
        'message.from_ if entry.origin == "chat" else None',
        "None",
        "tests/bridge/test_prompt.py::test_no_name_imitates_an_id_or_a_header",
    ),
    Mutant(
        "a name that spells JSON",
        "remoteclaw/bridge/data.py",
        "_PLAIN_SIGNS.get(c) or _PLAIN.get(unicodedata.category(c), c)",
        "c",
        "tests/bridge/test_prompt.py::test_no_name_imitates_an_id_or_a_header",
    ),
    Mutant(
        "a channel with two spellings",
        "remoteclaw/messages.py",
        "        return channel_name(value)",
        "        return value",
        "tests/gateway/test_rpc.py::test_speaking_for_an_owner_needs_what_the_owners_agent_may",
    ),
    Mutant(
        "a header of several lines",
        "remoteclaw/bridge/prompt.py",
        "_on_one_line(orjson.dumps(header).decode())",
        "orjson.dumps(header).decode()",
        "tests/bridge/test_prompt.py::test_the_header_is_one_line_for_whoever_reads_it",
    ),
    Mutant(
        "a claim that a slow platform loses",
        "remoteclaw/fleet/replies.py",
        "                await self.claim()\n\n        keeping",
        "                pass\n\n        keeping",
        "tests/bridge/test_hooks.py::test_a_slow_delivery_keeps_its_stream",
    ),
    Mutant(
        "a message that overtakes one that waits",
        "remoteclaw/session/drain.py",
        'is_next = all(entry.origin != "chat" for entry in self._behind)',
        "is_next = True",
        f"{STEERING}::test_nothing_overtakes_what_waits",
    ),
    Mutant(
        "receipt without fencing",
        f"{LUA}/receipt.lua",
        "if token and token ~= ARGV[1] then",
        "if false then",
        f"{LEASE}::test_a_stream_has_one_reader_at_a_time",
    ),
    Mutant(
        "a receipt that does not name its reply stream",
        f"{LUA}/receipt.lua",
        "'id', KEYS[2] .. ' ' .. ARGV[2]",
        "'id', ARGV[2]",
        "tests/gateway/test_chats.py::test_a_broadcast_to_two_channels_tells_what_came_of_each",
    ),
    Mutant(
        "a setting that is not set and not told",
        "remoteclaw/tools/base.py",
        "if field.is_required():",
        "if False:",
        "tests/gateway/test_mcp.py::test_a_setting_that_is_not_set_is_null",
    ),
    Mutant(
        "a parameter that clients see as a reference",
        "remoteclaw/tools/schema.py",
        'if "$ref" in schema:',
        "if False:",
        "tests/gateway/test_mcp.py::test_the_list_is_small_and_says_what_a_model_needs",
    ),
    Mutant(
        "a question that is asked again while it is worked on",
        "remoteclaw/gateway/methods/sessions.py",
        "if outcome and not outcome.is_final:",
        "if False:",
        f"{SESSIONS}::test_what_was_not_answered_in_time_is_not_sent_again",
    ),
    Mutant(
        "a wait that the agent's CLI gives up first",
        "remoteclaw/gateway/methods/sessions.py",
        "min(params.timeout, contract.SEND_WAIT_S)",
        "params.timeout",
        f"{SESSIONS}::test_nothing_waits_longer_than_agents_clis_do",
    ),
    Mutant(
        "an agent that names another session as its own",
        "remoteclaw/gateway/mcp_host.py",
        "if not isinstance(principal, Operator):\n        return None",
        "if False:\n        return None",
        "tests/gateway/test_mcp.py::test_an_agent_names_no_other_session_of_a_chat",
    ),
    Mutant(
        "a message that failed and is written down as sent",
        "remoteclaw/gateway/sending.py",
        'if any(one.status != "failed" for one in sent):',
        "if True:",
        f"{CHATS}::test_what_the_platform_refused_is_noted_as_not_sent",
    ),
    Mutant(
        "a message to a console that nobody has",
        "remoteclaw/gateway/places.py",
        "if (provider, own) in readers.until_ms or not accounts:",
        "if True:",
        f"{CHATS}::test_what_a_command_line_s_session_sends_to_the_console_arrives",
    ),
    Mutant(
        "a tool that does nothing there and is listed",
        "remoteclaw/tools/policy.py",
        "if tool.name not in lacks)",
        "if tool.name)",
        "tests/gateway/test_mcp.py::test_tools_that_do_nothing_on_a_channel_are_not_listed",
    ),
    Mutant(
        "a time of day that is silently UTC",
        "remoteclaw/gateway/methods/cron.py",
        "tz=wanted.tz or (zone if by_wall_clock else None)",
        "tz=wanted.tz",
        "tests/gateway/test_cron.py::test_a_time_is_in_the_zone_of_the_agent_else_of_the_host",
    ),
    Mutant(
        "expire without fencing",
        f"{LUA}/expire.lua",
        "if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end\n",
        "",
        f"{LEASE}::test_ending_a_lease_does_not_reach_its_successor",
    ),
    Mutant(
        "unconditional close",
        f"{LUA}/close.lua",
        "if redis.call('XLEN', KEYS[2]) > 0 then return 'pending' end\n",
        "",
        f"{LEASE}::test_a_message_that_arrives_before_close_is_not_stranded",
    ),
    Mutant(
        "finish split in two",
        "remoteclaw/fleet/lease.py",
        '        left, hints, now, queue, hint = await self._run(\n            "finish",',
        "        for payload in payloads:\n"
        "            await self._scripts.client.xadd(\n"
        "                self._reply_stream, {'reply': orjson.dumps(payload)}\n"
        "            )\n"
        "        payloads = ()\n"
        '        left, hints, now, queue, hint = await self._run(\n            "finish",',
        f"{FAILPOINT}::test_a_worker_at[finish-before-kill]",
    ),
    Mutant(
        "no dedupe",
        f"{LUA}/append.lua",
        "if seen then",
        "if false then",
        f"{LEASE}::test_a_repeated_message_is_the_same_entry",
    ),
    Mutant(
        "no hint for a repetition",
        f"{LUA}/append.lua",
        "return {'duplicate', seen, queue_if_scheduled(KEYS[2])}",
        "return {'duplicate', seen, ''}",
        f"{LEASE}::test_a_repetition_hints_a_session_that_still_waits",
    ),
    Mutant(
        "no nonce on acquire",
        f"{LUA}/acquire.lua",
        "if state == 'running' and nonce ~= ARGV[2] and expires > now then",
        "if state == 'running' and expires > now then",
        "tests/fleet/test_lost_replies.py::test_acquire",
    ),
    Mutant(
        "no nonce on begin",
        f"{LUA}/begin.lua",
        "if begun ~= ARGV[2] then\n  before",
        "if true then\n  before",
        "tests/fleet/test_lost_replies.py::test_begin",
    ),
    Mutant(
        "no record of what finish did",
        f"{LUA}/finish.lua",
        "redis.call('HSET', KEYS[1], 'finished', turn)\n",
        "",
        f"{LEASE}::test_finish_is_one_step_and_counts_once",
    ),
    Mutant(
        "usage that is added before it is known whether it was",
        f"{LUA}/finish.lua",
        "if turn ~= ARGV[2] then\n",
        "if ARGV[26] ~= '' then redis.call('HINCRBY', KEYS[11], ARGV[27], 1) end\n"
        "if turn ~= ARGV[2] then\n",
        "tests/fleet/test_usage.py::test_a_turn_counts_once_however_often_its_end_is_told",
    ),
    Mutant(
        "usage of a day that is kept for ever",
        f"{LUA}/finish.lua",
        "redis.call('PEXPIRE', KEYS[12], ARGV[28])\n",
        "",
        "tests/fleet/test_usage.py::test_a_turn_counts_once_however_often_its_end_is_told",
    ),
    Mutant(
        "an index that is published twice",
        f"{LUA}/publish.lua",
        "if index < published then return 0 end\n",
        "",
        f"{LEASE}::test_a_message_of_a_turn_is_published_once",
    ),
    Mutant(
        "no batch record",
        f"{LUA}/begin.lua",
        "  if not batch then\n",
        "  if true then\n",
        "tests/session/test_queue.py::test_a_collected_batch_is_repeated_exactly",
    ),
    Mutant(
        "a batch that is never taken apart",
        f"{LUA}/begin.lua",
        "attempt - forgiven >= 2",
        "attempt - forgiven >= 200",
        "tests/session/test_queue.py::test_what_kills_its_worker_takes_no_other_message_along",
    ),
    Mutant(
        "only the last attempt's phase counts",
        f"{LUA}/begin.lua",
        "before = further(before or '', phase or '')",
        "before = phase or ''",
        "tests/session/test_drain.py::test_what_an_attempt_did_is_not_forgotten_by_one_that_did_less",
    ),
    Mutant(
        "an epoch that counts from one",
        f"{LUA}/acquire.lua",
        "now > epoch and now or epoch + step",
        "epoch + 1",
        f"{LEASE}::test_an_epoch_is_never_below_the_clock",
    ),
    Mutant(
        "an epoch that a clock which is behind gives out twice",
        f"{LUA}/acquire.lua",
        "or epoch + step)",
        "or epoch + 1)",
        f"{CLOCK}::test_an_epoch_that_was_lost_is_not_given_out_again",
    ),
    Mutant(
        "a lost lease that is noticed late",
        "remoteclaw/fleet/lease.py",
        "told(*await self._renew())",
        "continue",
        "tests/session/test_crashes.py::test_redis_that_has_lost_who_took_the_session",
    ),
    Mutant(
        "a lost lease of which the next attempt does not hear",
        f"{LUA}/_prelude.lua",
        "further(before[2] or '', 'spawned')",
        "before[2] or ''",
        f"{CLOCK}::test_a_lost_lease_is_noticed_and_the_next_attempt_hears_of_it",
    ),
    Mutant(
        "a lease that is as much longer as the clock was set back",
        f"{LUA}/sweep.lua",
        "if not looked or tonumber(looked) > now then",
        "if false then",
        f"{CLOCK}::test_a_clock_that_is_set_back_makes_no_lease_longer",
    ),
    Mutant(
        "a clock that is set back and wakes what is postponed",
        f"{LUA}/sweep.lua",
        "    if not not_before then redis.call('ZADD'",
        "    if true then redis.call('ZADD'",
        f"{CLOCK}::test_it_leaves_alone_what_is_postponed",
    ),
    Mutant(
        "a claim that is as much longer as the clock was set back",
        f"{LUA}/read.lua",
        "redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2])",
        "false",
        f"{CLOCK}::test_it_makes_no_claim_of_an_adapter_longer",
    ),
    Mutant(
        "a message without an answer that is called not sent",
        "remoteclaw/fleet/inbound.py",
        "            if error.may_have_run:\n",
        "            if False:\n",
        f"{UNANSWERED}::test_a_message_without_an_answer_is_perhaps_sent",
    ),
    Mutant(
        "a message without a server that is called perhaps sent",
        "remoteclaw/fleet/connection.py",
        "may_have_run or _may_have_run(error)",
        "True",
        f"{UNANSWERED}::test_a_message_that_found_no_server_is_not_sent",
    ),
    Mutant(
        "a console that gives a message up",
        "remoteclaw/channels/console.py",
        "                pass  # the person was told",
        "                raise  # the person was told",
        f"{UNANSWERED}::test_the_console_sends_until_redis_answers",
    ),
    Mutant(
        "sweeper off",
        "remoteclaw/fleet/sweep.py",
        "        await self.sweep(may_expire=now >= self._patient_until)\n",
        "",
        f"{FAILPOINT}::test_a_worker_at[acquire-before-kill]",
    ),
    Mutant(
        "a sweeper that is patient for ever",
        "remoteclaw/fleet/sweep.py",
        "self._patient_until = now + self._lease_s",
        "self._patient_until = now + 1e9",
        f"{LEASE}::test_a_sweeper_that_stood_still_lets_owners_renew_first",
    ),
    Mutant(
        "a sweeper that stood still and expires at once",
        "remoteclaw/fleet/sweep.py",
        "self._patient_until = now + self._lease_s",
        "pass",
        f"{LEASE}::test_a_sweeper_that_stood_still_lets_owners_renew_first",
    ),
    Mutant(
        "strangers that nobody ends",
        "remoteclaw/fleet/sweep.py",
        "            self._strangers = await self._workers.end_strangers(self._strangers)\n",
        "",
        "tests/session/test_hosts.py::test_a_worker_that_is_none_of_ours_is_named_and_asked_to_end",
    ),
    Mutant(
        "queues of dead hosts that nobody clears",
        "remoteclaw/fleet/sweep.py",
        "            self._deserted = await self._workers.clear_deserted(self._deserted)\n",
        "",
        "tests/session/test_hosts.py::test_the_queue_of_a_host_that_is_gone_is_removed",
    ),
    Mutant(
        "a clock that stops with the machine",
        "remoteclaw/clock.py",
        "clock_gettime(time.CLOCK_BOOTTIME)",
        "clock_gettime(time.CLOCK_MONOTONIC)",
        "tests/holder/test_holder.py::test_clocks_count_the_time_that_the_machine_sleeps",
    ),
    Mutant(
        "a holder's clock that stops with the machine",
        "remoteclaw/holder/program.py",
        "clock_gettime(time.CLOCK_BOOTTIME)",
        "clock_gettime(time.CLOCK_MONOTONIC)",
        "tests/holder/test_holder.py::test_clocks_count_the_time_that_the_machine_sleeps",
    ),
    Mutant(
        "a retry of a dead letter that counts twice",
        f"{LUA}/retry.lua",
        "  return became and {became, ''} or {}\n",
        "  return {}\n",
        "tests/fleet/test_lost_replies.py::test_retry",
    ),
    Mutant(
        "a sweeper that swells every queue",
        f"{LUA}/sweep.lua",
        "looks % 10 == tonumber(ARGV[5]) or redis.call('LLEN', 'rq:queue:' .. queue) == 0",
        "true",
        f"{LEASE}::test_the_sweeper_does_not_swell_a_queue_that_is_long",
    ),
    Mutant(
        "holder without beats",
        "remoteclaw/holder/program.py",
        "            if now() > self.deadline:\n                self.end()\n",
        "",
        "tests/holder/test_holder.py::test_the_tree_ends_when_beats_stop",
    ),
    Mutant(
        "a program that outlives its killed holder",
        "remoteclaw/holder/program.py",
        "        prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)  # the holder itself may be killed\n",
        "",
        "tests/holder/test_holder.py::test_the_program_dies_with_a_holder_that_is_killed",
    ),
    Mutant(
        "a damaged file of Redis that is not kept",
        "remoteclaw/up/aof.py",
        "        shutil.copy(self.file, copy)\n",
        "",
        "tests/up/test_aof.py::test_a_damaged_end_is_removed_and_kept_beside_it",
    ),
    Mutant(
        "half a transaction that stays in Redis' file",
        "remoteclaw/up/aof.py",
        "        if not is_open:\n",
        "        if True:\n",
        "tests/up/test_aof.py::test_a_damaged_end_is_removed_and_kept_beside_it",
    ),
    Mutant(
        "a repair that removes what is readable",
        "remoteclaw/up/embedded.py",
        "if damage.bad_at is not None:",
        "if damage.bad_at == -1:",
        "tests/up/test_aof.py::test_a_file_that_is_damaged_elsewhere_is_named_and_left_as_it_is",
    ),
    Mutant(
        "a repair that nobody is told of",
        "remoteclaw/cli/running.py",
        "if ready.repaired:",
        "if False:",
        "tests/up/test_up.py::test_a_power_failure_is_repaired_and_said",
    ),
    Mutant(
        "dropped replies whose files stay",
        f"{LUA}/_prelude.lua",
        "    redis.call('UNLINK', 'rc:blob:{' .. reply.sid .. '}:' .. file.blob)\n",
        "",
        "tests/fleet/test_unread.py"
        "::test_what_an_operator_drops_is_gone_with_its_files_and_its_outcome_says_so",
    ),
    Mutant(
        "a delivered reply that is told as dropped",
        f"{LUA}/receipt.lua",
        "if redis.call('HDEL', KEYS[position], 'undelivered') == 1 then",
        "if false then",
        "tests/fleet/test_unread.py::test_what_is_dropped_while_it_is_delivered_was_delivered",
    ),
    Mutant(
        "an up that does not start on a full Redis",
        "remoteclaw/up/embedded.py",
        "if used > self._memory_limit * MOST_USED:",
        "if not used:",
        "tests/up/test_up.py"
        "::test_on_a_full_redis_it_finishes_what_was_accepted_and_says_that_it_is_full",
    ),
    Mutant(
        "a configured limit of memory that does not hold",
        f"{LUA}/_prelude.lua",
        "own, limit = said('maxmemory'), MAX_MEMORY",
        "own, limit = said('maxmemory'), 0",
        "tests/fleet/test_fitness.py::test_the_lowest_limit_of_its_memory_counts",
    ),
    Mutant(
        "commands that don't work on a full Redis",
        "remoteclaw/fleet/connection.py",
        "_PROBE_OF_ROOM if needs_room else _PROBE",
        "_PROBE_OF_ROOM",
        "tests/fleet/test_fitness.py"
        "::test_memory_that_is_full_at_the_start_is_named_to_those_that_need_some",
    ),
    Mutant(
        "an agent that the kernel takes no sooner than Redis",
        "remoteclaw/holder/program.py",
        "        raise_oom_score()\n",
        "",
        "tests/holder/test_holder.py::test_the_kernel_takes_the_program_before_what_it_works_for",
    ),
    Mutant(
        "strays of a killed holder that are left",
        "remoteclaw/session/agent.py",
        "if count := end_orphans(path.parent, agent):",
        "if count := 0:",
        "tests/contracts/test_fleet_runtimes.py::test_a_holder_that_is_killed_in_a_turn",
    ),
    Mutant(
        "another agent beside one whose holder is frozen",
        "remoteclaw/session/agent.py",
        "            _end_orphans(path)\n",
        "",
        "tests/bridge/test_bridge.py"
        "::test_a_parked_agent_whose_holder_does_not_answer_is_ended_before_the_next",
    ),
    Mutant(
        "an agent that can't be parked and is left",
        "remoteclaw/session/agent.py",
        "            _end_orphans(self._holder.path, self._holder.pid)\n",
        "",
        "tests/bridge/test_bridge.py::test_a_holder_that_does_not_answer_is_ended",
    ),
    Mutant(
        "a process that is killed because it names a run directory",
        "remoteclaw/host/process.py",
        "return is_holder and arguments[2:]",
        "return arguments[2:]",
        "tests/holder/test_holder.py::test_only_the_holder_of_a_run_directory_is_ended",
    ),
    Mutant(
        "an agent that is let go in the moment in which its holder is killed",
        "remoteclaw/session/agent.py",
        "if not await holder.end():",
        "if await holder.end() and False:",
        "tests/bridge/test_bridge.py"
        "::test_an_agent_that_is_let_go_as_its_holder_is_killed_leaves_nothing",
    ),
    Mutant(
        "an owner that does not fence itself",
        "remoteclaw/fleet/lease.py",
        "if boottime() > self.fence:",
        "if False:",
        f"{LEASE}::test_a_lease_that_nobody_renews_is_given_up",
    ),
    Mutant(
        "stop by pub/sub only",
        "remoteclaw/session/drain.py",
        "        self._keeper.beat()\n        self._told(stop_mark, newest)\n",
        "        self._keeper.beat()\n",
        "tests/session/test_drain.py::test_a_stop_that_was_not_heard_is_found_at_the_next_renewal",
    ),
    Mutant(
        "interrupt by pub/sub only",
        "remoteclaw/session/drain.py",
        "        self._keeper.beat()\n        self._told(stop_mark, newest)\n",
        "        self._keeper.beat()\n        self._told(stop_mark, '')\n",
        "tests/session/test_queue.py::test_an_interruption_that_was_not_heard_is_found_at_the_next_renewal",
    ),
    Mutant(
        "a plan's limit that is taken for a short one",
        "remoteclaw/runtimes/claude_failure.py",
        'is_reached = limit.get("status") == "rejected"',
        'is_reached = limit.get("status") == "never"',
        "tests/runtimes/test_claude_process.py::"
        "test_the_end_of_a_limit_is_the_one_of_the_field_and_stays_known",
    ),
    Mutant(
        "a summary for the agent itself that is said to the person",
        "remoteclaw/runtimes/acp_turn.py",
        "if message_id in self._own:",
        "if False:",
        "tests/runtimes/test_acp.py::test_what_opencode_notes_in_its_log_is_read_before_what_it_says",
    ),
    Mutant(
        "a turn that waits for its model without an end",
        "remoteclaw/runtimes/patience.py",
        "if is_lasting or now + wait_s - self._failing_since > self._most_s:",
        "if is_lasting:",
        "tests/runtimes/test_waits.py::test_a_turn_that_has_said_nothing_is_not_waited_for",
    ),
    Mutant(
        "work that is dropped because its model is busy for a minute",
        "remoteclaw/runtimes/patience.py",
        "BEGUN_S if self._has_begun else FRESH_S",
        "FRESH_S",
        "tests/runtimes/test_waits.py::test_a_turn_that_has_done_something_is_waited_for_longer",
    ),
    Mutant(
        "a tool that may not take its time",
        "remoteclaw/bridge/pace.py",
        "return 0.0 if is_waiting else",
        "return",
        f"{PACE}::test_a_tool_may_take_its_time",
    ),
    Mutant(
        "a turn without an end",
        "remoteclaw/bridge/pace.py",
        "if self._used_s + self._clock() - self._began > limits.turn_s:",
        "if False:",
        f"{PACE}::test_a_turn_has_a_time_in_all",
    ),
    Mutant(
        "an answer that stays half said after codex began anew",
        "remoteclaw/runtimes/codex_turn.py",
        "return self._prose.take_back() if saying else []",
        "return []",
        f"{RUNTIMES}::test_a_stream_that_breaks_once[codex]",
    ),
    Mutant(
        "a command of codex' that goes on when it was stopped",
        "remoteclaw/runtimes/codex_turn.py",
        'await self._peer.request("thread/backgroundTerminals/clean", thread)',
        "pass",
        f"{RUNTIMES}::test_a_command_that_is_stopped_does_nothing_more[codex]",
    ),
    Mutant(
        "a permission that is given because somebody was asked",
        "remoteclaw/runtimes/codex_turn.py",
        '"deny": "decline"}',
        '"deny": "accept"}',
        f"{RUNTIMES}::test_with_nobody_to_ask_nothing_is_done_and_the_person_is_told[codex]",
    ),
    Mutant(
        "codex trusts whatever it works in",
        "remoteclaw/runtimes/codex.py",
        "            _trust(spec),\n",
        "",
        f"{RUNTIMES}::test_settings_of_the_workspace_count_only_if_it_is_trusted[codex-ask]",
    ),
    Mutant(
        "codex edits the user's settings",
        "remoteclaw/runtimes/codex.py",
        "            _trust(spec),\n",
        "",
        f"{RUNTIMES}::test_no_settings_of_the_users_are_touched[codex]",
    ),
    Mutant(
        "codex trusts the repository around its workspace",
        "remoteclaw/runtimes/codex.py",
        "for parent in Path(name).parents",
        "for parent in ()",
        f"{RUNTIMES}::test_codex_does_not_obey_a_repository_that_it_was_told_to_trust[codex]",
    ),
    Mutant(
        "a doctor who doesn't see that another program has the port",
        "remoteclaw/up/doctor.py",
        "if port is not None and not port.ok:",
        "if False:",
        "tests/cli/test_cli.py::test_doctor_names_a_port_that_another_program_has",
    ),
    Mutant(
        "a doctor who doesn't ask whether an agent is signed in",
        "remoteclaw/up/doctor.py",
        "if problem := sign_in_problem(runtime_name, (program, *arguments), env):",
        "if problem := None:",
        "tests/cli/test_cli.py::test_doctor_names_an_agent_that_is_not_signed_in",
    ),
    Mutant(
        "gemini trusts a workspace whatever is in it",
        "remoteclaw/runtimes/gemini.py",
        "(problem := trust_problem(spec.workspace, spec.env, asks=asks)) is None",
        "True",
        "tests/contracts/test_tools.py::"
        "test_gemini_obeys_nothing_of_a_workspace_and_has_no_tools_then",
    ),
    Mutant(
        "gemini's workspaces are not looked at above",
        "remoteclaw/runtimes/gemini.py",
        "for directory in (workspace, *sorted(above)):",
        "for directory in (workspace,):",
        "tests/runtimes/test_gemini.py::"
        "test_a_workspace_where_something_would_be_obeyed_is_not_trusted",
    ),
    Mutant(
        "a prompt of gemini's that names tools which it doesn't have",
        "remoteclaw/protocols.py",
        "replace(self, tools=None, system_prompt=self.plain_prompt)",
        "replace(self, tools=None)",
        "tests/contracts/test_tools.py::"
        "test_gemini_obeys_nothing_of_a_workspace_and_has_no_tools_then",
    ),
    Mutant(
        "a server of another's that is taken for ours by its name",
        "remoteclaw/runtimes/gemini.py",
        'if spec.own_server and call_id.startswith(f"mcp_{spec.own_server}_"):',
        'if call_id.startswith(f"mcp_{OWN_SERVER}"):',
        "tests/contracts/test_tools.py::"
        "test_a_server_of_the_users_own_that_is_called_like_ours_needs_a_permission",
    ),
    Mutant(
        "a first turn of claude's without the user's own servers",
        "remoteclaw/runtimes/claude.py",
        'env.setdefault("MCP_CONNECTION_NONBLOCKING", "0")',
        'env.setdefault("MCP_CONNECTION_NONBLOCKING", "1")',
        f"{RUNTIMES}::"
        "test_the_users_own_servers_are_not_there_unless_they_are_inherited[claude-ask]",
    ),
    Mutant(
        "a first turn of codex' without the user's own servers",
        "remoteclaw/runtimes/codex.py",
        'if status == "starting":',
        'if status == "unheard of":',
        f"{RUNTIMES}::"
        "test_the_users_own_servers_are_not_there_unless_they_are_inherited[codex-ask]",
    ),
    Mutant(
        "codex believes what a configured tool says of itself",
        "remoteclaw/runtimes/codex.py",
        '"prompt" if permissions == "deny" else "approve"',
        '"auto" if permissions == "deny" else "approve"',
        f"{RUNTIMES}::test_who_may_do_nothing_uses_no_tool_of_a_server[codex-False]",
    ),
    Mutant(
        "codex believes what a tool of the user's own servers says of itself",
        "remoteclaw/runtimes/codex.py",
        'elif spec.permissions == "deny" and APPROVAL not in own:',
        "elif False:",
        f"{RUNTIMES}::test_who_may_do_nothing_uses_no_tool_of_a_server[codex-True]",
    ),
    Mutant(
        "a server that answers itself in the person's name",
        "remoteclaw/runtimes/codex_turn.py",
        "and not self._is_of_codex(message)",
        "and False",
        f"{RUNTIMES}::test_a_question_of_a_servers_own_is_not_answered_for_the_person[codex]",
    ),
    Mutant(
        "a server that says what codex says when it asks",
        "remoteclaw/runtimes/codex_turn.py",
        " or server in self._unasked:",
        ":",
        f"{RUNTIMES}::test_a_question_of_a_servers_own_is_not_answered_for_the_person[codex]",
    ),
    Mutant(
        "a number that is a file's name",
        "remoteclaw/runtimes/codex_turn.py",
        '"head": r"-n\\d*|-\\d+",',
        '"head": r"-n\\d*|-\\d+|\\d+",',
        "tests/runtimes/test_codex.py::test_whatever_else_codex_calls_reading_is_asked_for",
    ),
    Mutant(
        "a space that a shell takes for a part of a name",
        "remoteclaw/runtimes/codex_turn.py",
        "    if not shell[2].isprintable():\n        return False\n"
        '    program, *arguments = shell[2].split(" ")\n',
        "    program, *arguments = shell[2].split()\n",
        "tests/runtimes/test_codex.py::test_whatever_else_codex_calls_reading_is_asked_for",
    ),
    Mutant(
        "gemini allows what it may not use",
        "remoteclaw/runtimes/gemini.py",
        ' if spec.permissions != "deny" else ()',
        "",
        f"{RUNTIMES}::test_who_may_do_nothing_uses_no_tool_of_a_server[gemini-False]",
    ),
    Mutant(
        "opencode runs what lies in its workspace",
        "remoteclaw/runtimes/opencode.py",
        "if not spec.trust_workspace and (problem",
        "if False and (problem",
        f"{RUNTIMES}::test_opencode_does_not_start_where_it_would_run_plugins[opencode]",
    ),
    Mutant(
        "a copy that is taken for made",
        "remoteclaw/bridge/bridge.py",
        "elif run.fork_of and run.error and not run.run.text",
        "elif False and not run.run.text",
        f"{RUNTIMES}::test_a_copy_that_dies_before_it_says_anything_is_begun_again[claude]",
    ),
    Mutant(
        "an agent that waits for an answer which nobody gives",
        "remoteclaw/bridge/bridge.py",
        "            run.is_unanswered.set()",
        "            pass",
        "tests/runtimes/test_claude_process.py::test_an_agent_that_can_not_be_answered_is_ended",
    ),
    Mutant(
        "what is read of an agent that is being parked",
        "remoteclaw/session/agent.py",
        "            self._pipes.hold()\n",
        "            pass\n",
        "tests/runtimes/test_acp.py::"
        "test_what_is_said_while_an_agent_is_parked_is_heard_by_the_next",
    ),
    Mutant(
        "an option of an agent's that means the opposite",
        "remoteclaw/runtimes/acp_turn.py",
        '"deny": ("reject_once", "reject_always"),',
        '"deny": ("allow_once", "reject_always"),',
        "tests/runtimes/test_acp.py::test_a_permission_is_answered_with_the_option_that_fits",
    ),
    Mutant(
        "files that are not kept as long as their message",
        f"{LUA}/append.lua",
        "for position = 6, #KEYS do redis.call('PERSIST', KEYS[position]) end\n",
        "",
        f"{FILES}::test_what_waits_is_kept_for_as_long_as_it_waits",
    ),
    Mutant(
        "a message without one of its files",
        f"{LUA}/append.lua",
        "return {'incomplete', '', ''}",
        "break",
        f"{FILES}::test_a_message_whose_file_is_gone_is_refused_and_not_stored",
    ),
    Mutant(
        "a file that is stored under a lost lease",
        f"{LUA}/store.lua",
        "  if fence then return fence end\n",
        "",
        f"{FILES}::test_an_agent_s_files_are_stored_by_the_owner_of_the_lease_alone",
    ),
    Mutant(
        "a late piece that shortens a file's life",
        f"{LUA}/store.lua",
        "if left ~= -1 then ",
        "if true then ",
        f"{FILES}::test_a_piece_that_is_sent_again_late_does_not_shorten_its_life",
    ),
    Mutant(
        "files of the running turn that make room for others",
        "remoteclaw/bridge/attachments.py",
        "if entry.name not in keep:",
        "if True:",
        f"{FILES}::test_a_directory_of_files_does_not_grow_for_ever",
    ),
    Mutant(
        "files that outlive their message",
        f"{LUA}/finish.lua",
        "redis.call('UNLINK', ARGV[18] .. name)",
        "",
        f"{FILES}::test_what_was_answered_is_not_kept",
    ),
    Mutant(
        "a dead letter without its files",
        f"{LUA}/finish.lua",
        "if ARGV[4] ~= 'dead' then\n",
        "if true then\n",
        f"{FILES}::test_a_dead_letter_keeps_its_files_until_it_is_dropped",
    ),
    Mutant(
        "files that outlive their delivery",
        f"{LUA}/receipt.lua",
        "redis.call('UNLINK', KEYS[position])",
        "local _",
        f"{FILES}::test_an_answer_s_files_reach_the_adapter_with_its_last_message",
    ),
    Mutant(
        "a notice that is numbered before what follows and sent behind it",
        "remoteclaw/bridge/bridge.py",
        "await run.delivery.say(notice, is_last=False)",
        "await run.delivery.say(notice)",
        f"{FILES}::test_a_file_that_got_lost_is_told_to_both",
    ),
    Mutant(
        "a file that is sent wherever it is",
        "remoteclaw/bridge/outgoing.py",
        "if not any(file.is_relative_to(root) for root in roots):",
        "if False:",
        f"{FILES}::test_what_can_t_be_sent_is_told",
    ),
    Mutant(
        "a name that a CLI obeys",
        "remoteclaw/bridge/attachments.py",
        'f"{number}-{attachment.name}"',
        "attachment.name",
        f"{FILES}::test_no_name_of_a_file_means_anything_to_the_agent",
    ),
    Mutant(
        "an address that is not looked at",
        "remoteclaw/host/fetch.py",
        "if self._may_connect(address, port)]",
        "if address]",
        f"{FETCHING}::test_no_spelling_of_a_private_address_is_connected_to",
    ),
    Mutant(
        "a private address within another one",
        "remoteclaw/host/fetch.py",
        "if address in _NAT64:",
        "if False:",
        f"{FETCHING}::test_what_only_we_can_reach_is_not_public",
    ),
    Mutant(
        "a fetched file of any size",
        "remoteclaw/host/fetch.py",
        "if len(content) > MAX_ATTACHMENT_BYTES:",
        "if False:",
        f"{FETCHING}::test_what_is_not_taken",
    ),
    Mutant(
        "a stop that begin does not look at",
        f"{LUA}/begin.lua",
        "if id_at_most(entries[#entries][1], stop) and (attempt == 1 or not is_dropped) then",
        "if false then",
        "tests/session/test_drain.py::test_a_running_turn_is_stopped_and_what_waits_behind_it_too",
    ),
    Mutant(
        "an agent that is not recorded when it is asked",
        "remoteclaw/session/drain.py",
        "detail, agent_process=self._keeper.record()",
        "detail",
        "tests/session/test_crashes.py::test_two_agents_of_a_session_are_never_at_work_at_once",
    ),
    Mutant(
        "a warm agent is not asked what it remembers",
        "remoteclaw/session/agent.py",
        'state["turn"] != self.finished_turn or ',
        "",
        "tests/session/test_drain.py::test_a_warm_agent_that_knows_another_last_turn_is_not_used",
    ),
    Mutant(
        "a work-horse that outlives its worker",
        "workers/jobs.py",
        "        die_with_parent(settings.WORKER_PID)\n",
        "        pass\n",
        "tests/session/test_crashes.py::test_the_worker",
    ),
    Mutant(
        "no limit to what is accepted",
        f"{LUA}/append.lua",
        "if ARGV[9] ~= 'stop' and is_full_for('messages') then return {'full', '', ''} end\n",
        "",
        "tests/fleet/test_fitness.py"
        "::test_a_full_server_refuses_what_is_new_and_finishes_what_is_not",
    ),
    Mutant(
        "tools that ignore how full Redis is",
        f"{LUA}/effect.lua",
        "if is_full_for(ARGV[1] ~= '' and 'tools' or 'messages') then",
        "if false then",
        f"{MEMORY}::test_what_agents_ask_for_is_refused_before_messages_are",
    ),
    Mutant(
        "a stranger's agent that fills Redis",
        f"{LUA}/effect.lua",
        "if kind ~= 'note' and not (kind == 'job' and ARGV[9] == '') then",
        "if false then",
        "tests/gateway/test_flood.py::test_the_owner_is_answered_whatever_a_stranger_s_turns_do",
    ),
    Mutant(
        "tools that take the room of messages",
        f"{LUA}/_prelude.lua",
        "tools = 0.7,",
        "tools = 0.8,",
        f"{MEMORY}::test_what_agents_ask_for_is_refused_before_messages_are",
    ),
    Mutant(
        "messages that take the room for finishing",
        f"{LUA}/_prelude.lua",
        "messages = 0.8}",
        "messages = 1}",
        f"{MEMORY}::test_what_was_accepted_is_finished_when_nothing_new_is_taken",
    ),
    Mutant(
        "dead letters that are retried on a full server",
        f"{LUA}/retry.lua",
        "if is_full_for('messages') then return {'full'} end\n",
        "",
        f"{MEMORY}::test_a_dead_letter_is_retried_when_there_is_room",
    ),
    Mutant(
        "outcomes that are kept for a week on a server that fills",
        f"{LUA}/finish.lua",
        "is_full_for('files') and math.min(ARGV[5], HOUR_MS) or ARGV[5]",
        "ARGV[5]",
        f"{MEMORY}::test_what_is_kept_to_be_looked_at_goes_first",
    ),
    Mutant(
        "what a turn has sent is counted by attempts",
        f"{LUA}/begin.lua",
        "  redis.call('HSETNX', KEYS[1], 'busy_since', now)\n",
        "  redis.call('HSETNX', KEYS[1], 'busy_since', now)\n"
        "  redis.call('HDEL', KEYS[1], 'sent_messages', 'sent_bytes')\n",
        f"{MEMORY}::test_a_turn_sends_a_hundred_messages_however_often_it_begins",
    ),
    Mutant(
        "what a chat has sent is counted by threads",
        "remoteclaw/fleet/keys.py",
        "replace(session, thread=None, task=None).sid",
        "session.sid",
        f"{MEMORY}::test_a_chat_sends_three_hundred_messages_an_hour",
    ),
    Mutant(
        "any number of bytes sent by a turn",
        f"{LUA}/_prelude.lua",
        "messages = 100, bytes = 1024 * 1024}",
        "messages = 100, bytes = math.huge}",
        f"{MEMORY}::test_a_turn_sends_a_megabyte",
    ),
    Mutant(
        "one conversation that keeps any number of bytes waiting",
        f"{LUA}/append.lua",
        " or bytes_of(KEYS[1]) > MOST_WAITING_BYTES * room",
        "",
        f"{MEMORY}::test_one_conversation_keeps_a_bounded_number_of_bytes_waiting",
    ),
    Mutant(
        "what was not sent that counts",
        f"{LUA}/effect.lua",
        "    local beyond = sends_too_much",
        "    count_sent(KEYS[1], KEYS[#KEYS], sent)\n    local beyond = sends_too_much",
        "tests/fleet/test_memory.py::test_what_was_not_sent_counts_towards_nothing",
    ),
    Mutant(
        "a late renewal that wakes what was postponed",
        f"{LUA}/renew.lua",
        "if redis.call('HGET', KEYS[1], 'state') ~= 'running' then return {'', ''} end\n",
        "",
        f"{LEASE}::test_a_renewal_that_comes_late_does_not_wake_what_was_postponed",
    ),
    Mutant(
        "a connector with a person's rights below an agent",
        "remoteclaw/connector/environment.py",
        "    if _is_of_agent(environ):\n",
        "    if False:\n",
        "tests/gateway/test_private_door.py"
        "::test_it_gives_agents_of_remoteclaw_no_rights_of_the_person",
    ),
    Mutant(
        "a damaged length that is taken for the end",
        "remoteclaw/up/aof.py",
        "return whole, position if len([*heads]) == HEADS else None",
        "return whole, None",
        "tests/up/test_aof.py::test_a_wrong_length_is_not_taken_for_the_end",
    ),
    Mutant(
        "a session's id on the dashboard",
        "workers/dashboard.py",
        "    Job.get_call_string = lambda",
        "    _ = lambda",
        "tests/workers/test_dashboard.py::test_it_shows_queues_workers_and_jobs_readably",
    ),
    Mutant(
        "one conversation that stores any number of files",
        f"{LUA}/store.lua",
        " + ARGV[4] > most then return -1 end",
        " + ARGV[4] > math.huge then return -1 end",
        f"{MEMORY}::test_one_conversation_stores_a_bounded_number_of_files",
    ),
    Mutant(
        "files that are looked at with their first piece alone",
        f"{LUA}/store.lua",
        "if is_full_for('files') then",
        "if ARGV[2] == '0' and is_full_for('files') then",
        f"{MEMORY}::test_a_file_for_which_there_is_no_room_leaves_none_of_it",
    ),
    Mutant(
        "any number of bytes that no adapter reads",
        f"{LUA}/_prelude.lua",
        " and bytes <= MOST_UNREAD_BYTES then",
        " then",
        "tests/fleet/test_unread.py::test_streams_have_a_bound_in_bytes",
    ),
    Mutant(
        "an agent at work makes room",
        "remoteclaw/holder/program.py",
        "                self.is_unwanted = False  # an agent",
        "                if self.is_unwanted: self.end()  # an agent",
        "tests/holder/test_holder.py::test_an_agent_at_work_makes_no_room",
    ),
    Mutant(
        "a batch that straddles a stop",
        f"{LUA}/begin.lua",
        "up_to_stop(ARGV[4], stop)",
        "ARGV[4]",
        "tests/session/test_queue.py::test_what_was_stopped_is_not_run_with_what_came_after_the_stop",
    ),
    Mutant(
        "a recorded turn that is dropped for others",
        f"{LUA}/begin.lua",
        "if batch and begun ~= ARGV[2] and wanted == 'dropped' then wanted = 'accepted' end\n",
        "",
        "tests/session/test_queue.py::test_a_turn_that_was_cut_off_is_not_dropped_for_what_came_behind_it",
    ),
    Mutant(
        "a left-over hint that takes a session from its host",
        f"{LUA}/acquire.lua",
        "if state == 'scheduled' and host and host ~= ARGV[8] then",
        "if false then",
        f"{LEASE}::test_a_hint_that_is_left_over_takes_no_session_from_its_host",
    ),
    Mutant(
        "a cap that is forgotten at a hand-over",
        "remoteclaw/fleet/state.py",
        'busy_since_ms=_ms(text.get("busy_since")),\n',
        "busy_since_ms=None,\n",
        "tests/session/test_queue.py::test_the_cap_is_not_forgotten_when_the_session_changes_hands",
    ),
    Mutant(
        "dead directories that count as agents",
        "remoteclaw/holder/budget.py",
        "count += listens(run) or time.time() - run.stat().st_mtime < YOUNG_S",
        "count += 1",
        "tests/holder/test_budget.py::test_what_dead_holders_left_is_no_agent",
    ),
    Mutant(
        "workers of another machine that are taken for dead",
        "remoteclaw/host/process.py",
        "{boot_id()}/",
        "",
        "tests/fleet/test_machines.py::test_of_another_boot_nothing_is_concluded",
    ),
    Mutant(
        "run directories of another machine that are removed",
        "remoteclaw/holder/client.py",
        "if run.name.endswith(_boot()) else",
        "if True else",
        "tests/fleet/test_machines.py::test_run_directories_of_another_machine_are_left_alone",
    ),
    Mutant(
        "a gateway's address that another machine uses",
        "remoteclaw/fleet/keys.py",
        "{host_id}:{boot_id()}",
        "{host_id}",
        "tests/fleet/test_machines.py::test_each_machine_has_a_gateway_of_its_own",
    ),
    Mutant(
        "strays that are judged without their namespace",
        "remoteclaw/host/process.py",
        "match[3].decode()\n    return namespace != _namespace() or ",
        "match[3].decode()\n    return ",
        "tests/holder/test_holder.py::test_strays_of_another_namespace_are_left_alone",
    ),
    Mutant(
        "a result that is written beside the end of its turn",
        "remoteclaw/fleet/lease.py",
        """        sid = owed.to.sid if owed else keys.NOBODY
""",
        """        sid = owed.to.sid if owed else keys.NOBODY
        if owed:
            await self._scripts.client.xadd(keys.inbound(sid), {"entry": owed.entry})
            await self._scripts.client.zadd(keys.ACTIVE, {sid: 0})
            await self._scripts.client.hset(keys.state(sid), "state", "scheduled")
            await self._scripts.client.hset(keys.state(sid), "key", str(owed.to))
            owed = None
""",
        f"{FAILPOINT}::test_a_worker_with_a_task_of_another_session_at[finish-before-kill]",
    ),
    Mutant(
        "a task that is started again by the next attempt",
        f"{LUA}/effect.lua",
        "  if made_before then",
        "  if false then",
        f"{SUBAGENTS}::test_an_attempt_that_begins_anew_gets_the_sessions_of_the_one_before",
    ),
    Mutant(
        "any number of unfinished tasks",
        f"{LUA}/effect.lua",
        "  if busy >= tonumber(ARGV[14]) then",
        "  if false then",
        f"{SUBAGENTS}::test_how_many_may_be_unfinished",
    ),
    Mutant(
        "a cancelled task that has a result",
        f"{LUA}/_prelude.lua",
        "  if is_unwanted then redis",
        "  if false then redis",
        f"{SUBAGENTS}::test_a_cancelled_task_and_all_below_it_end_without_a_result",
    ),
    Mutant(
        "a stop that spares what the session has started",
        f"{LUA}/_prelude.lua",
        "ipairs(descendants(sid))",
        "ipairs({})",
        f"{SUBAGENTS}::test_who_stops_a_session_stops_what_it_has_started",
    ),
    Mutant(
        "a label that two sessions have",
        f"{LUA}/_prelude.lua",
        "  if owner and owner ~= sid and",
        "  if false and",
        f"{SUBAGENTS}::test_a_label_is_an_agents_own_and_finds_its_session",
    ),
    Mutant(
        "a message to a session that waits for this one",
        "remoteclaw/gateway/methods/sessions.py",
        "    if target == call.caller.parent or target.sid in call.turn.via:",
        "    if target == call.caller.parent:",
        f"{SUBAGENTS}::test_nobody_writes_to_who_waits_for_it",
    ),
    Mutant(
        "any number of turns that wait",
        f"{LUA}/wait.lua",
        " then return 'full' end",
        " then return 'free' end",
        f"{SUBAGENTS}::test_no_turn_waits_when_no_worker_would_be_left",
    ),
    Mutant(
        "sessions that set each other going for ever",
        "remoteclaw/session/reply.py",
        "hops=hops_of(self.turn.entries) + 1,",
        "hops=0,",
        f"{SUBAGENTS}::test_sessions_dont_set_each_other_going_for_ever",
    ),
    Mutant(
        "replies that nobody reads for ever",
        f"{LUA}/_prelude.lua",
        "    give_up_unread(stream, MOST_UNREAD, 8)\n",
        "",
        "tests/fleet/test_unread.py::test_what_no_adapter_reads_is_given_up_after_three_days",
    ),
    Mutant(
        "answers of last month",
        f"{LUA}/read.lua",
        "  give_up_unread(KEYS[3], math.huge, math.huge)\n",
        "",
        "tests/fleet/test_unread.py::test_an_adapter_that_comes_late_delivers_nothing_old",
    ),
    Mutant(
        "replies given up while an adapter is started again",
        f"{LUA}/_prelude.lua",
        "local AWAY_MS = HOUR_MS",
        "local AWAY_MS = -100000",
        "tests/fleet/test_unread.py"
        "::test_an_adapter_that_is_started_again_has_still_all_to_deliver",
    ),
    Mutant(
        "a live adapter's replies given up",
        f"{LUA}/_prelude.lua",
        "  return not claimed or now_ms() - claimed > AWAY_MS\n",
        "  return true\n",
        "tests/fleet/test_unread.py::test_what_a_live_adapter_has_still_to_deliver_stays",
    ),
    Mutant(
        "a stranger's turn that writes everywhere",
        "remoteclaw/gateway/sending.py",
        "    if not policy.may_send(",
        "    if False and not policy.may_send(",
        "tests/gateway/test_strangers.py::test_a_stranger_s_turn_writes_to_no_other_chat",
    ),
    Mutant(
        "a message elsewhere that doesn't say where it comes from",
        "remoteclaw/gateway/sending.py",
        'return f"(From {own.provider}:{own.channel_id}, by {own.agent}:)\\n{text}".rstrip()',
        "return text",
        "tests/gateway/test_strangers.py::test_what_may_be_sent_elsewhere_says_where_it_comes_from",
    ),
    Mutant(
        "wide sight for everybody",
        "remoteclaw/tools/policy.py",
        'if sees != "self" and not is_owner:',
        "if False:",
        "tests/gateway/test_strangers.py"
        "::test_a_stranger_s_turn_sees_its_own_tree_whatever_is_configured",
    ),
    Mutant(
        "a task for nobody",
        "remoteclaw/gateway/methods/subagents.py",
        "people=call.people(parent.key),",
        "people=(),",
        "tests/gateway/test_strangers.py"
        "::test_a_task_and_its_result_have_the_rights_of_who_asked[1-True]",
    ),
    Mutant(
        "a cron job that is an owner's whoever made it",
        "remoteclaw/gateway/methods/cron.py",
        "people = call.people(session)",
        'people = ("telegram:1",)',
        "tests/gateway/test_strangers.py"
        "::test_a_cron_run_has_the_rights_that_its_maker_has_now[666-False]",
    ),
    Mutant(
        "pins of strangers in groups",
        "remoteclaw/tools/policy.py",
        "    if subject.is_group and not voice.ownership:\n",
        "    if False:\n",
        "tests/gateway/test_strangers.py"
        "::test_deleting_and_pinning_in_a_group_is_for_owners[message_pin]",
    ),
    Mutant(
        "a spawned session with all rights",
        "remoteclaw/gateway/dispatch.py",
        "caller.turn.entries, depth=caller.depth)\n    facts",
        "caller.turn.entries)\n    facts",
        f"{SUBAGENTS}::test_a_task_may_no_more_than_its_depth",
    ),
    Mutant(
        "a result of the conversation that has ended",
        f"{LUA}/reset.lua",
        "told.origin == 'result' then",
        "false then",
        f"{ENDINGS}::test_results_that_wait_behind_the_command_are_not_told_to_the_next_agent",
    ),
    Mutant(
        "a conversation that ends again with each message",
        f"{LUA}/_prelude.lua",
        "return math.max(now_ms(), last",
        "return math.min(now_ms(), last",
        f"{ENDINGS}::test_a_clock_that_was_ahead_ends_one_conversation_at_most",
    ),
    Mutant(
        "a message that joined a turn and ends its conversation",
        "remoteclaw/session/reset.py",
        "        if was_asked:\n            return None\n",
        "",
        f"{ENDINGS}::test_a_message_that_joined_a_turn_ends_nothing_in_the_next_attempt",
    ),
    Mutant(
        "a retried result that counts as said by a person",
        "remoteclaw/fleet/deadletters.py",
        'keys.bell(sid) if letter.is_said else ""',
        "keys.bell(sid)",
        f"{TOGETHER}::test_a_retried_result_is_not_said_by_a_person",
    ),
    Mutant(
        "the key of a task that an older program can't read",
        f"{LUA}/_prelude.lua",
        "redis.call('HSET', state, 'key', conversation or key)",
        "redis.call('HSET', state, 'key', key)",
        f"{TOGETHER}::test_an_older_program_reads_the_key_of_a_task",
    ),
    Mutant(
        "a page of the history that leaves something out",
        "remoteclaw/gateway/methods/sessions.py",
        "list(itertools.accumulate((item.at for item in items), max))",
        "[item.at for item in items]",
        f"{SESSIONS}::test_history_has_pages",
    ),
    Mutant(
        "a turn about a result that a person's message ends",
        "remoteclaw/session/drain.py",
        'return self._queue.mode == "interrupt" and is_said',
        'return self._queue.mode == "interrupt"',
        "tests/session/test_queue.py::test_a_turn_about_what_no_person_has_sent_is_not_interrupted",
    ),
    Mutant(
        "a result before all of it is done",
        f"{LUA}/finish.lua",
        "if is_unfinished(child) then return false end",
        "",
        f"{TOGETHER}::test_a_task_that_starts_tasks_has_one_result",
    ),
    Mutant(
        "turns that wait for each other",
        f"{LUA}/wait.lua",
        "  if sid == own then return 'circle' end\n",
        "",
        f"{TOGETHER}::test_two_turns_that_run_dont_wait_for_each_other",
    ),
    Mutant(
        "a wait that outlives its turn",
        f"{LUA}/wait.lua",
        "    redis.call('ZREM', KEYS[1], name)  -- its turn is over, whoever still waits",
        "    count = count + 1",
        f"{TOGETHER}::test_a_wait_ends_with_its_turn[invoke]",
    ),
    Mutant(
        "a task that may everything once its depth is forgotten",
        "remoteclaw/fleet/state.py",
        "MOST_DEPTH if key.task else 0",
        "0",
        f"{TOGETHER}::test_a_task_that_is_retried_when_nothing_else_is_known_of_it",
    ),
    Mutant(
        "a cancelled task that a second try gets back",
        f"{LUA}/effect.lua",
        "if not id_at_most(id, redis.call('HGET', 'rc:st:{' .. sid .. '}', 'unwanted')) then",
        "if true then",
        f"{TOGETHER}::test_a_second_try_starts_anew_what_the_first_one_has_cancelled",
    ),
    Mutant(
        "a result that interrupts a turn",
        f"{LUA}/finish.lua",
        "ARGV[24], 'background', '')",
        "ARGV[24], 'background', 'rc:bell:{' .. ARGV[21] .. '}')",
        "tests/session/test_queue.py::test_a_result_waits_for_the_running_turn[interrupt]",
    ),
    Mutant(
        "a result that is dropped",
        "remoteclaw/session/queue.py",
        ' if entry.origin == "chat"]',
        "]",
        "tests/session/test_queue.py::test_a_result_is_never_dropped[old]",
    ),
    Mutant(
        "a due time that two schedulers take",
        f"{LUA}/fire.lua",
        "if not is_current then return {'changed', '', ''} end\n",
        "",
        f"{CRON}::test_a_due_time_that_two_have_seen_is_taken_by_one",
    ),
    Mutant(
        "a due time that comes again with the clock",
        f"{LUA}/fire.lua",
        "  if redis.call('EXISTS', KEYS[11]) == 1 then return {'seen', '', ''} end\n",
        "",
        f"{CRON}::test_a_clock_that_is_set_back_fires_nothing_again",
    ),
    Mutant(
        "a run of a cron job that is settled twice",
        f"{LUA}/settle.lua",
        "if redis.call('HGET', KEYS[3], ARGV[1]) ~= ARGV[2] then return 'settled' end\n",
        "",
        f"{CRON_RUNS}::test_a_run_of_a_job_that_was_removed_is_noted_once",
    ),
    Mutant(
        "a settling that undoes a change of the job",
        f"{LUA}/settle.lua",
        "if (redis.call('HGET', KEYS[1], ARGV[3]) or '') ~= ARGV[4] then return 'changed' end\n",
        "",
        f"{CRON_RUNS}::test_a_change_at_the_moment_of_settling_is_kept",
    ),
    Mutant(
        "a cron job that runs as it was",
        f"{LUA}/effect.lua",
        "  if redis.call('HGET', KEYS[4], ARGV[7]) ~= ARGV[8] then return {'changed', ''} end\n",
        "",
        "tests/gateway/test_cron.py::test_a_job_that_is_changed_meanwhile_runs_as_it_is_now",
    ),
    Mutant(
        "a run of a cron job that is doubled",
        "remoteclaw/gateway/methods/cron.py",
        "if is_new and not params.force:",
        "if False:",
        "tests/gateway/test_cron.py::test_a_run_under_way_is_not_doubled_unless_forced",
    ),
    Mutant(
        "runs of a cron job that pile up",
        "remoteclaw/cron/scheduler.py",
        "if await self._cron.unfinished(job):",
        "if False:",
        f"{CRON_RUNS}::test_what_is_due_while_a_run_is_unfinished_is_left_out",
    ),
    Mutant(
        "a clock that was set back and runs that are never settled",
        f"{LUA}/unsettled.lua",
        "  for _, name in ipairs(late) do names[#names + 1] = name end\n",
        "",
        f"{CRON_RUNS}::test_a_clock_that_is_set_back_leaves_no_run_open",
    ),
    Mutant(
        "a chat that is told of each failure",
        "remoteclaw/cron/settlement.py",
        "if not threshold or not is_enough or is_quiet or not job.enabled:",
        "if not threshold or not is_enough or not job.enabled:",
        f"{CRON_RUNS}::test_several_settlers_tell_the_chat_once",
    ),
    Mutant(
        "a job that is lost when it did not go well",
        "remoteclaw/cron/settlement.py",
        "if ended.went_well and job.goes_after_run and",
        "if job.goes_after_run and",
        f"{CRON_RUNS}::test_what_is_due_once_and_did_not_go_well_is_kept_and_off",
    ),
    Mutant(
        "a cron job that is written under a lost lease",
        f"{LUA}/effect.lua",
        FENCE,
        "",
        "tests/gateway/test_cron.py::test_a_turn_that_somebody_else_took_over_adds_nothing",
    ),
    Mutant(
        "keys of MCP servers that are shown",
        "remoteclaw/config/redact.py",
        '("env", "headers", "args")',
        '("env", "headers")',
        "tests/config/test_redaction.py::test_no_text_that_may_be_a_secret_is_shown",
    ),
    Mutant(
        "a job of another agent's that an agent sees",
        "remoteclaw/gateway/methods/cron.py",
        "return call.caller is None or call.caller.session.agent == agent",
        "return True",
        "tests/gateway/test_cron.py::test_for_an_agent_there_are_the_jobs_of_its_own_agent",
    ),
    Mutant(
        "a change of a job that undoes its firing",
        f"{LUA}/effect.lua",
        "  if job ~= ARGV[8] then return {'changed', ''} end\n",
        "",
        f"{CRON}::test_a_change_does_not_undo_a_firing",
    ),
    Mutant(
        "a gateway that any name leads to",
        "remoteclaw/gateway/guard.py",
        "if not is_own_name(hosts[0].lower(), config):",
        "if False:",
        f"{DOORS}/test_advisories.py::test_cve_2025_66416_mcp_can_not_be_reached_by_a_name_of_others",
    ),
    Mutant(
        "a gateway that any page may use",
        "remoteclaw/gateway/guard.py",
        "if any(origin.lower() not in config.origins for origin in origins):",
        "if False:",
        f"{DOORS}/test_advisories.py::"
        "test_cve_2025_52882_a_socket_on_loopback_wants_a_token_and_an_origin",
    ),
    Mutant(
        "a connector that sends its token to an address",
        "remoteclaw/connector/environment.py",
        'return _home(environ) + b"/gateways", 0, "/mcp"',
        'url = b"http://127.0.0.1:18789"',
        f"{PRIVATE_DOOR}::test_a_stranger_who_listens_at_the_address_gets_nothing",
    ),
    Mutant(
        "a connector that uses a directory of others",
        "remoteclaw/connector/exchange.py",
        "if found.st_uid != posix.getuid() or found.st_mode & 0o077:",
        "if False:",
        f"{PRIVATE_DOOR}::test_a_directory_in_which_others_could_listen_is_not_used",
    ),
    Mutant(
        "a connector with the owner's token",
        "remoteclaw/connector/environment.py",
        'path = _home(environ) + b"/connector-token"',
        'path = _home(environ) + b"/gateway-token"',
        f"{PRIVATE_DOOR}::test_a_gateway_at_any_port_is_found_without_a_setting",
    ),
    Mutant(
        "a connector's token that may do everything",
        "remoteclaw/gateway/token_file.py",
        'TokenFile(directory, "connector", "write")',
        'TokenFile(directory, "connector", "admin")',
        f"{PRIVATE_DOOR}::test_an_older_installation_gets_the_connectors_token",
    ),
    Mutant(
        "a gateway that takes its private socket with it when it is restarted",
        "remoteclaw/gateway/server.py",
        "if is_alone and (stop.is_set() or not kept):",
        "if is_alone:",
        f"{PRIVATE_DOOR}::test_who_asks_while_it_is_restarted_waits",
    ),
    Mutant(
        "a dashboard that any name leads to",
        "workers/dashboard.py",
        'if not is_own_name(request.headers.get("Host", "").lower(), config):',
        "if False:",
        "tests/workers/test_dashboard.py::test_it_answers_under_its_own_names_and_no_page_of_others",
    ),
    Mutant(
        "a dashboard that any page may ask",
        "workers/dashboard.py",
        "if origin is not None and origin.lower() not in config.origins:",
        "if False:",
        "tests/workers/test_dashboard.py::test_it_answers_under_its_own_names_and_no_page_of_others",
    ),
    Mutant(
        "a dashboard that changes something",
        "workers/dashboard.py",
        'request.method not in ("GET", "HEAD") or ',
        "",
        "tests/workers/test_dashboard.py::test_it_changes_nothing",
    ),
    Mutant(
        "a dashboard that changes something when it is asked by GET",
        "workers/dashboard.py",
        ' or request.endpoint == "rq_dashboard.requeue_all"',
        "",
        "tests/workers/test_dashboard.py::test_it_changes_nothing",
    ),
    Mutant(
        "a hint that names people",
        "remoteclaw/fleet/wake.py",
        '"/".join([*key.split("/")[:2], sid[:8]])',
        "key",
        "tests/workers/test_dashboard.py::test_it_shows_queues_workers_and_jobs_readably",
    ),
    Mutant(
        "a token in an address",
        "remoteclaw/gateway/guard.py",
        'if _has_secret(scope["query_string"]):',
        "if False:",
        f"{DOORS}/test_doors.py::test_a_token_in_an_address_is_refused_and_said",
    ),
    Mutant(
        "a token that is believed because it is there",
        "remoteclaw/gateway/auth.py",
        "if own is not None and is_same(own, given):",
        "if own is not None:",
        f"{DOORS}/test_advisories.py::test_cve_2026_28472_that_there_is_a_token_proves_nothing",
    ),
    Mutant(
        "a scope that nobody looks at",
        "remoteclaw/gateway/dispatch.py",
        "            if not principal.has(method.scope):\n                raise",
        "            if False:\n                raise",
        f"{DOORS}/test_matrix.py::test_over_http",
    ),
    Mutant(
        "tools between turns",
        "remoteclaw/gateway/dispatch.py",
        "        if caller.turn is None:\n            raise CallRefused",
        "        if False:\n            raise CallRefused",
        f"{DOORS}/test_advisories.py::test_a_token_is_worth_nothing_between_turns",
    ),
    Mutant(
        "connections that outlive their token",
        "remoteclaw/gateway/auth.py",
        "return self._own(principal.credential) == principal",
        "return True",
        f"{DOORS}/test_rpc.py::test_connections_with_the_old_token_of_the_gateway_are_closed",
    ),
    Mutant(
        "a token of an agent before that still counts",
        "remoteclaw/gateway/dispatch.py",
        "caller.grant is None or not is_same(caller.grant.digest, agent.digest):",
        "caller.grant is None:",
        f"{SESSIONS}::test_the_token_of_an_agent_before_is_worth_nothing",
    ),
    Mutant(
        "a resumed claude asks another model",
        "remoteclaw/runtimes/claude.py",
        "if model := spec.model or (spec.note",
        "if model := spec.model or (''",
        "tests/runtimes/test_claude_launch.py::test_a_resumed_claude_asks_the_model_that_was_named",
    ),
    Mutant(
        "claude's prompt has its run directory",
        "remoteclaw/runtimes/claude.py",
        "allowed = _reading(run_dir / FILES)",
        "argv.append(f'--add-dir={run_dir}'); allowed = _reading(run_dir / FILES)",
        "tests/runtimes/test_claude_launch.py::test_no_path_of_the_process_is_told_to_the_model",
    ),
    Mutant(
        "a resumed codex is told its prompt each time",
        "remoteclaw/runtimes/codex.py",
        "if not self.note:",
        "if thread:",
        "tests/contracts/test_prompt_cache.py"
        "::test_after_an_idle_time_only_the_new_message_is_new[codex]",
    ),
    Mutant(
        "a note is lost with its process",
        "remoteclaw/fleet/lease.py",
        'f"{session_id}{NOTE}{note}" if note else session_id or ""',
        'session_id or ""',
        "tests/contracts/test_session_map.py::test_a_note_is_kept_with_the_id",
    ),
    Mutant(
        "a shared text goes with its first reader",
        "remoteclaw/host/files.py",
        "if other.stat().st_nlink == 1:",
        "if other != path:",
        "tests/host/test_files.py::test_a_text_is_shared_as_long_as_somebody_reads_it",
    ),
    Mutant(
        "an agent is shown what the writer of the turn may use",
        "remoteclaw/tools/policy.py",
        "    if is_group:\n        anybody |=",
        "    if False:\n        anybody |=",
        "tests/tools/test_policy.py::test_what_is_offered_in_a_group_is_what_anybody_may_use_there",
    ),
    Mutant(
        "what is shown may be used by everybody",
        "remoteclaw/gateway/dispatch.py",
        "if not is_allowed(config := self._config(), caller, method.tool):",
        "if (config := self._config()) is None:",
        f"{DOORS}/test_mcp.py::test_a_refusal_is_a_tools_error_that_a_model_can_read",
    ),
    Mutant(
        "a tool that the process was not granted",
        "remoteclaw/gateway/dispatch.py",
        "if caller.grant is None or method.tool not in caller.grant.tools:",
        "if caller.grant is None:",
        f"{SESSIONS}::test_rights_are_the_narrower_of_grant_and_policy",
    ),
    Mutant(
        "a tool that the policy of now denies",
        "remoteclaw/gateway/dispatch.py",
        "return may and caller.turn.is_whole",
        "return caller.turn.is_whole",
        f"{SESSIONS}::test_rights_are_the_narrower_of_grant_and_policy",
    ),
    Mutant(
        "rights that forget who joined the turn",
        f"{LUA}/caller.lua",
        "ipairs({batch or '', steered or ''})",
        "ipairs({batch or ''})",
        f"{SESSIONS}::test_a_message_that_joins_narrows_the_rights_of_the_turn",
    ),
    Mutant(
        "another session's message with its reader's rights",
        "remoteclaw/tools/policy.py",
        'entry.message.from_ if entry.origin == "chat" else None',
        "entry.message.from_",
        f"{SESSIONS}::test_what_nobody_wrote_takes_no_denial_away",
    ),
    Mutant(
        "sessions that an agent may not see",
        "remoteclaw/tools/policy.py",
        'if other == own or sees == "all":',
        "if True:",
        f"{SESSIONS}::test_an_agent_sees_its_own_session_alone",
    ),
    Mutant(
        "parameters that nobody knows",
        "remoteclaw/tools/base.py",
        'extra="forbid",\n        strict=True',
        'extra="ignore",\n        strict=True',
        "tests/tools/test_contract.py::test_bad_parameters_are_refused_in_a_sentence",
    ),
    Mutant(
        "an answer that repeats what a tool sent",
        "remoteclaw/bridge/bridge.py",
        "if p.index not in run.repeats",
        "if True",
        "tests/bridge/test_side_effects.py::"
        "test_an_answer_that_repeats_what_a_tool_sent_here_is_not_said_again",
    ),
    Mutant(
        "an effect that counts twice",
        "remoteclaw/bridge/side_effects.py",
        "            if call in seen:\n                continue\n",
        "",
        "tests/bridge/test_side_effects.py::test_what_is_noted_and_written_down_counts_once",
    ),
    Mutant(
        "a worker that never reads its configuration again",
        "workers/jobs.py",
        "config = settings.current()",
        "config = settings.config",
        f"{RELOAD}::test_the_next_turn_has_it",
    ),
    Mutant(
        "a drain that keeps a configuration that has changed",
        "remoteclaw/session/drain.py",
        "                if is_stale:  # whoever",
        "                if False:  # whoever",
        f"{RELOAD}::test_a_session_is_left_once_the_configuration_is_stale",
    ),
    Mutant(
        "a broken configuration that counts",
        "remoteclaw/config/load.py",
        "    check_tools(config)\n",
        "",
        f"{RELOAD}::test_a_broken_file_changes_nothing_and_is_said_once",
    ),
    Mutant(
        "a configuration file that is there before its content",
        "remoteclaw/config/edit.py",
        "            os.fsync(descriptor)\n        finally:\n            os.close(descriptor)\n"
        "        if before",
        "            pass\n        finally:\n            os.close(descriptor)\n        if before",
        f"{CONFIG_FILE}::test_the_disk_has_the_content_before_the_name",
    ),
    Mutant(
        "a configuration file that is written in place",
        "remoteclaw/config/edit.py",
        "        os.rename(draft, path)\n",
        "        with open(path, 'wb') as place:\n            place.write(b'')\n"
        "        os.rename(draft, path)\n",
        f"{CONFIG_FILE}::test_killed_at_any_step_there_is_the_old_file_or_the_new_one",
    ),
    Mutant(
        "two who change the configuration at once",
        "remoteclaw/config/edit.py",
        "fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        f"{CONFIG_FILE}::test_two_who_change_it_at_once_lose_nothing",
    ),
    Mutant(
        "an editor's change that is overwritten",
        "remoteclaw/config/edit.py",
        "if before is not None and self.read().content != before.content:",
        "if False:",
        f"{CONFIG_FILE}::test_what_an_editor_wrote_meanwhile_is_not_lost",
    ),
    Mutant(
        "an agent that changes any setting",
        "remoteclaw/config/edit.py",
        "closed = [one.name for one in found if one.setting and not one.setting.agents_may]",
        "closed: list[str] = []",
        f"{CONFIGURING}::test_an_agent_changes_what_is_open_and_nothing_else",
    ),
    Mutant(
        "an agent that names agents of its own",
        "remoteclaw/config/rights.py",
        "            yield Difference(here, names)\n        if",
        "            pass\n        if",
        f"{CONFIGURING}::test_one_wrong_part_and_nothing_is_done",
    ),
    Mutant(
        "a change whose base nobody looks at",
        "remoteclaw/gateway/methods/configuration.py",
        "if base_hash not in (None, version.hash):",
        "if False:",
        f"{CONFIGURING}::test_a_file_that_has_changed_since_is_left_alone",
    ),
    Mutant(
        "a change that was noted and is never made",
        "remoteclaw/gateway/methods/configuration.py",
        "    return None  # it was noted, and then this gateway was killed before it was written",
        "    return answer",
        f"{CONFIGURING}::test_what_was_noted_and_not_written_is_done_when_it_is_asked_again",
    ),
    Mutant(
        "any number of changes",
        f"{LUA}/effect.lua",
        "if since >= 0 and since < within then",
        "if false then",
        f"{CONFIGURING}::test_a_model_that_goes_round_in_circles_is_stopped",
    ),
    Mutant(
        "a secret that is overwritten by how it was shown",
        "remoteclaw/config/merge_patch.py",
        "        elif is_secret and _is_equal(value, old):\n            continue\n",
        "",
        f"{CONFIG_FILE}::test_a_secret_repeated_as_it_was_shown_stays",
    ),
    Mutant(
        "a change that is done before it is confirmed",
        "remoteclaw/gateway/methods/configuration.py",
        "        if not waits:\n            await file.write(plan)\n",
        "        await file.write(plan)\n",
        f"{CONFIRMING}::test_nothing_is_changed_before_a_person_says_so",
    ),
    Mutant(
        "a change that is confirmed for another file",
        "remoteclaw/gateway/approvals.py",
        "if version.hash != change.base:",
        "if False:",
        f"{CONFIRMING}::test_a_file_that_has_changed_since_is_left_alone",
    ),
    Mutant(
        "a change that is confirmed twice and done twice",
        "remoteclaw/gateway/approvals.py",
        '        if change.status == "done":\n            return change\n        version',
        "        version",
        f"{CONFIRMING}::test_what_is_confirmed_is_done_once",
    ),
    Mutant(
        "a change that is confirmed and was exchanged",
        "remoteclaw/gateway/approvals.py",
        "if plan.after.hash != change.after:",
        "if False:",
        f"{CONFIRMING}::test_what_somebody_put_there_gives_no_more_than_an_agent_has",
    ),
    Mutant(
        "a change that is decided twice",
        f"{LUA}/confirm.lua",
        "if now ~= ARGV[2] then return 'changed' end\n",
        "",
        f"{CONFIRMING}::test_what_was_decided_stays_so",
    ),
    Mutant(
        "a gateway that turns callers away while it starts anew",
        "remoteclaw/gateway/server.py",
        "                server.accept_no_more()\n",
        "",
        f"{RESTART}::test_who_asks_meanwhile_waits_and_is_answered",
    ),
    Mutant(
        "a gateway that turns idle connections away while it starts anew",
        "remoteclaw/gateway/server.py",
        "                server.close_idle()\n",
        "",
        f"{RESTART}::test_an_idle_connection_is_closed_rather_than_turned_away",
    ),
    Mutant(
        "a gateway that is forgotten while it starts anew",
        "remoteclaw/fleet/gateways.py",
        "            if not stays():\n",
        "            if True:\n",
        f"{RESTART}::test_its_address_is_known_all_the_time",
    ),
    Mutant(
        "a gateway that ends and can't come back",
        "remoteclaw/gateway/methods/configuration.py",
        "            _check_start(call)\n",
        "",
        f"{RESTART}::test_with_a_configuration_that_cannot_be_used_it_stays",
    ),
    Mutant(
        "a gateway that starts anew although it is asked to end",
        "remoteclaw/gateway/server.py",
        "return None if stop.is_set() else kept",
        "return kept",
        f"{RESTART}::test_asked_to_end_while_it_starts_anew_it_ends",
    ),
    Mutant(
        "a job class that allows everything",
        "workers/jobs.py",
        "if function != JOB:",
        "if False:",
        "tests/workers/test_jobs.py::test_forged_jobs_do_nothing_but_leave_a_line",
    ),
    Mutant(
        "a silent token that is shown behind an answer",
        "remoteclaw/bridge/directives.py",
        "            silence = _TRAILING\n",
        "            silence = _JSON\n",
        "tests/bridge/test_delivery.py::test_a_token_behind_an_answer_is_never_shown",
    ),
    Mutant(
        "a silent token that flashes in live text",
        "remoteclaw/bridge/directives.py",
        "tail = may_trail.start() if may_trail else len(text)",
        "tail = len(text)",
        "tests/bridge/test_delivery.py::test_a_token_behind_an_answer_is_never_shown",
    ),
)


def run(test: str, directory: Path) -> bool | None:
    """Run one test in a copy; return whether it is green, None if it was skipped."""
    argv = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", "-p", "no:randomly", test]
    env = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(
        argv, cwd=directory, env=env, capture_output=True, text=True, check=False
    )
    if result.returncode not in (0, 1):
        raise SystemExit(f"{test} can't be run:\n{result.stdout}{result.stderr}")
    if " passed" not in result.stdout and " skipped" in result.stdout:
        return None
    return result.returncode == 0


def copy_to(directory: Path) -> None:
    """Copy what a test needs."""
    for name in ("remoteclaw", "workers", "tests"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", directory)


def main(names: Sequence[str]) -> int:
    """Run the mutants, all or those that are named; return how many nobody noticed."""
    wanted = [m for m in MUTANTS if not names or any(name in m.name for name in names)]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="rc-mutants-", dir="/tmp") as name:
        directory = Path(name)
        copy_to(directory)
        for test in sorted({mutant.test for mutant in wanted}):
            is_green = run(test, directory)
            if is_green is None:
                sys.stdout.write(f"left out: {test} needs a CLI that is not installed\n")
                wanted = [mutant for mutant in wanted if mutant.test != test]
            elif not is_green:
                raise SystemExit(f"{test} is red without any mutant")
        for mutant in wanted:
            file = directory / mutant.file
            original = file.read_text()
            if original.count(mutant.before) != 1:
                raise SystemExit(f"{mutant.name}: {mutant.file} has changed; correct the mutant")
            file.write_text(original.replace(mutant.before, mutant.after, 1))
            is_noticed = not run(mutant.test, directory)
            file.write_text(original)
            sys.stdout.write(f"{'noticed ' if is_noticed else 'SURVIVED'} {mutant.name}\n")
            sys.stdout.flush()
            if not is_noticed:
                survivors.append(mutant)
    for mutant in survivors:
        sys.stdout.write(f"{mutant.name}: {mutant.test} stays green\n")
    return len(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
