"""Spans of tokens that tags name by the scheme IOB2, and their counts."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from modyn_dagster.spec.tasks.objectives import IGNORED


class _Spans(NamedTuple):
    """Spans of texts: where one starts, the kind of each token (0 for none), and the last token of its span."""

    starts: Tensor
    kinds: Tensor
    lasts: Tensor


class SpanScheme:
    """Reading of spans from tags ``O``, ``B-<kind>`` and ``I-<kind>``, as that of the shared task CoNLL-2000.

    A span starts at ``B-``, and at ``I-`` after ``O`` or another kind; it lasts until the next start or ``O``. Tokens without a
    tag are left out before.

    Args:
        tags: names of the tags by number.

    >>> scheme = SpanScheme(["O", "B-PLACE", "I-PLACE"])
    >>> scheme.counts(torch.tensor([[1, 2, 0, 1]]), torch.tensor([[1, 2, 0, 0]]))
    tensor([[1, 2, 1]])
    """

    def __init__(self, tags: Sequence[str]) -> None:
        kinds = {kind: number for number, kind in enumerate(dict.fromkeys(tag[2:] for tag in tags if tag != "O"), 1)}
        self._kinds = torch.tensor([0 if tag == "O" else kinds[tag[2:]] for tag in tags])
        self._begin = torch.tensor([tag.startswith("B-") for tag in tags])

    def counts(self, predicted: Tensor, true: Tensor) -> Tensor:
        """Count right, predicted and true spans of each text, ``int64[n, 3]``.

        A span is right if one of the same kind is true for the same tokens.

        Args:
            predicted: numbers of tags, ``int64[n, length]``.
            true: the same, or ``IGNORED``.
        """
        has_tag = true != IGNORED
        # Tokens with a tag first, in their order.
        order = (~has_tag).to(torch.uint8).argsort(dim=1, stable=True)
        has_tag = has_tag.gather(1, order)
        found, expected = (self._spans(tags.gather(1, order), has_tag) for tags in (predicted, true))
        right = found.starts & expected.starts & (found.kinds == expected.kinds) & (found.lasts == expected.lasts)
        return torch.stack([right.sum(1), found.starts.sum(1), expected.starts.sum(1)], 1)

    def _spans(self, tags: Tensor, has_tag: Tensor) -> _Spans:
        known = tags.clamp(min=0)
        kinds = torch.where(has_tag, self._kinds.to(tags.device)[known], 0)
        begin = has_tag & self._begin.to(tags.device)[known]
        before, after = functional.pad(kinds[:, :-1], (1, 0)), functional.pad(kinds[:, 1:], (0, 1))
        starts = (kinds != 0) & (begin | (kinds != before))
        ends = (kinds != 0) & (functional.pad(begin[:, 1:], (0, 1)) | (kinds != after))
        length = tags.shape[1]
        places = torch.where(ends, torch.arange(length, device=tags.device), length)
        return _Spans(starts, kinds, places.flip(1).cummin(1).values.flip(1))
