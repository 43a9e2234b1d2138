"""The part of the configuration that says which objects are in buckets, and how S3 is reached."""

import re
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings

BUCKET_PATTERN = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?")


class BucketSettings(BaseSettings):
    """Buckets, and the access to S3. `Config` inherits these fields."""

    artifacts_url: str = Field(
        default="", description="s3://BUCKET/PREFIX stores artifacts and traces in S3; by default they are in the folder artifacts."
    )
    repositories_url: str = Field(
        default="",
        description="s3://BUCKET/PREFIX stores repositories in S3, and the folder repositories has copies; by default only the folder has"
        " them.",
    )
    repository_cache: int = Field(
        default=10_240,
        ge=1,
        le=100_000_000,
        description="Size of the copies of repositories on this host, in MB, if repositories_url is set. Copies that are in use may exceed"
        " it.",
    )
    uploads_url: str = Field(
        default="", description="s3://BUCKET/PREFIX stores files attached to notes in S3; by default they are in the folder uploads."
    )
    s3_endpoint: str = Field(default="", description="The endpoint of an S3-compatible server; by default from AWS_*, or Amazon's.")
    s3_region: str = Field(default="", description="The region of the bucket; by default from AWS_*.")
    s3_access_key_id: str = Field(default="", repr=False, description="The access key id for S3; by default from AWS_*.")
    s3_secret_access_key: SecretStr | None = Field(default=None, description="The secret access key for S3; by default from AWS_*.")

    @field_validator("artifacts_url", "repositories_url", "uploads_url")
    @classmethod
    def _validate_bucket_url(cls, url: str) -> str:
        if url and not BUCKET_PATTERN.fullmatch(url):
            raise ValueError("must be an address such as s3://bucket or s3://bucket/prefix")
        return url.rstrip("/")

    @field_validator("s3_endpoint")
    @classmethod
    def _validate_s3_endpoint(cls, url: str) -> str:
        if url and not url.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return url

    @model_validator(mode="after")
    def _require_different_buckets(self) -> Self:
        urls = [url for url in (self.artifacts_url, self.repositories_url, self.uploads_url) if url]
        if len(set(urls)) < len(urls):
            raise ValueError("artifacts_url, repositories_url and uploads_url must differ: what one does not know is deleted from it")
        return self

    @property
    def s3_settings(self) -> dict[str, str]:
        """The settings of S3 in this configuration, by obstore's names."""
        secret = self.s3_secret_access_key.get_secret_value() if self.s3_secret_access_key else ""
        settings = {
            "endpoint": self.s3_endpoint,
            "region": self.s3_region,
            "access_key_id": self.s3_access_key_id,
            "secret_access_key": secret,
        }
        return {name: value for name, value in settings.items() if value}
