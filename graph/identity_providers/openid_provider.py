"""Signing in with OpenID Connect: authorization code flow with PKCE (OpenID Connect Core 1.0, RFC 7636, RFC 9207).

The metadata of the provider and its keys are cached. A key that is not known is looked for once more, so that a provider may rotate its
keys at any time.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import httpx
from authlib.common.errors import AuthlibBaseError
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from authlib.oidc.discovery import get_well_known_url
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet

from graph.identity_providers.people import AccountPolicy, ExternalPerson, IdentityProviderUnavailable, IdentityRejected

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with public keys only: a token must not choose an unsigned one, nor one with the client secret as its key."""
CACHE_SECONDS = 3600.0
MIN_REFRESH_SECONDS = 10.0
"""Seconds between two requests for the keys, however many tokens have unknown keys."""
LEEWAY_SECONDS = 60
TIMEOUT_SECONDS = 8.0
MAX_RESPONSE_BYTES = 2**20
MAX_CONCURRENT_SIGN_INS = 8


@dataclass(frozen=True)
class OpenIdOptions:
    """`issuer` is the URL of the provider. `groups_claim` and `username_claim` are claims of the ID token or the userinfo endpoint."""

    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    provider: str = "openid_connect"
    label: str = "OpenID Connect"
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    username_claim: str = "preferred_username"
    groups_claim: str = "groups"
    policy: AccountPolicy = field(default_factory=AccountPolicy)


