"""User code of trainings in ranks."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from modyn_dagster.spec.learning.models import DistilBertSpec
from modyn_dagster.training.downsampling import Chosen, Pool
from modyn_dagster.training.models.text import DistilBert


class Front:
    """Chooses the first samples of a batch, which all fall to rank 0; the others get no sample of it."""

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        return Chosen.plain(torch.arange(k))


class ZeroBehind:
    """Chooses all samples of a batch, and gives those of the second half the weight 0."""

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        return Chosen(torch.arange(pool.n), (torch.arange(pool.n) < pool.n // 2).double(), estimates=False)


class Scattered:
    """Chooses by labels alone, back to front, with weights that estimate."""

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        indices = torch.arange(pool.n - 1, -1, -2)
        return Chosen(indices, torch.linspace(1, 3, len(indices), dtype=torch.float64), estimates=True)


def contrastive_loss() -> "ContrastiveLoss":
    return ContrastiveLoss()


class ContrastiveLoss(nn.Module):
    """Cross entropy, and the distance of a sample's outputs from the mean of all samples of its class in the batch."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        own = nn.functional.one_hot(targets, outputs.shape[1]).to(outputs.dtype)
        means = (own.T @ outputs) / own.sum(0).clamp(min=1)[:, None]
        return nn.functional.cross_entropy(outputs, targets, reduction="none") + (outputs - means[targets]).square().sum(1)


class DrawingLoss(nn.Module):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none") * torch.rand(())


def batch_normed(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, 4), nn.BatchNorm1d(4), nn.Linear(4, n_outputs))


def channels(n_features: int, n_outputs: int) -> nn.Module:
    """Drops whole channels of an image, whose memory is in another order, and single values."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 1, n_features)),
        nn.Conv2d(1, 6, 1).to(memory_format=torch.channels_last),  # type: ignore[call-overload]  # torch has no type for it
        nn.Dropout2d(0.3),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(6 * n_features, n_outputs),
    )


class Crosswise(nn.Module):
    """Drops values of inputs whose first axis counts the columns."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layer, self.dropout = nn.Linear(n_features, n_outputs), nn.Dropout(0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(self.dropout(inputs.T).T)
        return outputs


class Repeated(nn.Module):
    """Computes its layers once more in the backward pass."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, n_outputs), nn.Dropout(0.5))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = checkpoint(self.layers, inputs, use_reentrant=False)
        return outputs


class Attentive(nn.Module):
    """Reads the columns as a sequence: an encoder layer, two recurrent ones, attention and a function, all with dropout."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.start = nn.Linear(1, 4)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.3, batch_first=True)
        self.memory = nn.LSTM(4, 4, num_layers=2, dropout=0.3, batch_first=True)
        self.end = nn.Linear(4, n_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.encoder(self.start(inputs[:, :, None]))
        hidden = self.memory(hidden + self.attention(hidden, hidden, hidden)[0])[0]
        hidden = hidden + nn.functional.scaled_dot_product_attention(hidden, hidden, hidden, dropout_p=0.3 * self.training)
        outputs: Tensor = self.end(nn.functional.dropout(hidden.mean(1), 0.3, self.training))
        return outputs


class AttentiveAgain(Attentive):
    """Computes its attention once more in the backward pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.start(inputs[:, :, None])
        hidden, _ = checkpoint(self.attention, hidden, hidden, hidden, use_reentrant=False)
        outputs: Tensor = self.end(hidden.mean(1))
        return outputs


class Worded(nn.Module):
    """Reads rounded columns as words of a text."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        sizes = {"buckets": 16, "length": n_features, "layers": 1, "heads": 2, "width": 8, "hidden": 8, "dropout": 0.3}
        self.texts = DistilBert(DistilBertSpec(name="distilbert", **sizes), n_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.texts((inputs * 4).long().clamp(-7, 8) + 8)
        return outputs


def unfollowed(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, n_outputs))


class Counting(nn.Module):
    """Remembers the mean of what it has seen."""

    seen: Tensor

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(n_features, n_outputs)
        self.register_buffer("seen", torch.zeros(n_features), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen += inputs.mean(0)
        outputs: Tensor = self.layer(inputs)
        return outputs


class PartlyUsed(nn.Module):
    """Uses its second layer only for batches with a large first value, so that a rank may have no gradient for it."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layer, self.rare = nn.Linear(n_features, n_outputs), nn.Linear(n_features, n_outputs)
        self.never = nn.Linear(n_features, n_outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        rare = inputs[:, 0] > 1.5
        outputs: Tensor = self.layer(inputs)
        return outputs.index_add(0, rare.nonzero()[:, 0], self.rare(inputs[rare])) if rare.any() else outputs


class Routed(nn.Module):
    """Sends all samples to one of two equal layers, by their values."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(n_features, n_outputs) for _ in range(2))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.experts[int(inputs[:, 0].mean() > 0)](inputs)
        return outputs


class Sparse(nn.Module):
    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(2, n_outputs, sparse=True)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.rows((inputs[:, 0] > 0).long())
        return outputs


def jitter(features: Tensor, rng: object) -> Tensor:
    """A transform that draws by key."""
    return features + torch.from_numpy(rng.normal(size=features.shape)).to(features) * 0.1  # type: ignore[attr-defined]


def rounded(features: Tensor) -> Tensor:
    """Few different values."""
    return features.round()


class Scalar(nn.Module):
    """Has a weight without an axis."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(n_features, n_outputs), nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs)
        return outputs * self.scale


def scalar(n_features: int, n_outputs: int) -> nn.Module:
    return Scalar(n_features, n_outputs)


def tied_in_a_row(n_features: int, n_outputs: int) -> nn.Module:
    """Two layers that follow each other and have one weight."""
    first, second = nn.Linear(n_features, n_features), nn.Linear(n_features, n_features)
    second.weight = first.weight
    return nn.Sequential(first, nn.ReLU(), second, nn.Linear(n_features, n_outputs))
