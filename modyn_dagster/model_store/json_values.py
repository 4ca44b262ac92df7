"""Values that come back from JSON as they went in: no tuples, no sets, no NaN, texts as keys and nothing that is not Unicode."""

import json

from modyn_dagster.errors import NotJson


def require_json(source: str, field: str, value: object) -> None:
    """``NotJson`` names the field whose value would come back as another one, or not at all."""
    rule = "must be made of values of JSON: lists, not tuples, texts as keys"
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        # What nests too deep cannot be shown either.
        shown = type(value).__name__ if isinstance(error, RecursionError) else value
        raise NotJson(source, field, shown, f"{rule}: {error}") from error
    if json.loads(text) != value:
        raise NotJson(source, field, value, rule)
