"""Channels that are no function: a webhook, and a command of this machine."""

from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, field_validator, model_validator

from modyn_dagster.spec.base import Duration, Spec

ChannelName = Literal["hook", "webhook", "command"]

_ADDRESS: Final = "must be an address that begins with http:// or https://, such as https://example.org/events"
_SHOWN_TO_ALL: Final = (
    "must not have a user, a password, a query or a fragment, for specs are recorded and shown; sign with secret_file or "
    "secret_env, or send the event by a command"
)


class WebhookSpec(Spec):
    """An HTTP POST of the event as JSON to an address; signed as Standard Webhooks are where there is a secret."""

    url: str = Field(examples=["https://example.org/events"])
    secret_file: str | None = Field(
        None, description="Absolute path of a file with the secret of the signature, one line that not everybody may write."
    )
    secret_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = Field(
        None, description="Environment variable with that secret; with `_FILE` at its end it names a file."
    )
    timeout: Duration = Field("10s", description="Longest wait for the answer, from the connection to its status.")

    @field_validator("url")
    @classmethod
    def _is_an_address_without_secrets(cls, url: str) -> str:
        if "@" in url or "?" in url or "#" in url:
            raise ValueError(_SHOWN_TO_ALL)
        try:
            parts = urlsplit(url)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            raise ValueError(_ADDRESS)
        return url

    @field_validator("secret_file")
    @classmethod
    def _lies_outside_of_the_project(cls, path: str | None) -> str | None:
        if path is not None and not path.startswith("/"):
            raise ValueError("must be an absolute path: the file of a secret is no part of a project")
        return path

    @model_validator(mode="after")
    def _has_one_secret(self) -> Self:
        if self.secret_file is not None and self.secret_env is not None:
            raise ValueError("give secret_file or secret_env, not both; without either the request is not signed")
        return self

    @property
    def origin(self) -> str:
        """Scheme, host and port: the path may be the receiver's own secret, so that no log and no error shows it."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


def _check_word(word: str) -> str:
    if "\0" in word:
        raise ValueError("must not hold the character NUL")
    return word


_Word = Annotated[str, AfterValidator(_check_word)]


def _check_program(words: list[str]) -> list[str]:
    if not words[0].strip():
        raise ValueError("must begin with a program: its name on PATH, or a path from the project's folder or the root")
    return words


#: Program and arguments of a command.
Command = Annotated[
    list[_Word], Field(min_length=1, examples=[["notify-send", "modyn"], ["scripts/tell.sh"]]), AfterValidator(_check_program)
]
