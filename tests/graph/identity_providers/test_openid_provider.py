"""The OpenID client: which responses of a provider it accepts, by a provider that answers as a test says."""

import base64
import hmac
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from graph.identity_providers.openid_provider import OpenIdOptions, OpenIdProvider
from graph.identity_providers.people import AccountPolicy, GroupGrant, GroupMapping, IdentityProviderUnavailable, IdentityRejected
from storage.tables import AccessLevel

ISSUER = "https://id.example"
REDIRECT = "https://forge.example/-/sign_in"
NOW = 1_700_000_000
MAPPING = GroupMapping((GroupGrant("tools", AccessLevel.DEVELOPER, "devs"),), admin_group="roots")


class FakeProvider:
    """Answers over a transport of httpx. `claims` change the ID token, and `responses` replace responses by path."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.published = [self.key]
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "one"}
        self.userinfo: dict[str, Any] = {"sub": "s-1", "email": "Ada@Example.org", "email_verified": True, "groups": ["devs", "others"]}
        self.metadata: dict[str, Any] = {}
        self.responses: dict[str, httpx.Response] = {}
        self.requests: list[httpx.Request] = []

    def id_token(self) -> str:
        claims = {"iss": ISSUER, "sub": "s-1", "aud": "forge", "exp": NOW + 300, "iat": NOW, "nonce": "n", "preferred_username": "ada"}
        claims = {name: value for name, value in {**claims, **self.claims}.items() if value is not None}
        return jwt.encode(self.header, claims, self.key, algorithms=[self.header["alg"]])

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path
        if path in self.responses:
            return self.responses[path]
        if path == "/.well-known/openid-configuration":
            paths = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "keys", "userinfo_endpoint": "me"}
            endpoints = {name: f"{ISSUER}/{path}" for name, path in paths.items()}
            return httpx.Response(200, json={"issuer": ISSUER, **endpoints, "end_session_endpoint": f"{ISSUER}/out?a=1", **self.metadata})
        if path == "/keys":
            return httpx.Response(200, json=KeySet(self.published).as_dict(private=False))
        if path == "/token":
            return httpx.Response(200, json={"access_token": "access", "token_type": "Bearer", "id_token": self.id_token()})
        assert path == "/me" and request.headers["authorization"] == "Bearer access"
        return httpx.Response(200, json=self.userinfo)

    def paths(self) -> list[str]:
        return [request.url.path for request in self.requests]


class Clock:
    now = float(NOW)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fake() -> FakeProvider:
    return FakeProvider()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(fake: FakeProvider, clock: Clock) -> OpenIdProvider:
    options = OpenIdOptions(ISSUER, "forge", "a long & secret", policy=AccountPolicy(MAPPING))
    return OpenIdProvider(options, clock=clock, transport=httpx.MockTransport(fake))


async def finish(provider: OpenIdProvider, **changes: Any) -> Any:
    return await provider.finish(REDIRECT, "code", **{"nonce": "n", "code_verifier": "v" * 64, **changes})


class TestSignIn:
    async def test_sends_the_browser_with_everything_that_is_checked_later(self, provider: OpenIdProvider) -> None:
        url = await provider.authorization_url(REDIRECT, state="st", nonce="n", code_verifier="v" * 64)
        parts = urlsplit(url)
        parameters = {key: values[0] for key, values in parse_qs(parts.query).items()}
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{ISSUER}/auth"
        # The SHA-256 of the verifier.
        assert parameters.pop("code_challenge") == "w1TpKUdYE9hUAcNSeeSRFioHDxfUxuHho_JHAfZ_vDM"
        assert parameters == {
            "client_id": "forge",
            "response_type": "code",
            "redirect_uri": REDIRECT,
            "scope": "openid profile email",
            "state": "st",
            "nonce": "n",
            "code_challenge_method": "S256",
        }
        sign_out = await provider.sign_out_url(REDIRECT)
        assert sign_out == f"{ISSUER}/out?a=1&client_id=forge&post_logout_redirect_uri=https%3A%2F%2Fforge.example%2F-%2Fsign_in"

    async def test_exchanges_the_code_and_reads_the_claims(self, provider: OpenIdProvider, fake: FakeProvider) -> None:
        person = await finish(provider, issuer=ISSUER)
        assert (person.provider, person.uid, person.username, person.name) == ("openid_connect", "s-1", "ada", "ada")
        assert (person.email, person.has_verified_email, person.groups) == ("ada@example.org", True, {"devs"})
        (request,) = (each for each in fake.requests if each.url.path == "/token")
        body = {key: values[0] for key, values in parse_qs(request.content.decode()).items()}
        assert body == {"grant_type": "authorization_code", "code": "code", "redirect_uri": REDIRECT, "code_verifier": "v" * 64}
        assert base64.b64decode(request.headers["authorization"].partition(" ")[2]) == b"forge:a+long+%26+secret"
        # What is known is not requested again, and an ID token with all claims needs no userinfo.
        fake.requests.clear()
        fake.claims = {"email": "eve@example.org", "name": "Eve", "groups": "roots"}
        person = await finish(provider)
        assert (person.email, person.has_verified_email, person.groups, fake.paths()) == ("eve@example.org", False, {"roots"}, ["/token"])
        assert "a long & secret" not in repr(provider.options)

    async def test_accepts_only_valid_id_tokens(self, provider: OpenIdProvider, fake: FakeProvider) -> None:
        wrong: list[dict[str, Any]] = [
            *({"iss": value} for value in ("https://other.example", f"{ISSUER}/", None)),
            *({"aud": value} for value in ("other", ["other"], ["forge", "other"], None, [])),
            *({"exp": value} for value in (NOW - 61, None, "soon")),
            *({"nonce": value} for value in ("other", None, "")),
            *({"iat": None}, {"sub": None}, {"sub": ""}, {"sub": 7}, {"azp": "other"}, {"at_hash": "wrong"}, {"nbf": NOW + 3600}),
        ]
        for claims in wrong:
            fake.claims = claims
            with pytest.raises(IdentityRejected):
                await finish(provider)
        fake.claims = {"exp": NOW - 59, "aud": ["forge", "other"], "azp": "forge"}
        assert (await finish(provider)).uid == "s-1"
        for issuer in ("https://other.example", ""):
            with pytest.raises(IdentityRejected, match="is from"):
                await finish(provider, issuer=issuer)
        fake.userinfo["sub"] = "s-2"
        with pytest.raises(IdentityRejected, match="somebody else"):
            await finish(provider)

    async def test_accepts_only_signatures_of_the_published_keys(self, provider: OpenIdProvider, fake: FakeProvider) -> None:
        valid, other = fake.id_token(), RSAKey.generate_key(2048, {"kid": "one"})
        header, payload, signature = valid.split(".")
        unsigned = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).decode().rstrip("=")
        symmetric = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "one"}).encode()).decode().rstrip("=")
        keys = (b"a long & secret", fake.key.as_pem(private=False))
        macs = [hmac.digest(key, f"{symmetric}.{payload}".encode(), "sha256") for key in keys]
        claims = {"iss": ISSUER, "sub": "s-1", "aud": "forge", "exp": NOW + 300, "iat": NOW, "nonce": "n"}
        forged = [
            f"{header}.{payload}.{signature[:-8]}AAAAAAAA",
            f"{header}.{payload}.",
            f"{unsigned}.{payload}.",
            f"{unsigned}.{payload}.{signature}",
            jwt.encode({"alg": "RS256", "kid": "one"}, claims, other),
            jwt.encode({"alg": "RS256", "kid": "two"}, claims, other),
            *(f"{symmetric}.{payload}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}" for mac in macs),
            *("", "x", "a.b.c", valid[::-1]),
        ]
        for token in forged:
            fake.responses["/token"] = httpx.Response(200, json={"access_token": "access", "id_token": token})
            with pytest.raises(IdentityRejected):
                await finish(provider)
        fake.responses["/token"] = httpx.Response(200, json={"access_token": "access", "id_token": valid})
        assert (await finish(provider)).uid == "s-1"


class TestKeys:
    async def test_are_cached_and_requested_again_for_an_unknown_key(
        self, provider: OpenIdProvider, fake: FakeProvider, clock: Clock
    ) -> None:
        await finish(provider)
        await finish(provider)
        assert fake.paths().count("/keys") == 1
        # The provider rotates its keys: the new one is found, with one request however many tokens have unknown keys.
        clock.now += 11
        fake.key = ECKey.generate_key("P-256", {"kid": "two"})
        fake.published, fake.header = [fake.key], {"alg": "ES256", "kid": "two"}
        assert (await finish(provider)).uid == "s-1"
        assert fake.paths().count("/keys") == 2
        fake.key, fake.header = ECKey.generate_key("P-256", {"kid": "three"}), {"alg": "ES256", "kid": "three"}
        for _ in range(3):
            with pytest.raises(IdentityRejected):
                await finish(provider)
        assert fake.paths().count("/keys") == 2
        clock.now += 4000
        fake.claims = {"exp": NOW + 10_000}
        with pytest.raises(IdentityRejected):
            await finish(provider)
        assert (fake.paths().count("/keys"), fake.paths().count("/.well-known/openid-configuration")) == (3, 2)


class TestProvidersThatAreBroken:
    async def test_are_reported(self, fake: FakeProvider, clock: Clock) -> None:
        discovery = "/.well-known/openid-configuration"
        large = httpx.Response(200, content=b'{"x": "' + b"y" * 2**20 + b'"}')
        broken = {
            discovery: (httpx.Response(500), httpx.Response(302, headers={"location": "/x"}), httpx.Response(200, text="<p>"), large),
            "/keys": (httpx.Response(200, json=[1]), httpx.Response(200, json={"keys": [{"kty": "RSA"}]}), httpx.Response(404)),
            "/token": (httpx.Response(200, text="no"), httpx.Response(200, json=[])),
            "/me": (httpx.Response(401), httpx.Response(200, text="x")),
        }
        for path, responses in broken.items():
            for response in responses:
                fake.responses = {path: response}
                provider = OpenIdProvider(
                    OpenIdOptions(ISSUER, "forge", policy=AccountPolicy(MAPPING)), clock=clock, transport=httpx.MockTransport(fake)
                )
                with pytest.raises((IdentityProviderUnavailable, IdentityRejected)):
                    await finish(provider)
        fake.responses = {"/token": httpx.Response(400, json={"error": "invalid_grant", "error_description": "used"})}
        with pytest.raises(IdentityRejected, match="invalid_grant used"):
            await finish(provider)

    async def test_that_call_themselves_otherwise_are_refused(self, provider: OpenIdProvider, fake: FakeProvider, clock: Clock) -> None:
        fake.metadata = {"issuer": "https://id.example/"}
        for _ in range(3):
            with pytest.raises(IdentityProviderUnavailable, match="issuer in the provider"):
                await finish(provider)
        assert len(fake.requests) == 1, "anonymous callers cause one request in some seconds"
        clock.now += 11
        fake.metadata = {"token_endpoint": None}
        with pytest.raises(IdentityProviderUnavailable, match="no token_endpoint"):
            await finish(provider)

    async def test_that_cannot_be_reached_are_named(self, clock: Clock) -> None:
        def refuse(request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("refused", request=request)

        provider = OpenIdProvider(OpenIdOptions(ISSUER, "forge"), clock=clock, transport=httpx.MockTransport(refuse))
        with pytest.raises(IdentityProviderUnavailable, match=r"https://id\.example/.*does not respond: refused"):
            await finish(provider)
