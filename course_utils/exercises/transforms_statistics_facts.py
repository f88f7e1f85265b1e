"""What transforms-3 looks at: the numbers, and whether pixels were kept to get them."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Iterator

import torch

from course_utils.exercises.wording import short


class Once(Iterator):
    """Batches that can be read once. Of each it looks what became of the one before."""

    def __init__(self, batches: list) -> None:
        self._waiting, self._given, self.most, self.number = list(batches), [], 0, len(batches)

    def __next__(self) -> torch.Tensor:
        if not self._waiting:
            raise StopIteration
        batch = torch.tensor(self._waiting.pop(0), dtype=torch.float32).unsqueeze(2)
        self._given.append(weakref.ref(batch))
        self.most = max(self.most, sum(each() is not None for each in self._given))
        return batch


def _keeps_pixels(fn) -> bool:
    """Whether `fn` holds more at its last batch than at its first: tensors are counted, all else is tracemalloc's."""
    held = []

    def watched() -> Iterator[torch.Tensor]:
        for number in range(_NUM):
            if number in (0, _NUM - 1):
                held.append(_bytes_of_tensors() + tracemalloc.get_traced_memory()[0])
            yield torch.full((1, 1, 50, 100), 0.5)

    tracing, frozen = tracemalloc.is_tracing(), gc.get_freeze_count()
    tracemalloc.start()
    gc.freeze()  # what is there already is left out of the count, so that counting takes no longer in a large program
    try:
        fn(watched())
    finally:
        gc.unfreeze()
        if frozen:
            gc.freeze()
        if not tracing:
            tracemalloc.stop()
    return held[-1] - held[0] > _NUM // 2 * 5000 * 4


_NUM = 40  # batches of 5,000 pixels, 20 kB each


def _bytes_of_tensors() -> int:
    tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def _all_half(values) -> bool:
    """The right result of the case with four batches: where memory is looked at, which takes a while."""
    return bool(torch.isclose(torch.as_tensor(values).double(), torch.tensor(0.5).double(), atol=1e-4).all())


def statistics(fn, result, batches: Once) -> dict:
    pair = isinstance(result, (list, tuple)) or (isinstance(result, torch.Tensor) and result.ndim == 2)
    if not pair or len(result) != 2:
        return dict.fromkeys(found([], [])) | {"result": f"{short(result)}, and not (mean, std)"}
    mean, std = result
    kept = batches.most > 2 or (batches.number == 4 and _all_half(mean) and _all_half(std) and _keeps_pixels(fn))
    return found(mean, std, kept)


def found(mean, std, kept: bool = False) -> dict:
    mean, std = (torch.as_tensor(values).double() for values in (mean, std))
    return {"result": "(mean, std)", "mean": mean, "std": std, "pixels of many batches in memory": kept}
