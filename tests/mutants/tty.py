"""Mutants of `remoteclaw/tty/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "a terminal that is taken from who watches",
        before='if standing.activity != "idle" or standing.viewers or standing.has_draft:',
        after='if standing.activity != "idle" or standing.has_draft:',
        test="test_otherwise_it_waits_and_who_has_written_is_told_why",
    ),
    Mutant(
        "silence that is taken for rest",
        before='if standing.activity == "idle":\n        return min',
        after='if standing.activity in ("idle", "unknown"):\n        return min',
        test="test_what_nobody_needs_is_ended_and_what_asks_has_more_time",
    ),
    Mutant(
        "a text that is typed into a dialog",
        before='raise CallRefused("CONFLICT", NOT_IDLE)',
        after="pass",
        test="test_who_has_no_keyboard_types_nothing_and_nothing_but_keys_answers_a_dialog",
    ),
    Mutant(
        "a gateway that doesn't know what the one before knew",
        before='return cls(rest[int(size) :], said, bool(head["draft"])',
        after='return cls(rest[int(size) :], {}, bool(head["draft"])',
        test="test_a_gateway_knows_what_the_one_before_knew",
    ),
    Mutant(
        "output that is lost between two gateways",
        before="await self._take(client.output[behind:], is_past=True)",
        after="pass",
        test="test_a_gateway_that_is_killed_is_followed_by_one_that_shows_the_same",
    ),
    Mutant(
        "a late answer that is typed",
        before="if answers and not is_past:",
        after="if answers:",
        test="test_what_a_program_asked_before_is_not_answered_later",
    ),
    Mutant(
        "a keyboard that several have",
        before="if self._who is not None and not self.is_held_by(who):",
        after="if False:",
        test="test_one_types_and_another_is_told_who_it_is",
    ),
    Mutant(
        "a flood that every viewer gets whole",
        before="viewer.next_at = now + (TYPING_S if viewer.is_typing else WATCHING_S)",
        after="viewer.next_at = now",
        test="test_a_flood_is_a_few_frames_and_ends_with_the_last_screen",
    ),
    Mutant(
        "a viewer that is sent more than it reads",
        before="elif viewer.is_slow():",
        after="elif False:",
        test="test_who_reads_slowly_is_left_out_and_gets_what_differs_later",
    ),
    Mutant(
        "a link that runs a script",
        before='return address if len(address) <= LINK and _LINK.fullmatch(address) else ""',
        after="return address",
        test="test_links_of_a_program_lead_to_the_web_alone",
    ),
    Mutant(
        "text in frames that turns what is read around",
        before='not in {"Cc", "Cf", "Zl", "Zp"}',
        after='not in {"Cc"}',
        test="test_hostile_output_reaches_nobody[title of two lines]",
    ),
    Mutant(
        "hidden text that viewers get",
        before="return (blank * (1 if is_cluster else len(text)) if blank else text), style",
        after="return text, style",
        test="test_text_that_is_hidden_never_leaves",
    ),
    Mutant(
        "an answer with what the program has asked for",
        before="if self._size + len(data) <= ANSWERS and allowed(data):",
        after="if self._size + len(data) <= ANSWERS:",
        test="test_the_program_gets_the_answers_that_are_allowed",
    ),
    Mutant(
        "answers without end",
        before="if self._size + len(data) <= ANSWERS and allowed(data):",
        after="if allowed(data):",
        test="test_the_program_gets_the_answers_that_are_allowed",
    ),
    Mutant(
        "a viewer of a gateway before who gets what differs from another screen",
        before="not self._oldest <= revision < self.revision",
        after="not revision < self.revision",
        test="test_a_revision_of_a_gateway_before_gets_everything",
    ),
    Mutant(
        "a row that has changed and isn't sent",
        before="self._changed[row] = self.revision",
        after="self._changed[row] = self.revision - 1",
        test="test_a_frame_holds_what_changed_since",
    ),
    Mutant(
        "a screen that is shown half drawn",
        before="if self._mode(2026) and self._frames.rest:",
        after="if False:",
        test="test_what_is_held_back_is_shown_at_once",
    ),
    Mutant(
        "a screen that is held back for ever",
        before="if now - self._held_since < HOLD:",
        after="if True:",
        test="test_what_is_held_back_is_shown_at_once",
    ),
    Mutant(
        "a restored screen that is empty while it is held back",
        before="if self._mode(2026) and self._frames.rest:",
        after="if self._mode(2026):",
        test="test_hostile_output_reaches_nobody[held for ever]",
    ),
    Mutant(
        "rows of the past that a restored screen loses",
        before='"SCROLLBACK_MAX_BYTES": 1 << 25,',
        after='"SCROLLBACK_MAX_BYTES": 1 << 20,',
        test="test_the_picture_is_the_same_however_it_came[0-claude]",
    ),
    Mutant(
        "a picture without the sequence that had begun",
        before='"CONTINUATION_MAX_BYTES": PENDING,',
        after='"CONTINUATION_MAX_BYTES": 0,',
        test="test_a_picture_brings_everything_back",
    ),
    Mutant(
        "a picture that is larger than what is kept",
        before="if len(picture) <= PICTURE:\n        return picture\n    copy",
        after="if True:\n    return picture\ncopy",
        test="test_a_picture_is_never_larger_than_the_holder_keeps",
    ),
    Mutant(
        "a picture in the middle of something long that replaces a good one",
        before="if not picture:",
        after="if False:",
        test="test_a_picture_that_cant_be_made_leaves_the_one_before",
    ),
    Mutant(
        "Ctrl-Z in the form of a keyboard protocol",
        before="if _STOPS.search(keys):",
        after="if 0x1A in keys or 0x1C in keys:",
        test="test_keys_that_stop_the_program_are_refused",
    ),
    Mutant(
        "keys that ignore the modes",
        before='("KITTY_FLAGS", "uint8_t", modes.kitty & ~_EVENT_TYPES),',
        after='("KITTY_FLAGS", "uint8_t", 0),',
        test="test_keys_are_encoded_by_the_modes_in_force",
    ),
    Mutant(
        "a paste that ends itself",
        before='if character in "\\n\\t" or not _is_invisible(character)',
        after="if True",
        test="test_a_paste_is_one_piece_whatever_it_holds",
    ),
    Mutant(
        "lines that are sent one by one",
        before='if "\\n" in text:',
        after="if False:",
        test="test_a_paste_is_one_piece_whatever_it_holds",
    ),
    Mutant(
        "a command behind an invisible sign",
        before='plain = unicodedata.normalize("NFKC", cleaned(text))',
        after="plain = text",
        test="test_what_could_be_a_command_is_not_typed",
    ),
)
