"""Mutants of the page's scripts: `remoteclaw/gateway/page/static/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "earlier messages that are not loaded after scrolling up quickly",
        before="if (scroller.clientHeight && scroller.scrollTop < NEAR_PX) showEarlier();",
        after="",
        test="test_after_sleep_a_laptop_shows_missed_messages_and_sends_written_ones",
    ),
    Mutant(
        "a phone that can't scroll back in a terminal",
        before="if (touches[0].clientY - touchedAt > NEAR_PX) scrollBack();",
        after="",
        test="test_a_phone_types_with_a_key_bar_and_keeps_a_refused_message",
    ),
    Mutant(
        "a running turn that is not shown when its chat is opened",
        before='if (pending && event === "session.live") liveEvent = payload;',
        after="",
        test="test_tool_calls_are_shown_while_they_run_and_afterwards",
    ),
    Mutant(
        "a running turn that is not shown when its session is opened",
        before='if (!key && event === "session.live") liveEvent = payload;',
        after="",
        test="test_tool_calls_are_shown_while_they_run_and_afterwards",
    ),
    Mutant(
        "a terminal frame that is drawn although earlier ones are missing",
        before="if (!isWhole && frame.since !== this.revision) {",
        after="if (false) {",
        test="test_a_terminal_is_opened_once_and_only_when_a_person_asks",
    ),
    Mutant(
        "an outdated terminal frame that is drawn",
        before="if (!isWhole && frame.revision <= this.revision) return new Set();",
        after="if (!isWhole && frame.revision <= this.revision) frame.since = this.revision;",
        test="test_a_terminal_is_opened_once_and_only_when_a_person_asks",
    ),
    Mutant(
        "a link in a terminal that runs script in the page",
        before='return url && ["http:", "https:"].includes(url.protocol) ? url.href : null;',
        after="return link ?? null;",
        test="test_output_of_a_program_in_a_terminal_never_becomes_markup",
    ),
    Mutant(
        "a page that opens a terminal without being asked",
        before="show(); pollAfter(POLL_MS, check);",
        after="show(); open();",
        test="test_a_terminal_is_opened_once_and_only_when_a_person_asks",
    ),
    Mutant(
        "a terminal that is opened twice by a double click",
        before="act([opening], open)",
        after="open()",
        test="test_a_terminal_is_opened_once_and_only_when_a_person_asks",
    ),
    Mutant(
        "a terminal pane that is rebuilt each time it is shown",
        before="panes.get(sessionKey) ?? makePane(link, sessionKey)",
        after="makePane(link, sessionKey)",
        test="test_a_terminal_is_opened_once_and_only_when_a_person_asks",
    ),
    Mutant(
        "an input field for viewers who do not have the keyboard",
        before="field.disabled = !isOn;",
        after="field.disabled = false;",
        test="test_one_viewer_types_and_a_takeover_is_visible",
    ),
    Mutant(
        "a terminal size that is set by a viewer without the keyboard",
        before="const size = isOwn && room();",
        after="const size = room();",
        test="test_one_viewer_types_and_a_takeover_is_visible",
    ),
    Mutant(
        "keys that are sent after earlier ones were refused",
        before='if (error.code === "CONFLICT" && typesAs !== null) setTyping(null);',
        after="",
        test="test_one_viewer_types_and_a_takeover_is_visible",
    ),
    Mutant(
        "a page that loses the keyboard with its connection",
        before="if (wasTyping) await takeControl({})",
        after="if (false) await takeControl({})",
        test="test_one_viewer_types_and_a_takeover_is_visible",
    ),
    Mutant(
        "a paste of several lines that is sent as typed text",
        before="if (text) enqueue({ paste: text });",
        after="if (text) enqueue(`t:${text}`);",
        test="test_typed_composed_and_pasted_text_keeps_its_order",
    ),
    Mutant(
        "an unfinished composition that is sent as typed text",
        before="if (!event.isComposing) sendText(event.inputType);",
        after="sendText(event.inputType);",
        test="test_typed_composed_and_pasted_text_keeps_its_order",
    ),
    Mutant(
        "a program that writes to the clipboard without being asked",
        before='preview.value = String(text); setMessage(note, "");',
        after="preview.value = String(text);\ncopyText();",
        test="test_typed_composed_and_pasted_text_keeps_its_order",
    ),
    Mutant(
        "a screen that is redrawn while a person reads the scrollback",
        before="if (isBack) return;",
        after="",
        test="test_typed_composed_and_pasted_text_keeps_its_order",
    ),
    Mutant(
        "a refused message whose error is not shown",
        before="await action().catch((error) => setMessage(problem, error.message));",
        after='await action().catch(() => setMessage(problem, ""));',
        test="test_a_phone_types_with_a_key_bar_and_keeps_a_refused_message",
    ),
)
