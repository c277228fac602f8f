"""Mutants of the page's scripts: `remoteclaw/gateway/page/static/`."""

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "earlier messages that stay away from who scrolls up quickly",
        before="if (scroller.clientHeight && scroller.scrollTop < NEAR_PX) more();",
        after="",
        test="test_a_laptop_that_slept_shows_what_came_and_sends_what_was_written",
    ),
    Mutant(
        "a phone that can't look back",
        before="if (touches[0].clientY - touchedAt > NEAR_PX) lookBack();",
        after="",
        test="test_on_a_phone_one_writes_by_a_key_bar_and_never_blindly",
    ),
    Mutant(
        "a turn that is not seen by who comes in while it runs",
        before='if (early && event === "session.live") goesOn = payload;',
        after="",
        test="test_what_tools_do_is_shown_while_they_run_and_after",
    ),
    Mutant(
        "a turn that is not seen by who comes into its session while it runs",
        before='if (!key && event === "session.live") goesOn = payload;',
        after="",
        test="test_what_tools_do_is_shown_while_they_run_and_after",
    ),
    Mutant(
        "a terminal's frame that is drawn without those before it",
        before="if (!isWhole && frame.since !== this.revision) {",
        after="if (false) {",
        test="test_a_terminal_is_opened_by_a_person_once_and_by_no_page",
    ),
    Mutant(
        "a terminal's frame that comes late, and is drawn",
        before="if (!isWhole && frame.revision <= this.revision) return new Set();",
        after="if (!isWhole && frame.revision <= this.revision) frame.since = this.revision;",
        test="test_a_terminal_is_opened_by_a_person_once_and_by_no_page",
    ),
    Mutant(
        "a terminal's link that runs in the page",
        before='return url && ["http:", "https:"].includes(url.protocol) ? url.href : null;',
        after="return link ?? null;",
        test="test_nothing_that_a_program_in_a_terminal_prints_becomes_markup",
    ),
    Mutant(
        "a page that opens a terminal by itself",
        before="show(); again(LOOK_MS, check);",
        after="show(); open();",
        test="test_a_terminal_is_opened_by_a_person_once_and_by_no_page",
    ),
    Mutant(
        "a terminal that is opened twice by two clicks",
        before="act([opening], open)",
        after="open()",
        test="test_a_terminal_is_opened_by_a_person_once_and_by_no_page",
    ),
    Mutant(
        "a pane that is made anew",
        before="panes.get(sessionKey) ?? makePane(link, sessionKey)",
        after="makePane(link, sessionKey)",
        test="test_a_terminal_is_opened_by_a_person_once_and_by_no_page",
    ),
    Mutant(
        "a keyboard for who only watches",
        before="field.disabled = !isOn;",
        after="field.disabled = false;",
        test="test_one_types_and_who_takes_over_is_seen",
    ),
    Mutant(
        "a size that who only watches decides",
        before="const size = isOwn && room();",
        after="const size = room();",
        test="test_one_types_and_who_takes_over_is_seen",
    ),
    Mutant(
        "keys that are typed behind those that were refused",
        before='if (error.code === "CONFLICT" && typesAs !== null) types(null);',
        after="",
        test="test_one_types_and_who_takes_over_is_seen",
    ),
    Mutant(
        "a keyboard that is lost with a connection",
        before="if (wasTyping) await control({})",
        after="if (false) await control({})",
        test="test_one_types_and_who_takes_over_is_seen",
    ),
    Mutant(
        "a paste of several lines that is typed",
        before="if (text) put({ paste: text });",
        after="if (text) put(`t:${text}`);",
        test="test_what_is_typed_composed_and_pasted_comes_in_its_order",
    ),
    Mutant(
        "half of a composed word that is typed",
        before="if (!event.isComposing) take(event.inputType);",
        after="take(event.inputType);",
        test="test_what_is_typed_composed_and_pasted_comes_in_its_order",
    ),
    Mutant(
        "a clipboard that a program writes to",
        before='preview.value = String(text); say(told, "");',
        after="preview.value = String(text);\ncopied();",
        test="test_what_is_typed_composed_and_pasted_comes_in_its_order",
    ),
    Mutant(
        "a screen that moves while a person reads what was before",
        before="if (isBack) return;",
        after="",
        test="test_what_is_typed_composed_and_pasted_comes_in_its_order",
    ),
    Mutant(
        "a refused message that is gone",
        before="await what().catch((error) => say(problem, error.message));",
        after='await what().catch(() => say(problem, ""));',
        test="test_on_a_phone_one_writes_by_a_key_bar_and_never_blindly",
    ),
)
