"""The block ``notify``: at least one channel, addresses without passwords, secrets by their place alone."""

from typing import Any

import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.notification.notify import NotifySpec
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.projects.tiny import amount

URL = "https://example.org/events"


def parse(**fields: Any) -> NotifySpec:
    return parse_spec(fields, NotifySpec, source="shop.yaml")


def webhook(**fields: Any) -> NotifySpec:
    return parse(webhook={"url": URL} | fields)


@pytest.mark.parametrize(
    ("fields", "channels"),
    [
        ({"hook": "tests.pipeline.hooks:hook"}, ["hook"]),
        ({"webhook": {"url": URL}}, ["webhook"]),
        ({"command": ["true"]}, ["command"]),
        ({"hook": "tests.pipeline.hooks:hook", "command": ["true"], "webhook": {"url": URL}}, ["webhook", "command", "hook"]),
    ],
)
def test_each_channel_may_be_alone_and_all_may_be_together(fields: dict[str, Any], channels: list[str]) -> None:
    assert parse(**fields).channels == channels


def test_nobody_to_tell_is_an_error() -> None:
    with pytest.raises(ConfigError, match="give at least one of hook, webhook and command"):
        parse(score_below={"metric": "accuracy", "floor": 0.5})


def test_a_spec_with_a_hook_alone_is_written_as_before_there_were_other_channels() -> None:
    written = {"hook": "tests.pipeline.hooks:hook", "score_below": None, "score_above": None, "max_run_time": "10m"}
    assert parse(hook="tests.pipeline.hooks:hook").model_dump(mode="json") == written


def test_channels_are_no_part_of_what_a_pipeline_does() -> None:
    blocks: list[dict[str, Any]] = [{}, {"notify": {"webhook": {"url": URL}}}, {"notify": {"command": ["true"]}}]
    assert len({spec_hash(parse_spec(amount(**block), PipelineSpec, source="test")) for block in blocks}) == 1


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        (URL, "https://example.org"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/a/b", "http://[::1]:8080"),
    ],
)
def test_an_address_is_shown_without_its_path(url: str, origin: str) -> None:
    spec = webhook(url=url).webhook
    assert spec is not None
    assert spec.origin == origin


@pytest.mark.parametrize(
    "url",
    ["https://ann:geheim@example.org/", "https://ann@example.org/", "https://example.org/?token=geheim", f"{URL}#geheim"],
)
def test_an_address_with_a_user_a_password_a_query_or_a_fragment_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"webhook\.url: must not have a user, a password, a query") as caught:
        webhook(url=url)
    assert "geheim" not in str(caught.value).replace(url if "#" in url else "", "")


@pytest.mark.parametrize(
    "url",
    [
        "example.org/events",
        "ftp://example.org/events",
        "file:///etc/passwd",
        "https://",
        "https:///events",
        "https://example.org:port/",
        "https://example.org:70000/",
        "https://example.org:0/",
        "http://[::1",
        "https://example.org/two words",
        "https://example.org/\nline",
        "https://exämple.org/",
        "https:\\\\example.org",
    ],
)
def test_anything_but_an_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"webhook\.url: must be an address that begins with http:// or https://"):
        webhook(url=url)


def test_two_secrets_are_refused_and_neither_place_is_shown() -> None:
    with pytest.raises(ConfigError, match=r"webhook: give secret_file or secret_env, not both") as caught:
        webhook(secret_file="/run/secrets/shop", secret_env="SHOP_SECRET")
    assert "SHOP_SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        ("secret_file", "must be an absolute path"),
        ("secret_env", "String should match pattern"),
        ("secret", r"is not a field here \(did you mean secret_env\?\)|is not a field here"),
    ],
)
def test_a_secret_in_the_place_of_its_place_is_refused_and_not_shown(field: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rf"webhook\.{field}: (?:{rule})") as caught:
        webhook(**{field: "geheim-wie-nichts"})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ([], "at least 1 item"),
        ([" "], "must begin with a program"),
        ("notify-send modyn", "valid list"),
        (["true", 5], "valid string"),
        (["true", "a\0b"], "must not hold the character NUL"),
    ],
)
def test_a_command_that_nothing_could_run_is_refused(command: object, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        parse(command=command)


@pytest.mark.parametrize("timeout", ["0s", "10", "soon"])
def test_a_timeout_is_a_duration(timeout: str) -> None:
    with pytest.raises(ConfigError, match=r"webhook\.timeout: must be a whole number and a unit"):
        webhook(timeout=timeout)
