"""What is wrong with an app, its tokens or its workspace is said in a sentence."""

from typing import Any

import pytest

from remoteclaw.channels.slack.adapter import SlackAdapter
from remoteclaw.errors import PlatformBusy, PlatformRefused
from remoteclaw.protocols import Live, Operation, Place
from tests.channels.slack.conftest import Account
from tests.support.slack import mentions_in
from tests.support.waiting import eventually


async def until_problem(account: Account, state: str, words: str) -> None:
    """Wait until the account has a state, and a problem with these words."""

    async def is_said() -> bool:
        found, problem = await account.state()
        return found == state and words in problem

    await eventually(is_said)


async def test_each_missing_scope_is_named(account: Account) -> None:
    scopes = [
        "channels:history", "channels:read", "chat:write", "im:history", "users:read",
    ]  # fmt: skip
    account.team.set(scopes=scopes)
    await account.start()

    async def problem() -> str:
        return (await account.state())[1]

    assert "files:read, files:write" in await eventually(problem)
    assert "chat:write," not in await problem()


@pytest.mark.parametrize(
    ("workspace", "words"),
    [
        ({"auth_error": "token_revoked"}, "The token is revoked: install the app again"),
        ({"auth_error": "account_inactive"}, "The app is removed from the workspace"),
        ({"auth_error": "team_access_not_granted"}, "The workspace has not approved the app"),
        ({"is_enterprise": True}, "The token is of a whole Enterprise organization"),
        ({"auth_error": "access_denied"}, "The workspace doesn't allow the app"),
        ({"auth_error": "team_added_to_org"}, "The workspace is being moved"),
        ({"app_scopes": []}, "lacks the scope connections:write: make an app-level token"),
    ],
)
async def test_an_account_that_slack_refuses_is_named(
    account: Account, workspace: dict[str, Any], words: str
) -> None:
    account.team.set(**workspace)
    account.run()

    async def is_said() -> bool:
        return words in (await account.state())[1]

    await eventually(is_said)


async def test_tokens_that_are_rotated_are_asked_for_again_and_used_at_once(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remoteclaw.channels.process.MAX_PAUSE_S", 1e6)
    team, directory = account.team, account.stack.home.path
    files = {name: directory / name for name in ("token", "app_token")}

    def write() -> None:
        files["token"].write_text(team.bot_token)
        files["app_token"].write_text(team.app_token)

    write()
    places = {f"{name}_file": str(file) for name, file in files.items()}
    account.configure(token="", app_token="", **places)
    await account.start()
    team.rotate()
    team.drop()
    await until_problem(account, "refused", "run `remoteclaw channel add slack`")
    write()
    await until_problem(account, "runs", "")


async def test_socket_mode_that_is_switched_off_is_named(account: Account) -> None:
    await account.start()
    account.team.disconnect("link_disabled")
    await until_problem(account, "refused", "Socket Mode is switched off")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_archived": True}, "The channel is archived."),
        ({"is_read_only": True}, "The workspace doesn't let apps post there."),
    ],
)
async def test_a_channel_in_which_the_app_may_not_write_is_named(
    account: Account, change: dict[str, Any], words: str
) -> None:
    await account.start()
    account.team.set_channel(account.room, **change)
    await account.deliver("refused", chat=account.room)
    await account.deliver("accepted", chat=account.direct, index=1)

    assert account.team.texts(account.room) == []
    assert "accepted" in account.team.texts(account.direct)
    letters = await account.stack.fleet.dead_letters.list()
    assert words in letters[0].why


async def test_a_channel_that_the_app_has_left_is_named(account: Account) -> None:
    await account.start()
    account.team.leave(account.room, account.team.bot)
    await account.deliver("refused", chat=account.room)
    letters = await account.stack.fleet.dead_letters.list()
    assert "invite it with /invite" in letters[0].why


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("access_denied", "The workspace doesn't allow the app"),
        ("team_access_not_granted", "The workspace has not approved the app"),
        ("ekm_access_denied", "have suspended messages"),
    ],
)
async def test_what_slack_refuses_of_one_channel_holds_up_no_other(
    account: Account, error: str, words: str
) -> None:
    await account.start()
    account.team.fault("chat.postMessage", "error", error=error)
    await account.deliver("refused", chat=account.room)
    await account.deliver("accepted", chat=account.direct, index=1)
    assert "accepted" in account.team.texts(account.direct)
    letters = await account.stack.fleet.dead_letters.list()
    assert words in letters[0].why


async def test_a_status_line_that_one_channel_refuses_is_shown_in_others(
    account: Account, adapter: SlackAdapter
) -> None:
    team, room = account.team, account.room
    thread = team.say(room, account.ann, "hi")
    with pytest.raises(PlatformRefused):
        await adapter.typing(Place("C0000000", thread))
    await adapter.typing(Place(room, thread))
    assert team.statuses() == {f"{room}/{thread}": "is working …"}


async def test_a_pause_of_days_is_not_waited_for_at_once(
    account: Account, adapter: SlackAdapter
) -> None:
    account.team.fault("pins.add", "limited", after_s=10**9)
    with pytest.raises(PlatformBusy) as busy:
        await adapter.operate(
            Operation("pin", account.room, None, {"messageId": "1.2"}, expires_ms=0)
        )
    assert busy.value.after_s <= 600


async def test_a_preview_has_room_in_an_edit_and_mentions_nobody(
    account: Account, adapter: SlackAdapter
) -> None:
    """What a tool is called with is shown, too, and may have come from a web page."""
    direct = Place(account.direct, None)
    shown = await adapter.preview(direct, Live(text="x"), message_id=None)
    for text, status in (
        ("漢字" * 3000, "😀" * 500),
        ("😀" * 4000, "<!channel> <@U12345> @here " * 9),
    ):
        live = Live(text=text, activity=status, plan=status)
        await adapter.preview(direct, live, message_id=shown)
        (message,) = account.team.messages(account.direct)
        assert mentions_in(message) == []
        assert "@here" not in message["text"]
