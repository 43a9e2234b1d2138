import asyncio
import re
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest
from argon2 import PasswordHasher
from cryptography.fernet import Fernet

from storage.secrets import InvalidKey, Passwords, TokenCipher, UndecryptableToken, digest_token, load_key, new_token


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    passwords = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    yield passwords
    passwords.close()


class TestPasswords:
    async def test_verifies_what_it_hashed(self, passwords: Passwords) -> None:
        hash = await passwords.hash("correct horse")

        assert hash.startswith("$argon2id$v=19$")
        assert await passwords.verify(hash, "correct horse")
        assert not await passwords.verify(hash, "Correct horse")

    async def test_default_cost_is_that_of_the_rfc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # The suite makes the default fast (tests/conftest.py).
        monkeypatch.setattr("storage.secrets.PasswordHasher", PasswordHasher)
        passwords = Passwords()
        hash = await passwords.hash("correct horse")

        assert hash.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
        assert await passwords.verify(hash, "correct horse")
        passwords.close()

    async def test_salts_every_hash(self, passwords: Passwords) -> None:
        assert await passwords.hash("same") != await passwords.hash("same")

    @pytest.mark.parametrize("hash", [None, "", "x", "$2b$12$notargon", "$argon2id$v=19$m=8,t=1,p=1$bad"])
    async def test_without_a_usable_hash_nothing_matches(self, passwords: Passwords, hash: str | None) -> None:
        assert not await passwords.verify(hash, "")
        assert not await passwords.verify(hash, "anything")

    @pytest.mark.parametrize("password", ["", "\x00", "pässword", "\ud800", "x" * 100_000])
    async def test_accepts_any_string(self, passwords: Passwords, password: str) -> None:
        assert await passwords.verify(await passwords.hash(password), password)

    @pytest.mark.parametrize("hash", [None, "not a hash"])
    async def test_an_absent_hash_costs_a_full_verification(self, hash: str | None) -> None:
        class Counting(PasswordHasher):
            verified: list[str] = []

            def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:
                self.verified.append(str(hash))
                return super().verify(hash, password)

        hasher = Counting(time_cost=1, memory_cost=16, parallelism=2)
        passwords = Passwords(hasher)

        assert not await passwords.verify(hash, "guess")
        passwords.close()

        real = hasher.hash("guess")
        assert hasher.verified[-1].split("$")[:4] == real.split("$")[:4]
        assert [len(part) for part in hasher.verified[-1].split("$")] == [len(part) for part in real.split("$")]

    async def test_at_most_two_hashes_run_concurrently_off_the_loop(self) -> None:
        running, most = 0, 0
        lock, both, gate = threading.Lock(), asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        class Slow(PasswordHasher):
            def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
                nonlocal running, most
                with lock:
                    running += 1
                    most = max(most, running)
                    if running == 2:
                        loop.call_soon_threadsafe(both.set)
                gate.wait(10)
                with lock:
                    running -= 1
                return "hash"

        passwords = Passwords(Slow(time_cost=1, memory_cost=8, parallelism=1))
        waiting = [asyncio.create_task(passwords.hash("x")) for _ in range(6)]
        await both.wait()
        gate.set()

        assert await asyncio.gather(*waiting) == ["hash"] * 6
        assert most == 2
        passwords.close()


class TestTokens:
    def test_are_twenty_url_safe_characters_and_never_repeat(self) -> None:
        tokens = {new_token() for _ in range(1000)}

        assert len(tokens) == 1000
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{20}", token) for token in tokens)

    def test_are_found_by_their_sha256(self) -> None:
        assert digest_token("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        assert re.fullmatch("[0-9a-f]{64}", digest_token("\ud800"))


class TestTokenCipher:
    def test_decrypts_what_it_encrypted(self) -> None:
        cipher = TokenCipher(Fernet.generate_key())
        token = new_token()

        text = cipher.encrypt(token)

        assert token not in text
        assert text != cipher.encrypt(token)
        assert cipher.decrypt(text) == token

    def test_knows_its_own_ciphertexts(self) -> None:
        key = Fernet.generate_key()
        text = TokenCipher(Fernet.generate_key()).encrypt("token")
        assert TokenCipher(key).matches(TokenCipher(key).encrypt("token"))
        assert not any(TokenCipher(key).matches(other) for other in ("", "nonsense", "gAAAAA", "é", text))

    @pytest.mark.parametrize("text", ["", "nonsense", "gAAAAA", "é"])
    def test_rejects_foreign_ciphertexts(self, text: str) -> None:
        with pytest.raises(UndecryptableToken):
            TokenCipher(Fernet.generate_key()).decrypt(text)

    def test_rejects_the_text_of_another_key(self) -> None:
        text = TokenCipher(Fernet.generate_key()).encrypt("token")

        with pytest.raises(UndecryptableToken):
            TokenCipher(Fernet.generate_key()).decrypt(text)

    def test_rejects_a_bad_key(self) -> None:
        with pytest.raises(InvalidKey):
            TokenCipher(b"short")


class TestLoadKey:
    def test_makes_a_private_file_once(self, tmp_path: Path) -> None:
        key = load_key(tmp_path, None)

        assert TokenCipher(key).decrypt(TokenCipher(load_key(tmp_path, None)).encrypt("token")) == "token"
        assert stat.S_IMODE((tmp_path / "secret.key").stat().st_mode) == 0o600
        assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]

    def test_concurrent_starts_share_one_key(self, tmp_path: Path) -> None:
        with ThreadPoolExecutor(8) as threads:
            keys = set(threads.map(lambda _: load_key(tmp_path, None), range(32)))

        assert len(keys) == 1

    def test_a_configured_key_overrides_the_file(self, tmp_path: Path) -> None:
        key = Fernet.generate_key()

        assert load_key(tmp_path, key.decode()) == key
        assert list(tmp_path.iterdir()) == []

    def test_accepts_both_alphabets_of_base64(self, tmp_path: Path) -> None:
        assert load_key(tmp_path, "+/" * 21 + "8=\n") == b"-_" * 21 + b"8="

    @pytest.mark.parametrize("key", ["", "password", "a" * 44, "é", "\ud800", "A" * 42 + "=="])
    def test_rejects_a_given_key_of_another_form_without_showing_it(self, tmp_path: Path, key: str) -> None:
        with pytest.raises(InvalidKey) as raised:
            load_key(tmp_path, key)

        assert not key or key not in str(raised.value)

    def test_never_replaces_a_damaged_file(self, tmp_path: Path) -> None:
        (tmp_path / "secret.key").write_bytes(b"")

        with pytest.raises(InvalidKey, match=r"secret\.key"):
            load_key(tmp_path, None)
        assert (tmp_path / "secret.key").read_bytes() == b""
