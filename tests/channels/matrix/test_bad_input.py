"""What goes wrong between an account and its homeserver, each with a sentence."""

from remoteclaw.config.load import load_config
from remoteclaw.fleet.account_states import configured_accounts
from tests.channels.matrix.conftest import Account
from tests.support.matrix import Person
from tests.support.waiting import eventually


async def problem(account: Account) -> tuple[str, str]:
    """Return the state of the account, and its problem."""
    config = load_config(account.stack.home.config_file)
    (state,) = await configured_accounts(account.stack.fleet, config)
    return state.state, state.problem


async def test_a_login_that_ends_is_refused_with_what_to_do(account: Account) -> None:
    await account.start()
    async with Person.at(account.server.url, account.login) as itself:
        await itself.call("POST", "logout", body={})

    async def is_refused() -> bool:
        state, why = await problem(account)
        return state == "refused" and "run `remoteclaw channel add matrix` again" in why

    await eventually(is_refused)


async def test_a_stranger_gets_the_account_into_no_room(account: Account) -> None:
    """Nor does one whose display name is the owner's id."""
    await account.start()
    async with Person.registered(account.server, "eve") as eve:
        name = {"displayname": account.ann.id}
        await eve.call("PUT", "profile", eve.id, "displayname", body=name)
        room = await eve.create(account.login.user)

        async def is_declined() -> bool:
            path = ("rooms", room, "state", "m.room.member", account.login.user)
            return bool((await eve.call("GET", *path))["membership"] == "leave")

        await eventually(is_declined)


async def test_a_room_in_which_the_account_may_not_write_is_named(account: Account) -> None:
    """The reply is given up, and the others go on."""
    ann = account.ann
    await account.start()
    rooms = [await ann.create(account.login.user, is_direct=False) for _ in range(2)]

    async def has_joined() -> bool:
        members = [await ann.call("GET", "rooms", room, "joined_members") for room in rooms]
        return all(account.login.user in each["joined"] for each in members)

    await eventually(has_joined)
    await ann.set_power(rooms[0], events_default=50, users={})
    await account.stack.put_reply("matrix", "default", "refused", chat=rooms[0])
    await account.stack.put_reply("matrix", "default", "nowhere", index=1, chat="!none:localhost")
    await account.stack.put_reply("matrix", "default", "accepted", index=2, chat=rooms[1])

    async def is_said() -> bool:
        said = [each["content"].get("body") for each in await ann.timeline(rooms[1])]
        return "accepted" in said

    await eventually(is_said)

    async def are_refused() -> bool:
        letters = await account.stack.fleet.dead_letters.list()
        refused = {each.text for each in letters if "forbids it" in each.why}
        return {"refused", "nowhere"} <= refused

    await eventually(are_refused)
