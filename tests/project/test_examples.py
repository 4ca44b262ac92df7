"""Numbers of examples of laws under the profiles of hypothesis."""

import pytest
from hypothesis import settings

from tests.examples import examples


@pytest.mark.parametrize(("profile", "expected"), [("quick", 8), ("usual", 12), ("deep", 160), ("few", 6)])
def test_a_number_of_examples_follows_the_profile(profile: str, expected: int) -> None:
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        assert examples(40) == expected
        assert examples(1) >= 5
    finally:
        settings.load_profile(before)
