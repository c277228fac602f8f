"""Signs in to an account on a homeserver, for `channel add matrix`.

A login with the device of an earlier one keeps its keys. The keys of a new device, and the identity
that vouches for it, are made here, because the homeserver may ask for the password, which is then
forgotten.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from remoteclaw.channels.matrix.api import Homeserver, MatrixRefused, discovered
from remoteclaw.channels.matrix.encryption import Encryption
from remoteclaw.channels.matrix.identity import Identity, sign_device
from remoteclaw.channels.matrix.recovery import WRONG_KEY, Recovery
from remoteclaw.channels.matrix.settings import MatrixAccount
from remoteclaw.errors import AccountRefused, ConfigError, PlatformBusy
from remoteclaw.protocols import AdapterState, Person, SignedIn

#: The name of the device for the account's other clients.
DEVICE_NAME = "RemoteClaw"

OTHER_CLIENT = (
    "The token belongs to the device of another client, whose keys only that client has: leave out "
    "the token, and log in with the password."
)
NO_DEVICE = "The token belongs to no device: leave it out, and log in with the password."
NO_LOGIN = (
    "The homeserver offers no login with a password or in a browser: ask its administrators for an "
    "access token, and name its file with --token-file."
)
NOT_KNOWN = "{url} doesn't know the token: it is revoked, or another homeserver's."
LOST = "{user} is logged in already. Have its keys got lost, so that it needs a new device?"
WORKS = "{user} is logged in and configured already: change its settings in the configuration."
OTHER_ACCOUNT = "This is {user}, but the account of the configuration is {known}."
BROWSER = (
    "Open {url} in a browser, log in as the account, and copy the address at which the browser "
    "ends: it can't show that page."
)
HIDDEN = "Password of {user} (it is not shown)"
RECOVERY = "Recovery key (it is not shown; Enter goes on without it)"
MAKE_KEY = (
    "Make a recovery key? With it, the account's identity survives a loss of RemoteClaw's data, "
    "and other clients of the account can use it."
)


async def sign_in(
    person: Person,
    known: Mapping[str, Any],
    state: AdapterState,
    *,
    is_configured: bool,
    recovers: bool,
) -> SignedIn:
    """Sign in to an account, or again to one that is configured; a `SignIn`."""
    signing = _SigningIn(person, known, state)
    return await signing.run(is_configured=is_configured, recovers=recovers)


class _SigningIn:
    def __init__(self, person: Person, known: Mapping[str, Any], state: AdapterState) -> None:
        self._person, self._known, self._state = person, known, state
        self._url = self._password = ""

    async def run(self, *, is_configured: bool, recovers: bool) -> SignedIn:
        """Log in unless there is a token that works, and make the keys that are missing."""
        self._url = await self._homeserver()
        token, user, device = self._token(is_configured=is_configured), "", ""
        if token:
            try:
                user, device = await self._owner_of(token)
            except AccountRefused as refused:
                if not is_configured or not self._person.is_there:
                    raise
                self._person.say(f"{refused} Log in again.")
                token = ""
        given = token
        is_new = not is_configured
        if is_configured and token and not recovers:
            if not self._person.is_there or not self._person.confirms(LOST.format(user=user)):
                raise ConfigError(WORKS.format(user=user))
            token, is_new = "", True
        if not token:
            earlier = "" if is_configured and is_new else str(self._known.get("device") or "")
            is_new = is_new or not earlier
            user, device, token = await self._login(earlier or await self._kept_device())
        if is_new:
            await self._forget_other(user, device)
        api = Homeserver(self._url, token)
        try:
            if recovers:
                await self._recover(api, user)
            if is_new:
                await self._make_keys(api, user, device, is_given=bool(given))
        finally:
            await api.aclose()
        return SignedIn(
            name=user,
            settings={"api_url": self._url, "user": user, "device": device},
            secrets={} if token == given else {"token": token},
            reach=f"Now invite {user} to a chat, or open https://matrix.to/#/{user} and write to "
            "it, so that it learns who you are.",
        )

    async def _homeserver(self) -> str:
        given = self._known.get("api_url")
        if not given and not self._person.is_there:
            raise ConfigError("Name the homeserver: --api-url NAME.")
        while True:
            name = given or self._person.ask("Homeserver, such as matrix.org")
            try:
                return await discovered(name)
            except ConfigError as error:
                if given:
                    raise
                self._person.say(str(error))

    def _token(self, *, is_configured: bool) -> str:
        """Return the token that the settings name; empty if they name none, or it can't be read."""
        fields = ("token", "token_env", "token_file")
        places = {name: self._known[name] for name in fields if self._known.get(name)}
        if not places:
            if not self._person.is_there:
                raise ConfigError("Say where the token is: --token-file FILE, or --token-env NAME.")
            return ""
        try:
            return MatrixAccount.model_validate(places).read_secret("token")
        except ConfigError:
            if not is_configured or not self._person.is_there:
                raise
            return ""  # it is lost, so log in again

    async def _owner_of(self, token: str) -> tuple[str, str]:
        """Return the person and the device of a token."""
        api = Homeserver(self._url, token)
        try:
            who = await api.get("account", "whoami")
        except AccountRefused:
            raise AccountRefused(NOT_KNOWN.format(url=self._url)) from None
        finally:
            await api.aclose()
        if not who.get("device_id"):
            raise ConfigError(NO_DEVICE)
        return str(who["user_id"]), str(who["device_id"])

    async def _login(self, device: str) -> tuple[str, str, str]:
        """Log in with a device, or a new one; return the person, the device and the token."""
        api = Homeserver(self._url)
        try:
            flows = {each.get("type") for each in (await api.get("login")).get("flows", ())}
            if not flows & {"m.login.password", "m.login.sso"}:
                raise ConfigError(NO_LOGIN)
            answer: dict[str, Any] | None = None
            while answer is None:
                body = self._with_password() if "m.login.password" in flows else self._in_browser()
                body["initial_device_display_name"] = DEVICE_NAME
                body |= {"device_id": device} if device else {}
                try:
                    answer = await api.post("login", body=body)
                except MatrixRefused as refused:
                    is_wrong = refused.code in ("M_FORBIDDEN", "M_INVALID_USERNAME")
                    self._person.say("The login is wrong." if is_wrong else str(refused))
                except PlatformBusy as busy:
                    pause = f"{busy.after_s:.0f} s"
                    raise ConfigError(f"{self._url} allows no login for {pause}.") from None
        finally:
            await api.aclose()
        user, known = str(answer["user_id"]), self._known.get("user")
        if known and user != known:
            raise ConfigError(OTHER_ACCOUNT.format(user=user, known=known))
        return user, str(answer["device_id"]), str(answer["access_token"])

    def _with_password(self) -> dict[str, Any]:
        user = self._known.get("user") or self._person.ask("User, such as bot or @bot:matrix.org")
        self._password = self._person.ask_hidden(HIDDEN.format(user=user))
        identifier = {"type": "m.id.user", "user": user.strip()}
        return {"type": "m.login.password", "identifier": identifier, "password": self._password}

    def _in_browser(self) -> dict[str, Any]:
        path = "_matrix/client/v3/login/sso/redirect"
        url = f"{self._url}/{path}?redirectUrl={quote('http://localhost/', safe='')}"
        self._person.say(BROWSER.format(url=url))
        ended = urlsplit(self._person.ask_hidden("That address (it is not shown)").strip())
        token = parse_qs(ended.query).get("loginToken", [""])[0]
        return {"type": "m.login.token", "token": token}

    # -- keys ----------------------------------------------------------------------------------

    async def _kept_device(self) -> str:
        """Return the device of a `channel add` that did not come to its end."""
        return (await self._state.read("login") or b"").decode().partition(" ")[2]

    async def _forget_other(self, user: str, device: str) -> None:
        """Keep no keys that are another account's, or another device's."""
        login = f"{user} {device}".encode()
        kept = await self._state.read("login") or b""
        if kept != login:
            await self._state.write("device", None)
            if kept.partition(b" ")[0].decode() != user:
                await self._state.write("identity", None)
            await self._state.write("login", login)

    async def _make_keys(self, api: Homeserver, user: str, device: str, *, is_given: bool) -> None:
        """Make and publish the keys of a new device, and those of the account's identity."""
        encryption = Encryption(api, self._state, user, device)
        try:
            await encryption.open()
        except AccountRefused:
            if not is_given:
                raise
            raise ConfigError(OTHER_CLIENT) from None
        problem = await sign_device(api, self._state, encryption.device, password=self._password)
        if problem and self._person.is_there:
            self._person.say(problem)
            if await self._state.read("identity"):  # it is made, but not published
                self._password = self._person.ask_hidden(HIDDEN.format(user=user))
            else:
                await self._recover(api, user)
            problem = await sign_device(
                api, self._state, encryption.device, password=self._password
            )
        if problem and not self._person.is_there:
            self._person.say(problem)
        elif not problem and self._person.is_there:
            await self._offer_key(api, user)

    async def _offer_key(self, api: Homeserver, user: str) -> None:
        recovery, value = Recovery(api, user), await self._state.read("identity")
        if value and not await recovery.has_key() and self._person.confirms(MAKE_KEY):
            key = await recovery.make_key(Identity.loaded(user, value))
            self._person.say(f"Recovery key: {key}")
            self._person.say("Write it down: it is not stored, and not shown again.")

    async def _recover(self, api: Homeserver, user: str) -> None:
        """Take over an identity that another client has made, if its key is at hand."""
        while key := self._person.ask_hidden(RECOVERY):
            try:
                identity = await Recovery(api, user).identity(key)
            except ConfigError as error:
                self._person.say(str(error))
                if str(error) != WRONG_KEY:
                    return
            else:
                await identity.keep(self._state)
                return
