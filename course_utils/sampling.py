"""Which example comes next: the order of an epoch as a function of (seed, epoch), for any rank, from any position.

It knows indices only: no images, no workers, no loader.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

from course_utils.randomness import BatchKey, derive_seed

__all__ = ["BatchKey", "EpochBatches", "class_balanced_weights", "undersample"]


def class_balanced_weights(targets: Sequence[int] | torch.Tensor) -> torch.Tensor:
    """A weight for each *example*, so that every class is drawn equally often in expectation.

    targets : int (N,), the class of each example
    returns : float64 (N,), 1 / (examples of that class)
    raises  : ValueError unless targets are one-dimensional integers, at least one

    One weight a class would be accepted by a sampler too, and would draw the first examples only.
    """
    _, inverse, counts = torch.unique(_checked_targets(targets), return_inverse=True, return_counts=True)
    return 1.0 / counts[inverse].double()


def undersample(targets: Sequence[int] | torch.Tensor, *, seed: int, epoch: int = 0) -> torch.Tensor:
    """A part of the examples in which every class has as many as the rarest: drawn anew each epoch, none twice.

    targets : int (N,), the class of each example
    returns : int64 (classes * examples of the rarest,), sorted: a function of (targets, seed, epoch)
    raises  : ValueError unless targets are one-dimensional integers, at least one

    Hand it to `EpochBatches(indices=...)`. What an epoch leaves out may come in the next one.
    """
    targets = _checked_targets(targets)
    classes, counts = torch.unique(targets, return_counts=True)
    generator = torch.Generator().manual_seed(derive_seed(seed, "undersample", epoch))
    chosen = []
    for number in classes:
        members = torch.nonzero(targets == number).flatten()
        chosen.append(members[torch.randperm(len(members), generator=generator)[: int(counts.min())]])
    return torch.cat(chosen).sort().values


def _checked_targets(targets: Sequence[int] | torch.Tensor) -> torch.Tensor:
    targets = torch.as_tensor(targets)
    if targets.dim() != 1 or targets.is_floating_point() or len(targets) == 0:
        raise ValueError(f"targets must be integers of shape (N,), N > 0; got {targets.dtype} {tuple(targets.shape)}")
    return targets


def _digest(values: torch.Tensor | None) -> str:
    return "none" if values is None else hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


class EpochBatches(Sampler[BatchKey]):
    """The batches of an epoch from a position on; yields a `BatchKey` for each, for this rank.

    num_examples : length of the dataset; keys hold its indices
    batch_size   : examples per rank and batch
    seed         : the order of epoch e is a function of (seed, e)
    shuffle      : False reads in the order of `indices`
    weights      : draw with replacement by these, one for each of `indices` (of all examples without it)
    indices      : the part of the dataset to use
    rank, world_size : this rank gets `[rank::world_size]` of each global batch of batch_size * world_size examples
    drop_last    : make a batch only while a whole global batch remains, counted from the present offset
    raises       : ValueError that names the argument, what is needed and what came

    Nothing is padded or repeated, and every rank makes the same number of batches, so a rank's last batch may be empty.
    Iterating moves nothing: who hands the batches over moves the position with `set_position` (`ResumableLoader` does).
    """

    def __init__(
        self,
        num_examples: int,
        *,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        weights: Sequence[float] | torch.Tensor | None = None,
        indices: Sequence[int] | torch.Tensor | None = None,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        if batch_size < 1 or num_examples < 0:
            raise ValueError(f"need batch_size >= 1 and num_examples >= 0, got {batch_size} and {num_examples}")
        if not 0 <= rank < world_size:
            raise ValueError(f"need 0 <= rank < world_size, got rank={rank}, world_size={world_size}")
        self.num_examples, self.batch_size, self.seed, self.shuffle = num_examples, batch_size, seed, shuffle
        self.rank, self.world_size, self.drop_last = rank, world_size, drop_last
        self.indices = None if indices is None else _checked_indices(indices, num_examples)
        self.weights = None if weights is None else _checked_weights(weights, self.pool_size, shuffle)
        self._repeating = self.weights is not None or (
            self.indices is not None and len(self.indices.unique()) < len(self.indices)
        )
        self.epoch = self.offset = 0

    @property
    def pool_size(self) -> int:
        """Examples in an epoch."""
        return self.num_examples if self.indices is None else len(self.indices)

    @property
    def global_batch(self) -> int:
        """Examples in a batch of all ranks together."""
        return self.batch_size * self.world_size

    def order(self, epoch: int) -> list[int]:
        """The dataset indices of a whole epoch, of all ranks, in order."""
        return self._order(epoch).tolist()

    def _order(self, epoch: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "order", epoch))
        if self.pool_size == 0:
            return torch.empty(0, dtype=torch.int64)
        if self.weights is not None:
            places = _weighted_places(self.weights, self.pool_size, generator)
        elif self.shuffle:
            places = torch.randperm(self.pool_size, generator=generator)
        else:
            places = torch.arange(self.pool_size)
        return places if self.indices is None else self.indices[places]

    def keys(self, epoch: int, offset: int = 0) -> Iterator[BatchKey]:
        """The keys of `epoch` from `offset` (in global examples) on. Pure: it moves nothing."""
        order = self._order(epoch)  # a list of millions of numbers would double the time to the first batch
        repeats = _repeats(order.tolist()) if self._repeating else None
        for start in range(offset, self.pool_size, self.global_batch):
            stop = min(start + self.global_batch, self.pool_size)
            if self.drop_last and stop - start < self.global_batch:
                return
            mine = slice(start + self.rank, stop, self.world_size)
            yield BatchKey(self.seed, epoch, start, order[mine].tolist(), repeats[mine] if repeats else None)

    def __iter__(self) -> Iterator[BatchKey]:
        return self.keys(self.epoch, self.offset)

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        whole, rest = divmod(self.pool_size, self.global_batch)
        return whole + (1 if rest and not self.drop_last else 0)

    def set_position(self, epoch: int, offset: int = 0) -> None:
        """Go to `offset` global examples into `epoch`; where no batch is left there, to the next epoch's start.

        raises : ValueError for a negative epoch, or an offset outside 0 .. examples of an epoch
        """
        if epoch < 0 or not 0 <= offset <= self.pool_size:
            raise ValueError(
                f"need epoch >= 0 and 0 <= offset <= {self.pool_size}, got epoch={epoch}, offset={offset}"
            )
        needed = self.global_batch if self.drop_last else 1
        if offset > 0 and self.pool_size - offset < needed:
            epoch, offset = epoch + 1, 0
        self.epoch, self.offset = epoch, offset

    def identity(self) -> dict[str, int | bool | str]:
        """What must be equal for a saved position to mean the same order."""
        return {
            "seed": self.seed,
            "num_examples": self.num_examples,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "weights": _digest(self.weights),
            "indices": _digest(self.indices),
        }


def _checked_indices(indices: Sequence[int] | torch.Tensor, num_examples: int) -> torch.Tensor:
    given = torch.as_tensor(indices)
    if given.dim() != 1 or (len(given) and (given.is_floating_point() or given.dtype == torch.bool)):
        raise ValueError(f"indices must be integers of shape (N,), got {given.dtype} {tuple(given.shape)}")
    given = given.long()
    if len(given) and not (0 <= int(given.min()) and int(given.max()) < num_examples):
        bad = int(given.min()) if int(given.min()) < 0 else int(given.max())
        raise ValueError(f"indices must lie in 0 .. {num_examples - 1} (num_examples={num_examples}), got {bad}")
    return given


def _checked_weights(weights: Sequence[float] | torch.Tensor, pool_size: int, shuffle: bool) -> torch.Tensor:
    weights = torch.as_tensor(weights, dtype=torch.float64)
    if not shuffle:
        raise ValueError("weights draw at random, which contradicts shuffle=False: leave one of them out")
    if weights.shape != (pool_size,):
        raise ValueError(
            f"weights need one value an example, shape ({pool_size},), got {tuple(weights.shape)}; "
            "from weights a class, take class_weights[targets]"
        )
    if pool_size and not (torch.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise ValueError("weights must be finite, 0 or more, and not all 0")
    return weights


def _weighted_places(weights: torch.Tensor, num_draws: int, generator: torch.Generator) -> torch.Tensor:
    """Places drawn with replacement, int64; as `torch.multinomial`, which refuses more than 2**24 weights."""
    ends = weights.cumsum(0)
    draws = torch.rand(num_draws, dtype=torch.float64, generator=generator) * ends[-1]
    last = int(weights.nonzero().max())  # a draw that rounds up to the end falls beyond all places
    return torch.searchsorted(ends, draws, right=True).clamp(max=last)


def _repeats(order: list[int]) -> list[int]:
    """For each place, how often its index came before in the epoch."""
    seen: Counter[int] = Counter()
    repeats = []
    for index in order:
        repeats.append(seen[index])
        seen[index] += 1
    return repeats
