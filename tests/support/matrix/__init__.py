"""A real Matrix homeserver on loopback, and people on it.

    login = await homeserver.register("ann")          a new account
    ann = Person(homeserver.url, login)               a person whose client doesn't encrypt
    async with Faults.before(homeserver.url) as it    what goes wrong between an adapter and it
    async with second_client() as second              people whose clients encrypt (matrix-js-sdk)

Nothing of Matrix is imitated: `.ci/run` installs Synapse, and the client of Element.
"""

from tests.support.matrix.faults import Faults
from tests.support.matrix.person import Person
from tests.support.matrix.second import Second, second_client
from tests.support.matrix.server import Homeserver, Login, synapse

__all__ = ["Faults", "Homeserver", "Login", "Person", "Second", "second_client", "synapse"]
