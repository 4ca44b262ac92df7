"""Page of the versions of a registered model, within what MLflow stores of it."""

from datetime import UTC, datetime, timedelta

import pytest

from modyn_dagster.reporting.mlflow.registry.versions import MOST_IN_DESCRIPTION, LiveVersion, versions_page


@pytest.mark.parametrize("n", [0, 3, 100])
def test_the_newest_versions_are_listed_as_far_as_there_is_room(n: int) -> None:
    since = datetime(2024, 1, 1, 12, 30, 15, 250, tzinfo=UTC)
    lives = [LiveVersion("p", i + 1, f"r000012-{i:06d}", "0123456789abcdef", since + timedelta(hours=i)) for i in range(n)]
    page = versions_page(lives, "p")
    assert len(page) <= MOST_IN_DESCRIPTION
    assert page.count("r000012-") == n if n < 100 else 30 < page.count("r000012-") < n
    if n:
        assert f"r000012-{n - 1:06d}" in page
