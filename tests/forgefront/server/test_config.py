"""Sources of configuration values, and messages for wrong ones."""

import os
import pickle
from pathlib import Path

import pytest

from forgefront.config import USUAL_URL_PATTERN, Config, ConfigError
from forgefront.settings.sign_in_settings import DIRECTORY_PREFIX
from storage.database.engine import driver_url
from storage.tables.accounts import identities


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FORGEFRONT_"):
            monkeypatch.delenv(name)


def config_errors(**given: object) -> str:
    with pytest.raises(ConfigError) as caught:
        Config.load(**given)
    return str(caught.value)


class TestSources:
    def test_defaults(self, tmp_path: Path) -> None:
        config = Config.load(data=tmp_path)
        assert config.database_url == f"sqlite:///{tmp_path}/forgefront.db"
        assert config.repositories == tmp_path / "repositories"
        assert config.base_url == "http://127.0.0.1:8080"
        assert (config.v3_profile, config.workers, config.log_format, config.metrics) == ("document", 1, "json", True)

    def test_arguments_override_environment_overrides_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "forgefront.toml").write_text('port = 1\nhost = "10.0.0.1"\nlog_level = "debug"\n')
        monkeypatch.setenv("FORGEFRONT_PORT", "2")
        monkeypatch.setenv("FORGEFRONT_HOST", "10.0.0.2")
        config = Config.load(data=tmp_path, port=3, host=None)
        assert (config.port, config.host, config.log_level) == (3, "10.0.0.2", "debug")

    def test_data_folder_from_environment_has_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "forgefront.toml").write_text("port = 7\n")
        monkeypatch.setenv("FORGEFRONT_DATA", str(tmp_path))
        assert Config.load().port == 7

    def test_named_file_may_choose_the_data_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (file := tmp_path / "here.toml").write_text(f'data = "{tmp_path}/elsewhere"\nhooks_allow_local = true\n')
        monkeypatch.setenv("FORGEFRONT_CONFIG", str(file))
        config = Config.load()
        assert config.data == tmp_path / "elsewhere"
        assert config.hooks_allow_local is True

    def test_empty_variable_counts_as_unset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_PORT", "")
        assert Config.load().port == 8080

    def test_lists_are_written_with_commas(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_TRUSTED_PROXIES", "10.0.0.0/8, ::1")
        assert Config.load().trusted_proxies == ("10.0.0.0/8", "::1")

    def test_is_picklable(self, tmp_path: Path) -> None:
        config = Config.load(data=tmp_path, secret_key="k" * 43 + "=")
        assert pickle.loads(pickle.dumps(config)) == config


class TestInvalidSettings:
    def test_unknown_key_in_the_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "forgefront.toml").write_text('prot = 80\nextrenal_url = "http://x"\nzzz = 1\n')
        text = config_errors(data=tmp_path)
        assert "unknown key prot; did you mean port?" in text
        assert "unknown key extrenal_url; did you mean external_url?" in text
        assert "unknown key zzz" in text
        assert str(tmp_path / "forgefront.toml") in text

    def test_unknown_variables_are_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith("FORGEFRONT_")]:
            monkeypatch.delenv(name)
        for name in ("DATABSE_URL", "ZZZ", "PORT", "CONFIG", "RUNNER_TOKEN"):
            monkeypatch.setenv(f"FORGEFRONT_{name}", str(tmp_path / "file") if name == "CONFIG" else "80")
        monkeypatch.setenv("FORGEFRONT_EMPTY", "")
        assert Config.describe_unknown_variables() == [
            "FORGEFRONT_DATABSE_URL is no setting and has no effect; did you mean FORGEFRONT_DATABASE_URL?",
            "FORGEFRONT_ZZZ is no setting and has no effect",
        ]

    def test_broken_file(self, tmp_path: Path) -> None:
        (tmp_path / "forgefront.toml").write_text("port = = 3\n")
        assert str(tmp_path / "forgefront.toml") in config_errors(data=tmp_path)

    def test_missing_named_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORGEFRONT_CONFIG", str(tmp_path / "absent.toml"))
        assert "FORGEFRONT_CONFIG: there is no file" in config_errors()

    def test_a_file_cannot_move_the_folder_it_lies_in(self, tmp_path: Path) -> None:
        (tmp_path / "forgefront.toml").write_text('data = "/elsewhere"\n')
        assert "data cannot be set" in config_errors(data=tmp_path)

    def test_an_empty_name_of_the_file_counts_as_unset(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "forgefront.toml").write_text('data = "/elsewhere"\n')
        monkeypatch.setenv("FORGEFRONT_CONFIG", "")
        monkeypatch.setenv("FORGEFRONT_DATA", str(tmp_path))
        assert "data cannot be set" in config_errors()

    def test_error_names_the_source_of_the_value(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "forgefront.toml").write_text('log_format = "xml"\n')
        monkeypatch.setenv("FORGEFRONT_PORT", "many")
        text = config_errors(data=tmp_path, v3_profile="gitlab-9")
        assert f"{tmp_path}/forgefront.toml: log_format: input should be 'json' or 'text'" in text
        assert "FORGEFRONT_PORT: input should be a valid integer" in text
        assert "v3_profile: input should be 'document' or 'gitlab-8.5'" in text

    @pytest.mark.parametrize(
        "url",
        ["mysql://u:hunter2@h/d", "nonsense hunter2", "sqlite://", "sqlite:///:memory:", "postgresql://u:hunter2@h:port/d"],
    )
    def test_wrong_database_never_shows_its_password(self, url: str) -> None:
        text = config_errors(database_url=url)
        assert text.startswith("database_url: must ")
        assert "hunter2" not in text

    @pytest.mark.parametrize(
        "url", ["forge.example.com", "ftp://x", "http://", "http://u:p@x", "http://x/?a=1", "http://x/#a", "http://x/a,b"]
    )
    def test_external_url_must_be_plain(self, url: str) -> None:
        assert config_errors(external_url=url).startswith("external_url: must ")

    @pytest.mark.parametrize("template", ["ftp://x/{id}", "https://x/{mail}", "https://x/{", "https://x/{0}", "https://x/{id.real.x}"])
    def test_avatar_template(self, template: str) -> None:
        assert config_errors(avatar_url_template=template).startswith("avatar_url_template: m")

    def test_several_processes_need_postgresql(self) -> None:
        assert "workers: 2 processes need PostgreSQL" in config_errors(workers=2)
        assert Config.load(workers=2, database_url="postgresql://h/d").workers == 2

    @pytest.mark.parametrize("key", ["short-hunter2", "hunter2" * 8, ""])
    def test_unusable_key(self, key: str) -> None:
        text = config_errors(secret_key=key)
        assert text == "secret_key: must be 32 bytes in base64, as `openssl rand -base64 32` prints them"


class TestDatabaseUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "sqlite:////srv/forge/a b.db",
            "postgresql://u:p@h.example:5432/d",
            "postgres:///d?host=/run/postgresql&user=u",
            "postgresql://u:@h/d",
        ],
    )
    def test_usual_ones_are_valid_without_sqlalchemy(self, url: str) -> None:
        assert USUAL_URL_PATTERN.fullmatch(url)
        assert driver_url(url).database
        assert Config.load(database_url=url).database_url == url


class TestRepr:
    def test_secrets_are_not_in_the_repr(self) -> None:
        config = Config.load(database_url="postgresql://u:hunter2@h/d", secret_key="hunter2hunter2" * 3 + "a=")
        assert "hunter2" not in repr(config) + str(config)

    @pytest.mark.parametrize(
        ("settings", "url"),
        [
            ({"host": "0.0.0.0", "port": 80}, "http://localhost:80"),
            ({"host": "::1"}, "http://[::1]:8080"),
            ({"external_url": "https://forge.example.com/git/"}, "https://forge.example.com/git"),
        ],
    )
    def test_base_url(self, settings: dict[str, object], url: str) -> None:
        assert Config.load(**settings).base_url == url


class TestSignIn:
    def test_is_read_from_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        values = {
            "LDAP_URL": "ldaps://one.example, ldaps://two.example:6636",
            "LDAP_BASE": "ou=people,dc=example",
            "LDAP_BIND_PASSWORD": "hush-directory",
            "LDAP_LOGIN_ATTRIBUTES": "uid,mail",
            "LDAP_GROUPS": "Tools:developer=cn=devs,ou=groups,dc=example; tools:master=cn=a=b,dc=example;",
            "LDAP_SYNC_MINUTES": "5",
            "OIDC_ISSUER": "https://id.example/realms/main",
            "OIDC_CLIENT_ID": "forge",
            "OIDC_CLIENT_SECRET": "hush-client",
            "OIDC_GROUPS": "tools:guest=/a b",
            "OIDC_ADMIN_GROUP": "/roots",
        }
        for name, value in values.items():
            monkeypatch.setenv(f"FORGEFRONT_{name}", value)
        config = Config.load(data=tmp_path)
        directory, provider = config.open_directory(), config.open_openid_provider()
        assert directory is not None and provider is not None
        directory.close()
        assert directory.options.server.urls == ("ldaps://one.example", "ldaps://two.example:6636")
        assert (directory.options.login_attributes, directory.options.sync_seconds) == (("uid", "mail"), 300)
        grants = [(grant.group_path, grant.level.name, grant.external_group) for grant in directory.policy.mapping.grants]
        assert grants == [("tools", "DEVELOPER", "cn=devs,ou=groups,dc=example"), ("tools", "MASTER", "cn=a=b,dc=example")]
        assert provider.policy.mapping.external_groups == ("/a b", "/roots")
        assert provider.policy.mapping.levels({"/a b"}) == {"tools": 10}
        assert "hush" not in repr((config, directory.options, provider.options))

    def test_is_off_by_default(self, tmp_path: Path) -> None:
        config = Config.load(data=tmp_path)
        assert (config.open_directory(), config.open_openid_provider()) == (None, None)
        assert DIRECTORY_PREFIX == identities.DIRECTORY_PREFIX

    def test_mistakes_are_explained(self, tmp_path: Path) -> None:
        directory = {"data": tmp_path, "ldap_url": "ldap://a.example", "ldap_base": "dc=example"}
        mistakes = {
            "must be ldaps://HOST": {"ldap_url": "http://a.example"},
            "set FORGEFRONT_LDAP_BASE": {"ldap_base": ""},
            "is encrypted already": {"ldap_url": "ldaps://a.example", "ldap_start_tls": True},
            "must be a filter in parentheses": {"ldap_user_filter": "objectClass=person"},
            "must begin with ldap": {"ldap_provider": "corp"},
            "must be names of attributes": {"ldap_login_attributes": "uid)(x"},
            "levels are guest, reporter, developer, master, owner": {"ldap_groups": "tools:king=cn=devs"},
            "must begin with https://": {"oidc_issuer": "http://id.example", "oidc_client_id": "x"},
            "set FORGEFRONT_OIDC_CLIENT_ID": {"oidc_issuer": "https://id.example"},
            "must contain openid": {"oidc_scopes": "profile"},
            "must not begin with ldap": {"oidc_provider": "ldapmain"},
        }
        for message, values in mistakes.items():
            assert message in config_errors(**{**directory, **values}), message
        config = Config.load(**directory, ldap_ca_file=tmp_path / "absent.pem")
        with pytest.raises(ValueError, match="there is no file"):
            config.open_directory()