class OpenIdProvider:
    """The provider of the configuration. Its methods raise IdentityProviderUnavailable."""

    def __init__(
        self, options: OpenIdOptions, *, clock: Callable[[], float] = time.time, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.options = options
        self._clock = clock
        self._transport = transport
        self._http: httpx.AsyncClient | None = None
        self._metadata: tuple[float, Mapping[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._failure: tuple[float, str] | None = None
        self._lock = asyncio.Lock()
        self._sign_ins = asyncio.Semaphore(MAX_CONCURRENT_SIGN_INS)

    @property
    def policy(self) -> AccountPolicy:
        return self.options.policy

    async def authorization_url(self, redirect_uri: str, *, state: str, nonce: str, code_verifier: str) -> str:
        """Where the browser goes to sign in."""
        challenge = {"code_challenge": create_s256_code_challenge(code_verifier), "code_challenge_method": "S256"}
        endpoint, scope = (await self.metadata())["authorization_endpoint"], list(self.options.scopes)
        url = prepare_grant_uri(
            endpoint, self.options.client_id, "code", redirect_uri=redirect_uri, scope=scope, state=state, nonce=nonce, **challenge
        )
        return str(url)

    async def sign_out_url(self, return_url: str) -> str | None:
        """Where the browser goes to sign out of the provider too (OpenID Connect RP-Initiated Logout 1.0); None if it has no such page."""
        endpoint = (await self.metadata()).get("end_session_endpoint")
        if not endpoint:
            return None
        parameters = {"client_id": self.options.client_id, "post_logout_redirect_uri": return_url}
        return str(httpx.URL(str(endpoint)).copy_merge_params(parameters))

    async def finish(self, redirect_uri: str, code: str, *, nonce: str, code_verifier: str, issuer: str | None = None) -> ExternalPerson:
        """The person for whom the provider issued this code. `issuer` is that of the authorization response, if it names one.

        Raises IdentityRejected.
        """
        if issuer is not None and issuer != self.options.issuer:
            raise IdentityRejected(f"the response is from {issuer}")
        async with self._sign_ins:
            tokens = await self._exchange(redirect_uri, code, code_verifier)
            claims = await self._validate_id_token(str(tokens.get("id_token") or ""), nonce, str(tokens.get("access_token") or ""))
            return self._person(await self._add_userinfo(claims, tokens))

    async def metadata(self) -> Mapping[str, Any]:
        """The metadata of the provider (OpenID Connect Discovery 1.0). After a failure they are not requested again for some seconds,
        because anonymous callers cause these requests."""
        async with self._lock:
            if self._metadata is None or self._clock() - self._metadata[0] > CACHE_SECONDS:
                if self._failure is not None and self._clock() - self._failure[0] < MIN_REFRESH_SECONDS:
                    raise IdentityProviderUnavailable(self._failure[1])
                try:
                    found = await self._load_metadata()
                except IdentityProviderUnavailable as error:
                    self._failure = self._clock(), str(error)
                    raise
                self._metadata, self._failure = (self._clock(), found), None
            return self._metadata[1]

    async def _load_metadata(self) -> Mapping[str, Any]:
        found = await self._get_json(get_well_known_url(self.options.issuer, external=True))
        if found.get("issuer") != self.options.issuer:
            raise IdentityProviderUnavailable(
                f"the issuer in the provider's metadata is {found.get('issuer')}, not {self.options.issuer};"
                " set FORGEFRONT_OIDC_ISSUER to it"
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(found.get(name), str):
                raise IdentityProviderUnavailable(f"the metadata of the provider has no {name}")
        return found

    async def keys(self, *, refresh: bool = False) -> KeySet:
        """The public keys of the provider; `refresh` requests them again if they are older than MIN_REFRESH_SECONDS."""
        max_age = MIN_REFRESH_SECONDS if refresh else CACHE_SECONDS
        url = (await self.metadata())["jwks_uri"]
        async with self._lock:
            if self._keys is None or self._clock() - self._keys[0] > max_age:
                found = await self._get_json(url)
                try:
                    self._keys = self._clock(), KeySet.import_key_set(found)  # type: ignore[arg-type]
                except (JoseError, LookupError, TypeError, ValueError) as error:
                    raise IdentityProviderUnavailable(f"the keys of the provider cannot be read: {error}") from None
            return self._keys[1]

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def _exchange(self, redirect_uri: str, code: str, code_verifier: str) -> Mapping[str, Any]:
        """The tokens for an authorization code. Raises IdentityRejected."""
        metadata, options = await self.metadata(), self.options
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        parameters, auth = {"client_id": options.client_id}, None
        if options.client_secret and "client_secret_basic" in methods:
            # Both are encoded as in a form first (RFC 6749, section 2.3.1).
            parameters, auth = {}, httpx.BasicAuth(quote_plus(options.client_id), quote_plus(options.client_secret))
        elif options.client_secret:
            parameters["client_secret"] = options.client_secret
        body = prepare_token_request("authorization_code", "", redirect_uri, code=code, code_verifier=code_verifier, **parameters)
        request = self._client().build_request(
            "POST", metadata["token_endpoint"], content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
        )
        status, tokens = await self._send(request, auth)
        if status != httpx.codes.OK or "error" in tokens:
            error = " ".join(str(tokens.get(name, "")) for name in ("error", "error_description")).strip()
            raise IdentityRejected(f"the provider refuses the code: {error or f'status {status}'}")
        return tokens

    async def _validate_id_token(self, id_token: str, nonce: str, access_token: str) -> dict[str, Any]:
        """The claims of a valid ID token (OpenID Connect Core 1.0, section 3.1.3.7). Raises IdentityRejected."""
        try:
            try:
                token = jwt.decode(id_token, await self.keys(), algorithms=ALGORITHMS)
            except (InvalidKeyIdError, BadSignatureError):
                token = jwt.decode(id_token, await self.keys(refresh=True), algorithms=ALGORITHMS)
            expected = {
                "iss": {"essential": True, "value": self.options.issuer},
                "aud": {"essential": True, "value": self.options.client_id},
            }
            parameters = {"nonce": nonce, "client_id": self.options.client_id, "access_token": access_token}
            CodeIDToken(token.claims, token.header, expected, parameters).validate(int(self._clock()), leeway=LEEWAY_SECONDS)
        except JoseError as error:
            raise IdentityRejected(f"the ID token is not valid: {error}") from None
        except (AuthlibBaseError, LookupError, TypeError, ValueError) as error:
            raise IdentityRejected(f"the ID token cannot be read: {type(error).__name__}") from None
        return dict(token.claims)

    async def _add_userinfo(self, claims: dict[str, Any], tokens: Mapping[str, Any]) -> dict[str, Any]:
        """The claims, with those that only the userinfo endpoint returns."""
        endpoint = (await self.metadata()).get("userinfo_endpoint")
        required_claims = {
            "email",
            "name",
            self.options.username_claim,
            self.options.groups_claim if self.policy.mapping.external_groups else "email",
        }
        if not endpoint or not tokens.get("access_token") or required_claims <= claims.keys():
            return claims
        found = await self._get_json(str(endpoint), {"Authorization": f"Bearer {tokens['access_token']}"})
        if found.get("sub") != claims["sub"]:
            raise IdentityRejected("the userinfo endpoint describes somebody else")
        return {**found, **claims}

    def _person(self, claims: Mapping[str, Any]) -> ExternalPerson:
        options = self.options
        subject, email = claims.get("sub"), claims.get("email")
        if not isinstance(subject, str) or not subject:
            raise IdentityRejected("the ID token has no subject")
        email = email.strip().lower() if isinstance(email, str) and email.strip() else None
        username = claims.get(options.username_claim)
        if not isinstance(username, str) or not username:
            username = (email or subject).partition("@")[0]
        groups = claims.get(options.groups_claim)
        names = {str(group) for group in groups} if isinstance(groups, list) else {groups} if isinstance(groups, str) else set()
        return ExternalPerson(
            provider=options.provider,
            uid=subject,
            username=username,
            name=str(claims.get("name") or username),
            email=email,
            has_verified_email=email is not None and claims.get("email_verified") is True,
            groups=frozenset(names & set(self.policy.mapping.external_groups)),
        )

    async def _get_json(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        try:
            request = self._client().build_request("GET", url, headers=headers)
        except httpx.InvalidURL as error:
            raise IdentityProviderUnavailable(f"{url} is not a URL: {error}") from None
        status, found = await self._send(request)
        if status != httpx.codes.OK:
            raise IdentityProviderUnavailable(f"{url} responds with status {status}")
        return found

    async def _send(self, request: httpx.Request, auth: httpx.Auth | None = None) -> tuple[int, dict[str, Any]]:
        """The status and the object of a response. Redirects are not followed."""
        url = request.url
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                response = await self._client().send(request, auth=auth, stream=True)
                try:
                    body = b""
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > MAX_RESPONSE_BYTES:
                            raise IdentityProviderUnavailable(f"the response of {url} is too large")
                finally:
                    await response.aclose()
            found = httpx.Response(200, content=body).json()
        except (httpx.HTTPError, TimeoutError) as error:
            raise IdentityProviderUnavailable(f"{url} does not respond: {str(error) or type(error).__name__}") from None
        except ValueError:
            raise IdentityProviderUnavailable(f"the response of {url} is not JSON (status {response.status_code})") from None
        if not isinstance(found, dict):
            raise IdentityProviderUnavailable(f"the response of {url} is not an object")
        return response.status_code, found

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            # SSL_CERT_FILE and SSL_CERT_DIR may add certificate authorities. Proxies of the environment are not used.
            self._http = httpx.AsyncClient(
                timeout=TIMEOUT_SECONDS, trust_env=False, transport=self._transport, verify=httpx.create_ssl_context()
            )
        return self._http
