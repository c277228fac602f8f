"""TLS in front of a Redis, with a certificate authority of its own, as stunnel does it."""

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """A certificate authority whose files are in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = self._write("ca", self._key, self._signed("ca", self._key))

    def certificate(self, name: str) -> Path:
        """Make a certificate for 127.0.0.1; return the file that has it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._write(name, key, self._signed(name, key))

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject, issuer = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, "ca")
        )
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = x509.CertificateBuilder(issuer, subject, key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        builder = builder.add_extension(x509.SubjectAlternativeName([loopback]), critical=False)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True
        )
        return builder.sign(self._key, hashes.SHA256())

    def _write(
        self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
    ) -> Path:
        pem = serialization.Encoding.PEM
        file = self._directory / f"{name}.pem"
        file.write_bytes(
            certificate.public_bytes(pem)
            + key.private_bytes(
                pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return file


@contextlib.asynccontextmanager
async def tls_in_front_of(
    socket: Path, authority: Authority, *, wants_client: bool = False
) -> AsyncIterator[int]:
    """Yield a port of 127.0.0.1 where a server speaks TLS and passes all on to `socket`.

    With `wants_client`, clients need a certificate of the authority, too.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate("server"))
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED if wants_client else ssl.CERT_NONE

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(socket)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async with await asyncio.start_server(connect, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]
        server.close()
