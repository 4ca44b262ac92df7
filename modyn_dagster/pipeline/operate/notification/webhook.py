"""Webhook: an event as an HTTP POST, signed as Standard Webhooks are."""

import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Final

import requests

from modyn_dagster import __version__
from modyn_dagster.bounded_call import BoundedCall, StillGoing
from modyn_dagster.errors import ChannelAway, DeliveryRefused, NotDelivered
from modyn_dagster.pipeline.event import Event, event_json
from modyn_dagster.pipeline.operate.notification.signature import signed_headers, webhook_key
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.notification.channels import ChannelName, WebhookSpec

#: Refusals that pass: the receiver was too slow for the request, the request came too early, or too many came.
_PASSING: Final = (408, 425, 429)
#: Answers of a receiver that would give them to other events as well.
_BUSY: Final = (429, 503)


class Webhook:
    """Channel that posts events to an address."""

    name: Final[ChannelName] = "webhook"

    def __init__(self, spec: WebhookSpec, *, source: str) -> None:
        self._spec, self._source = spec, source

    @property
    def target(self) -> str:
        """Origin of the address."""
        return self._spec.origin

    def deliver(self, event: Event, event_id: str, within: float) -> None:
        """Post an event and wait for the status of the answer.

        Args:
            event: sent as JSON.
            event_id: equal at every try of one event, so that the receiver can drop repetitions.
            within: seconds to wait at most, if that is less than the timeout of the spec.

        Raises:
            ChannelAway: no connection, no answer in time, or an answer that asks to wait.
            DeliveryRefused: an answer that would be the same at the next try.
            NotDelivered: any other answer but success.
            ConfigError: the secret cannot be read.
        """
        body = event_json(event).encode()
        headers = {
            "content-type": "application/json",
            "user-agent": f"modyn-dagster/{__version__}",
            "modyn-event": _header(event.name),
            "modyn-event-kind": event.kind,
            **signed_headers(webhook_key(self._spec, self._source), event_id, int(time.time()), body),
        }
        seconds = min(float(seconds_of(self._spec.timeout)), within)
        # Bounded as a whole: a name server that is silent and an answer that trickles know no other limit.
        call = BoundedCall("webhook", partial(self._post, body, headers, seconds))
        try:
            status = call.result(within=seconds)
        except StillGoing:
            raise self._silence(seconds) from None
        self._judge(status)

    def _post(self, body: bytes, headers: Mapping[str, str], seconds: float) -> int:
        with requests.Session() as session:
            # Passwords of ~/.netrc are not meant for it.
            session.auth = _as_it_is
            try:
                with session.post(
                    self._spec.url, data=body, headers=headers, timeout=seconds, allow_redirects=False, stream=True
                ) as response:
                    return response.status_code
            # Without the errors, which show the whole address.
            except requests.Timeout:
                raise self._silence(seconds) from None
            except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
                raise ChannelAway(self.name, self.target, f"cannot be reached: {_innermost(error)}") from None
            except requests.RequestException as error:
                raise NotDelivered(self.name, self.target, f"cannot be asked: {type(error).__name__}") from None

    def _silence(self, seconds: float) -> ChannelAway:
        return ChannelAway(self.name, self.target, f"has not answered within {seconds:.3g} seconds")

    def _judge(self, status: int) -> None:
        if 200 <= status < 300:
            return
        answer = f"answers {status}{_phrase(status)}"
        if 300 <= status < 400:
            raise DeliveryRefused(
                self.name, self.target, f"{answer}: redirects are not followed; name the address that takes events"
            )
        if 400 <= status < 500 and status not in _PASSING:
            raise DeliveryRefused(self.name, self.target, f"{answer}, and would at every try")
        raise (ChannelAway if status in _BUSY else NotDelivered)(self.name, self.target, answer)


def _as_it_is(prepared: requests.PreparedRequest) -> requests.PreparedRequest:
    return prepared


def _header(text: str) -> str:
    """A text in the characters of headers: metrics may have names in other alphabets."""
    return text.encode("ascii", "backslashreplace").decode()


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _innermost(error: BaseException) -> str:
    """Reason of the system for a connection that failed."""
    while (before := error.__cause__ or error.__context__) is not None:
        error = before
    return getattr(error, "strerror", None) or type(error).__name__
