"""Which model of a pipeline stands for it in each interval.

*Currently active* is what a deployment would have used: the newest model whose last training sample is strictly older
than the interval's anchor. *Currently trained* is the one that came next: trained on, or nearest to, the interval itself.
"""

import numpy as np
import numpy.typing as npt

Choice = npt.NDArray[np.int64]


def currently_active(train_ends: npt.ArrayLike, anchors: npt.ArrayLike) -> Choice:
    """Index of the active model per interval, ``int64[n]``; -1 where there is none yet.

    ``train_ends`` are the last training times of the models in the order they were trained, ``anchors`` those of the
    intervals; both are ``datetime64`` or numbers.

    >>> currently_active([10, 20, 30], [10, 11, 30, 31])
    array([-1,  0,  1,  2])
    """
    ends, at = np.asarray(train_ends), np.asarray(anchors)
    if len(ends) == 0:
        return np.full(len(at), -1, dtype=np.int64)
    # A late sample may give an earlier model a later end: among all that ended before the anchor the newest counts.
    by_end = np.argsort(ends, kind="stable")
    newest = np.concatenate([[-1], np.maximum.accumulate(by_end)])
    return newest[np.searchsorted(ends[by_end], at, side="left")].astype(np.int64)


def currently_trained(train_ends: npt.ArrayLike, anchors: npt.ArrayLike) -> Choice:
    """Index of the trained model per interval, ``int64[n]``: the one after the active one.

    The last model has none after it and stands for itself; where none is active yet it is the first; -1 without models.

    >>> currently_trained([10, 20, 30], [10, 11, 30, 31])
    array([0, 1, 2, 2])
    """
    n_models = len(np.asarray(train_ends))
    return np.minimum(currently_active(train_ends, anchors) + 1, n_models - 1)
