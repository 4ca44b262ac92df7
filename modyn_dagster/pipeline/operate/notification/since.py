"""Moments from which on the channels of a pipeline are told of events, and their text, which cursors and runs carry."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

from modyn_dagster.spec.notification.channels import ChannelName
from modyn_dagster.values.moments import parse_moment

#: Moment from which on each channel is told; a channel without one is told nothing.
Since = Mapping[ChannelName, datetime]


def since_text(since: Since) -> str:
    """Write moments as a text that ``parse_since`` reads."""
    return json.dumps({channel: moment.isoformat() for channel, moment in since.items()})


def parse_since(text: str, channels: Sequence[ChannelName]) -> Since:
    """Read moments by channel, or a single one in ISO 8601 (UTC unless it names a zone), which is that of ``channels``.

    >>> parse_since("2026-03-31", ["hook"])
    {'hook': datetime.datetime(2026, 3, 31, 0, 0, tzinfo=datetime.timezone.utc)}
    """
    if not text.startswith("{"):
        return dict.fromkeys(channels, parse_moment(text))
    return {channel: parse_moment(moment) for channel, moment in json.loads(text).items()}
