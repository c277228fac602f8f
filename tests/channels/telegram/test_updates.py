"""Telegram's updates as the incoming messages that the adapter's polls return."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from remoteclaw.channels.telegram.adapter import TelegramAdapter
from remoteclaw.channels.telegram.api import upload
from remoteclaw.channels.telegram.settings import TelegramAccount
from remoteclaw.protocols import Choice, Incoming
from tests.support.telegram import TelegramBot, file

CHAT, GROUP = 7, -100_500


@pytest.fixture
async def adapter(bot: TelegramBot) -> AsyncIterator[TelegramAdapter]:
    settings = {"token": bot.token, "api_url": bot.api_url}
    adapter = TelegramAdapter(TelegramAccount.model_validate(settings))
    await adapter.connect()
    yield adapter
    await adapter.aclose()


async def received(
    bot: TelegramBot, adapter: TelegramAdapter, text: str = "", **message: Any
) -> Incoming:
    """Write a message as a person; return it as the adapter's poll does."""
    bot.say(text, **{"chat": CHAT, **message})
    return (await adapter.poll({})).incoming[-1]


async def test_a_message_has_its_sender_text_and_chat(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    found = await received(bot, adapter, " Hello 😀 ", name="Ann")

    assert (found.id, found.chat, found.sender, found.sender_name) == ("1", "7", "7", "Ann")
    assert (found.text, found.is_group, found.is_for_us, found.thread) == (
        "Hello 😀",
        False,
        True,
        None,
    )
    assert found.at_ms == bot.chat(CHAT)[0]["date"] * 1000


async def test_an_edit_is_a_message_that_names_the_one_it_replaces(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    first = await received(bot, adapter, "helo")
    edit = await received(bot, adapter, "hello", edits=int(first.id))
    other = await received(bot, adapter, "hello!", edits=int(first.id))

    assert (edit.replaces, edit.text) == (first.id, "hello")
    assert len({first.id, edit.id, other.id}) == 3
    again = (await adapter.poll({})).incoming
    assert [one.id for one in again] == [first.id, edit.id, other.id]


@pytest.mark.parametrize(
    ("text", "is_for_us", "seen"),
    [
        ("just talking", False, "just talking"),
        ("@{me} what is up", True, "what is up"),
        ("ask @{ME} about it", True, "ask @{ME} about it"),
        ("ask @somebody about it", False, "ask @somebody about it"),
        ("/status", True, "/status"),
        ("/status@{me} now", True, "/status now"),
        ("/status@other_bot", False, "/status@other_bot"),
        ("write to x@{me}", False, "write to x@{me}"),
    ],
)
async def test_in_a_group_a_message_that_mentions_the_bot_is_for_it(
    bot: TelegramBot, adapter: TelegramAdapter, text: str, is_for_us: bool, seen: str
) -> None:
    names = {"me": bot.username, "ME": bot.username.upper()}
    found = await received(bot, adapter, text.format(**names), chat=GROUP, by=8)

    assert (found.is_group, found.sender, found.is_for_us) == (True, "8", is_for_us)
    assert found.text == seen.format(**names)


async def test_in_a_group_a_reply_to_the_bot_is_for_it(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    others = await received(bot, adapter, "hm", chat=GROUP, by=8)
    name = str(
        (await adapter._api.ask("sendMessage", chat_id=str(GROUP), text="**I**"))["message_id"]
    )
    to_other = await received(bot, adapter, "yes", chat=GROUP, by=9, reply_to=int(others.id))
    to_bot = await received(bot, adapter, "yes", chat=GROUP, by=9, reply_to=int(name))

    assert (to_other.is_for_us, to_other.reply_to, to_other.quoted) == (False, others.id, "hm")
    assert (to_bot.is_for_us, to_bot.reply_to, to_bot.quoted) == (True, name, "**I**")


async def test_a_quoted_passage_is_kept_as_the_sender_chose_it(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    long = await received(bot, adapter, "one two " * 1000)
    whole = await received(bot, adapter, "what?", reply_to=int(long.id))
    part = await received(
        bot, adapter, "what?", reply_to=int(long.id), quote={"text": "two", "position": 4}
    )

    assert len(whole.quoted) == 1000
    assert part.quoted == "two"


@pytest.mark.parametrize(
    ("content", "quoted"),
    [
        ({"location": {"latitude": 1.5, "longitude": 2.5}}, "(a place: 1.5, 2.5)"),
        ({"contact": {"phone_number": "+1", "first_name": "Bo"}}, "(a contact: Bo, +1)"),
        ({"dice": {"emoji": "🎲", "value": 3}}, "(🎲 3)"),
        (
            {"checklist": {"title": "Trip", "tasks": [{"id": 1, "text": "tent"}]}},
            "(a checklist: Trip tent)",
        ),
        ({"story": {"chat": {"id": 5, "type": "private"}, "id": 1}}, "(a story, which bots"),
        ({"new_chat_title": "Other"}, "(A message of a kind that bots can't read.)"),
    ],
)
async def test_a_quoted_message_without_text_is_described(
    bot: TelegramBot, adapter: TelegramAdapter, content: dict[str, Any], quoted: str
) -> None:
    first = bot.say(chat=GROUP, by=8, **content)
    found = await received(bot, adapter, "this?", chat=GROUP, by=9, reply_to=first)

    assert found.quoted.startswith(quoted)
    assert (found.reply_to, found.quoted_files) == (str(first), ())


@pytest.mark.parametrize("kind", ["document", "photo", "voice", "video"])
async def test_the_files_of_a_quoted_message_are_fetched_with_it(
    bot: TelegramBot, adapter: TelegramAdapter, kind: str
) -> None:
    first = bot.say("a caption", chat=CHAT, files=[file("a.bin", b"content", kind=kind)])
    found = await received(bot, adapter, "this?", reply_to=first)

    (quoted,) = found.quoted_files
    assert (found.files, found.quoted) == ((), "a caption")
    assert await adapter.fetch(quoted) == b"content"


async def test_a_file_that_the_bot_has_sent_is_fetched_when_it_is_quoted(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    await received(bot, adapter, "hello")
    sent = await adapter._api.ask("sendDocument", chat_id="7", document=upload(b"plot", "plot.txt"))
    found = await received(bot, adapter, "explain", reply_to=int(sent["message_id"]))

    (quoted,) = found.quoted_files
    assert (quoted.name, await adapter.fetch(quoted)) == ("plot.txt", b"plot")


async def test_one_file_of_a_quoted_album_is_fetched_and_the_agent_knows_of_the_others(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    first = bot.say(chat=CHAT, files=[file("a", b"a", kind="photo")], media_group_id="1")
    bot.say(chat=CHAT, files=[file("b", b"b", kind="photo")], media_group_id="1")
    found = await received(bot, adapter, "this?", reply_to=first)

    assert [one.name for one in found.quoted_files] == ["photo-1.jpg"]
    assert found.quoted.startswith("(One of several files")


async def test_a_message_of_another_chat_is_quoted_with_its_author_and_its_file(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    elsewhere = {"id": -100_900, "type": "channel", "title": "News"}
    origin = {"type": "channel", "date": 1, "chat": elsewhere, "message_id": 4}
    photo = {"file_id": "f", "file_unique_id": "f", "width": 9, "height": 9}
    found = await received(
        bot,
        adapter,
        "this?",
        external_reply={"origin": origin, "chat": elsewhere, "message_id": 4, "photo": [photo]},
        quote={"text": "two", "position": 4},
    )
    story = {"chat": {"id": 5, "type": "private"}, "id": 1}
    of_story = await received(bot, adapter, "this?", reply_to_story=story)

    assert (found.reply_to, found.quoted) == (None, "(From News, in another chat:)\ntwo")
    assert [one.id for one in found.quoted_files] == ["f"]
    assert of_story.quoted == "(a story, which bots can't see)"
    assert found.is_forwarded
    assert of_story.is_forwarded


async def test_a_topic_is_a_thread_and_a_chain_of_replies_is_not(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.chat(GROUP, topics=[5])
    in_topic = await received(bot, adapter, "hi", chat=GROUP, by=8, thread=5)
    answer = await received(bot, adapter, "hi", chat=GROUP, by=8, thread=4)

    assert (in_topic.thread, answer.thread) == ("5", None)
    assert (in_topic.chat_kind, answer.chat_kind) == ("thread", "group")
    assert (await received(bot, adapter, "hi")).chat_kind == "direct"


async def test_the_first_message_of_a_topic_is_not_quoted(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    topic = {"name": "Plans", "icon_color": 1}
    bot.chat(GROUP, topics=[1])
    assert bot.say(chat=GROUP, forum_topic_created=topic) == 1
    found = await received(bot, adapter, "hi", chat=GROUP, by=8, thread=1, reply_to=1)

    assert (found.text, found.reply_to, found.quoted) == ("hi", None, "")
    creation, _ = (await adapter.poll({})).incoming
    assert creation.left_out == "a service message (forum_topic_created)"


async def test_code_and_links_of_a_message_become_markdown(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    found = await received(
        bot,
        adapter,
        "😀 run make in x\nprint(1)\nsee docs and https://a.org",
        entities=[
            {"type": "bold", "offset": 0, "length": 2},
            {"type": "code", "offset": 7, "length": 4},
            {"type": "pre", "offset": 17, "length": 8, "language": "python"},
            {"type": "text_link", "offset": 30, "length": 4, "url": "https://b.org/"},
            {"type": "url", "offset": 39, "length": 13},
        ],
    )

    assert found.text == (
        "😀 run `make` in x\n```python\nprint(1)\n```\nsee [docs](https://b.org/) and https://a.org"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"location": {"latitude": 1.5, "longitude": 2.5}}, "(a place: 1.5, 2.5)"),
        ({"contact": {"phone_number": "+1", "first_name": "Bo"}}, "(a contact: Bo, +1)"),
        ({"dice": {"emoji": "🎲", "value": 3}}, "(🎲 3)"),
    ],
)
async def test_locations_contacts_and_dice_are_described_in_text(
    bot: TelegramBot, adapter: TelegramAdapter, content: dict[str, Any], text: str
) -> None:
    assert (await received(bot, adapter, **content)).text == text


async def test_a_forwarded_message_names_its_author(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    origin = {"type": "hidden_user", "date": 1, "sender_user_name": "Bo"}
    found = await received(bot, adapter, "look", forward_origin=origin)
    place = {"latitude": 1.5, "longitude": 2.5}
    of_place = await received(bot, adapter, location=place, forward_origin=origin)

    assert found.text == "(Forwarded from Bo:)\nlook"
    assert of_place.text == "(Forwarded from Bo:)\n(a place: 1.5, 2.5)"
    assert found.is_forwarded
    assert of_place.is_forwarded


async def test_files_have_their_names_types_and_sizes(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    document = await received(
        bot, adapter, "a plan", files=[file("a.pdf", b"%PDF", mime_type="application/pdf")]
    )
    photo = await received(bot, adapter, files=[file("x", b"large picture", kind="photo")])
    voice = await received(bot, adapter, files=[file("x", b"sound", kind="voice")])

    def about(found: Incoming) -> tuple[Any, ...]:
        (one,) = found.files
        return one.name, one.mime_type, one.size

    assert document.text == "a plan"
    assert about(document) == ("a.pdf", "application/pdf", 4)
    assert about(photo) == ("photo-2.jpg", "image/jpeg", 13)
    assert about(voice) == ("voice-3.ogg", "audio/ogg", 5)


async def test_a_reaction_has_its_sender_and_current_emoji(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    first = int((await received(bot, adapter, "hi")).id)
    bot.chat(GROUP, is_admin=True)
    bot.react("👍", chat=CHAT, message=first)
    bot.react("❤", chat=GROUP, message=first, by=8, name="Bo")
    bot.react("", chat=CHAT, message=first)
    kinds = [{"type": "custom_emoji", "custom_emoji_id": "9"}, {"type": "paid"}]
    about = {"date": 1, "old_reaction": [], "new_reaction": kinds, "message_id": first}
    group = {"id": GROUP, "type": "supergroup"}
    user = {"id": 9, "is_bot": True, "first_name": "B"}
    bot.tell({"message_reaction": {**about, "chat": group, "user": user}})
    bot.tell({"message_reaction": {**about, "chat": group, "actor_chat": group}})

    found = (await adapter.poll({})).incoming
    # The first reaction to a person's message is also reported as an edit of that message.
    _, like, love, none, odd, of_chat = (one for one in found if one.replaces is None)
    assert of_chat.left_out == "a reaction of a chat"
    assert (like.chat, like.sender, like.reply_to, like.reaction) == ("7", "7", str(first), "👍")
    assert (love.chat, love.sender, love.sender_name, love.is_group) == (
        str(GROUP),
        "8",
        "Bo",
        True,
    )
    assert (none.sender, none.reaction) == ("7", "")
    assert len({like.id, love.id, none.id, str(first)}) == 4
    assert (odd.reaction, odd.is_bot) == ("(custom emoji)(paid)", True)


async def test_a_button_press_has_its_sender_and_chat(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    by = {"id": 9, "is_bot": False, "first_name": "Bo"}
    about = {"id": "55", "from": by, "chat_instance": "1", "data": "abcdefgh:once"}
    gone = {"chat": {"id": GROUP, "type": "supergroup"}, "message_id": 4, "date": 0}
    bot.tell({"callback_query": about | {"inline_message_id": "9"}})  # its message is in no chat
    bot.tell({"callback_query": about | {"message": gone}})  # no longer accessible

    elsewhere, found = (await adapter.poll({})).incoming
    assert elsewhere.left_out == "a press of a button whose message is in no chat"
    assert (found.chat, found.is_group, found.sender, found.sender_name) == (
        str(GROUP),
        True,
        "9",
        "Bo",
    )
    assert found.choice == Choice("abcdefgh", "once")


async def test_service_messages_and_channel_posts_are_left_out(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    bot.say(chat=GROUP, by=8, new_chat_title="Other")
    bot.chat(-100_900, type="channel")
    bot.say("news", chat=-100_900, by=8)
    bot.say("copied", chat=GROUP, by=8, is_automatic_forward=True)
    bot.say("by a bot", chat=GROUP, by=9, is_bot=True)

    title, post, copy, found = (await adapter.poll({})).incoming
    assert title.left_out == "a service message (new_chat_title)"
    assert {post.left_out, copy.left_out} == {"a post of a channel"}
    assert (found.is_bot, found.left_out) == (True, "")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"hologram": {"text": "secret"}}, "hologram"),
        ({"invoice": {"title": "secret"}}, "invoice"),
        ({}, "empty"),
        ({"text": 5}, "AttributeError"),
        ({"photo": [{"file_id": "secret"}]}, "KeyError"),
    ],
)
async def test_a_message_that_cannot_be_read_has_its_chat_and_the_reason(
    bot: TelegramBot, adapter: TelegramAdapter, content: dict[str, Any], kind: str
) -> None:
    person = {"id": 8, "is_bot": False, "first_name": "Bo"}
    for chat in ({"id": 8, "type": "private"}, {"id": GROUP, "type": "supergroup"}):
        about = {"message_id": 5, "date": 1, "chat": chat, "from": person}
        bot.tell({"message": {**about, **content}})

    direct, in_group = (await adapter.poll({})).incoming
    assert (direct.chat, direct.sender, direct.is_for_us) == ("8", "8", True)
    assert (in_group.chat, in_group.is_for_us) == (str(GROUP), False)
    for found in (direct, in_group):
        assert kind in found.problem
        assert "secret" not in found.problem


async def test_a_message_written_as_a_chat_is_one_of_an_anonymous_person(
    bot: TelegramBot, adapter: TelegramAdapter
) -> None:
    """Telegram names one of its own bots as the sender."""
    group = {"id": GROUP, "type": "supergroup", "title": "Friends"}
    channel = {"id": -100_900, "type": "channel", "title": "News"}
    by_group = {"by": 1087968824, "is_bot": True, "sender_chat": group, "author_signature": "boss"}
    by_channel = {"by": 136817688, "is_bot": True, "sender_chat": channel}
    admin = await received(bot, adapter, "hi", chat=GROUP, **by_group)
    other = await received(bot, adapter, "hi", chat=GROUP, **by_channel)

    assert (admin.is_bot, admin.is_anonymous, admin.sender) == (False, True, "1087968824")
    assert admin.sender_name == "an anonymous administrator, boss"
    assert (other.is_bot, other.is_anonymous, other.sender) == (False, True, "-100900")
    assert other.sender_name == "News"
