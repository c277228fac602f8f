"""The configuration section `[channels.web]`."""

from typing import Annotated

from pydantic import field_validator

from remoteclaw.channels.web.profile import person_id
from remoteclaw.config.model import AccountConfig, ChannelConfig, Config
from remoteclaw.config.rights import BY_PEOPLE
from remoteclaw.host.terminal import login_name
from remoteclaw.messages import DEFAULT_ACCOUNT


class WebConfig(AccountConfig, ChannelConfig):
    """The chats of people on the page, in a terminal and with `send`."""

    person: Annotated[str | None, BY_PEOPLE] = None
    """The name of the person who writes in a terminal and with `send`: with `ada`, that is
    `admin.ada`, like a login of that name with the scope admin. Without it, the login name of the
    user who runs the gateway."""

    @field_validator("person")
    @classmethod
    def _check_person(cls, value: str | None) -> str | None:
        if value is not None and not (
            0 < len(value) <= 64 and value.isprintable() and not set(value) & set(" /")
        ):
            raise ValueError(f"has {value!r}: write 1 to 64 printable characters, no space, no /")
        return value

    def admits(self, sender: str) -> bool:
        """Whether a person may write: also the person of the token file, as after a login."""
        own = person_id(self.person or login_name(), is_admin=True)
        return super().admits(sender) or sender == own


def own_name(config: Config) -> str:
    """Return the name of the person to whom the token file of the state directory belongs."""
    settings = config.account("web", DEFAULT_ACCOUNT)
    return (isinstance(settings, WebConfig) and settings.person) or login_name()
