"""The POST request of a delivery."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from graph.events.address_guard import AddressGuard
from graph.events.webhook_sender import WebhookMessage, WebhookSender, parse_secret, sign
from tests.rest_v3.support.interface_rules import cites
from tests.support.servers.webhook_receiver import WebhookReceiver

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class TestSignature:
    def test_is_the_one_of_the_standard(self) -> None:
        """The example of the specification's reference libraries."""
        secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        assert sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}') == (
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        )

    @pytest.mark.parametrize(
        "secret", ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_%%%", "whsec_" + "A" * 120]
    )
    def test_requires_a_valid_key(self, secret: str) -> None:
        with pytest.raises(ValueError, match="24 to 64 bytes"):
            parse_secret(secret)


class TestAnswer:
    @pytest.mark.parametrize(
        ("retry_after", "seconds"),
        [
            ("120", 120),
            ("1", 1),
            ("Sun, 01 Mar 2026 12:10:00 GMT", 600),
            ("99999999999", 999999999),
            ("soon", None),
            ("-3", None),
            ("Sun, 01 Mar 99999999999 12:10:00 GMT", None),
            ("Sun, 01 Mar 2026 12:10:00 +99999999999999", None),
        ],
    )
    async def test_reads_retry_after(self, retry_after: str, seconds: float | None) -> None:
        sender = WebhookSender(AddressGuard(allow_local=True))
        async with WebhookReceiver(503, headers={"Retry-After": retry_after}) as receiver:
            result = await sender.send(WebhookMessage(receiver.url, "msg_1", b"{}"), NOON)
        await sender.close()

        assert (result.code, result.error, result.retry_after) == (503, "answered 503", seconds)

    async def test_of_a_broken_receiver_is_an_error(self) -> None:
        sender = WebhookSender(AddressGuard(allow_local=True))
        async with WebhookReceiver(headers={"Bad": "\x00"}) as receiver:
            result = await sender.send(WebhookMessage(receiver.url, "msg_1", b"{}"), NOON)
        await sender.close()

        assert result.code is None
        assert (result.error or "").startswith("RemoteProtocolError")

    async def test_the_second_address_is_tried_when_the_first_refuses(self) -> None:
        async def resolve(host: str, port: int) -> list[str]:
            return ["::1", "127.0.0.1"]

        sender = WebhookSender(AddressGuard(allow_local=True, resolve=resolve))
        async with WebhookReceiver() as receiver:
            result = await sender.send(WebhookMessage(f"http://hooks.example:{receiver.port}/x", "msg_1", b"{}"), NOON)
        await sender.close()

        assert result.is_ok
        assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"


class TestCertificates:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        """A self-signed certificate of `localhost`, with its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        built = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        path = tmp_path / "localhost.pem"
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(secret + built.public_bytes(Encoding.PEM))
        return path

    @cites("Events: enable_ssl_verification decides whether the certificate of a receiver must be good")
    @pytest.mark.parametrize(("known", "verify", "taken"), [(False, True, False), (False, False, True), (True, True, True)])
    async def test_are_verified_unless_disabled_for_the_hook(
        self, known: bool, verify: bool, taken: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if known:
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
        names: list[str | None] = []
        tls.sni_callback = lambda _, name, __: names.append(name)
        sender = WebhookSender(AddressGuard(allow_local=True))
        async with WebhookReceiver(tls=tls) as receiver:
            result = await sender.send(WebhookMessage(f"https://localhost:{receiver.port}/", "msg_1", b"{}", verify=verify), NOON)
        await sender.close()

        assert names == ["localhost"]
        assert result.is_ok is taken
        assert len(receiver.requests) == (1 if taken else 0)
        assert taken or "CERTIFICATE_VERIFY_FAILED" in (result.error or "")
