"""A real Matrix homeserver on loopback, and people on it.

    login = await homeserver.register("ann")          a new account
    ann = Person(homeserver.url, login)               a person whose client doesn't encrypt
    async with Faults.before(homeserver.url) as it    what goes wrong between an adapter and it
    async with second_client() as second              people whose clients encrypt (matrix-js-sdk)
    SecurePerson.opened(second, homeserver, "ann")    one of them, with all that a person can do
    await ann.messages(room)                          what a reader sees, with edits and reactions

Nothing of Matrix is imitated: `.ci/run` installs Synapse, and the client of Element.
"""

from tests.support.matrix.faults import Faults
from tests.support.matrix.person import Person
from tests.support.matrix.second import Second, second_client
from tests.support.matrix.secure import SecurePerson
from tests.support.matrix.server import Homeserver, Login, synapse

__all__ = [
    "Faults",
    "Homeserver",
    "Login",
    "Person",
    "Second",
    "SecurePerson",
    "second_client",
    "synapse",
]
