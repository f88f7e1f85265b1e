"""The exercise of chapter 04 about the memory of batches that workers hold ready."""

from __future__ import annotations

from collections.abc import Callable

import torch

from course_utils.exercises.declare import exercise

_SMALL = (((2, 1, 3, 3), "uint8"), ((2,), "int64"))  # 18 + 16 bytes
_MASKED = (((4, 3, 2, 2), "uint8"), ((4, 6), "float64"), ((4, 6), "bool"))  # 48 + 192 + 24 bytes


def _batch(tensors: tuple, *settings) -> tuple:
    return tuple(torch.zeros(shape, dtype=getattr(torch, dtype)) for shape, dtype in tensors), *settings


def _described(tensors: tuple, num_workers: int, prefetch_factor: int | None, pin_memory: bool) -> str:
    parts = " and ".join(f"{dtype} {shape}" for shape, dtype in tensors)
    settings = f"num_workers={num_workers}, prefetch_factor={prefetch_factor}, pin_memory={pin_memory}"
    return f"bytes_ahead(batch, {settings}), a batch of {parts}"


@exercise(
    "loaders-5",
    title="Bytes that workers hold ready",
    difficulty="medium",
    minutes=8,
    cases=[
        (_SMALL, 2, 2, False),
        (_SMALL, 3, 5, False),
        ((((3, 5), "float32"),), 1, 2, False),
        (_SMALL, 2, 2, True),
        (_MASKED, 2, 3, True),
        (_MASKED, 7, 1, False),
        (_SMALL, 0, None, False),
        (_MASKED, 0, None, True),
    ],
    expected=[5 * 34, 16 * 34, 3 * 60, 6 * 34, 8 * 264, 8 * 264, 34, 264],
    arrange=_batch,
    describe=_described,
    keep_arguments=True,
    hints=[
        "prefetch_factor counts whole batches, and each worker holds that many. Which batch do the workers no longer "
        "hold while the loop makes a step on it?",
        "A tensor has tensor.numel() numbers, each of tensor.element_size() bytes (tensor.nbytes is both together). "
        "Add up all tensors of the batch.",
        "ahead = num_workers * prefetch_factor, or 0 without workers, where prefetch_factor is None. The one in hand "
        "is one more; the one that is being pinned another, where there are workers.",
    ],
    lesson="Doubling the workers, the prefetch_factor or the batch each doubles this; /dev/shm in a container often "
    "has 64 MiB. loader_memory_mib counts the same without the batch in hand.",
)
def bytes_ahead(batch: tuple, num_workers: int, prefetch_factor: int, pin_memory: bool) -> int:
    """Bytes that the batches of a loader take at most: those made ahead, and the one in hand.

    batch           : a batch, a tuple of tensors of any shapes and dtypes; every batch of the
                      loader has this size
    num_workers     : processes that make batches ahead; 0: the loop makes each one when it needs it
    prefetch_factor : batches that each worker makes ahead; None without workers
    pin_memory      : if True, and if there are workers, a thread copies each batch made ahead into
                      pinned memory, and its original is given back at once. So one batch, the one
                      that is being copied, is there twice
    returns         : bytes, a whole number. The batch that the loop works on counts as well, once

    A batch of 34 bytes, 2 workers and prefetch_factor 2: 4 batches ahead and 1 in hand are
    170 bytes; with pin_memory 204, since one is there twice.
    """
    each = sum(tensor.numel() * tensor.element_size() for tensor in batch)
    if num_workers == 0:
        return each
    return each * (num_workers * prefetch_factor + 1 + int(pin_memory))


def _bytes(batch) -> int:
    return sum(tensor.nbytes for tensor in batch)


def _counted(
    each: Callable = _bytes,
    ahead: Callable = lambda workers, prefetch, batch: workers * prefetch,
    total: Callable = lambda ahead, pinned: ahead + 1 + (pinned if ahead else 0),
    *,
    stumbles: bool = False,
) -> Callable:
    """The answer with its three parts as arguments: bytes of a batch, batches ahead, and all batches of these.

    stumbles : multiplies with the None that stands there without workers
    """

    def counted(batch, num_workers, prefetch_factor, pin_memory):
        prefetch = prefetch_factor if stumbles else prefetch_factor or 0
        return each(batch) * total(ahead(num_workers, prefetch, batch), pin_memory)

    return counted


def _numbers(batch) -> int:
    return sum(tensor.numel() for tensor in batch)


def _numbers_of_4_bytes(batch) -> int:
    return 4 * _numbers(batch)


def _first(batch) -> int:
    return batch[0].nbytes


def _one_a_worker(workers, prefetch, batch):
    return workers


def _for_all_workers(workers, prefetch, batch):
    return prefetch


def _examples(workers, prefetch, batch):
    return workers * prefetch / len(batch[0])


def _at_least_one(workers, prefetch, batch):
    return max(workers, 1) * (prefetch or 2)


def _without_the_one_in_hand(ahead, pinned):
    return ahead + (pinned if ahead else 0)


def _never_pinned(ahead, pinned):
    return ahead + 1


def _all_ahead_twice(ahead, pinned):
    return ahead * (1 + pinned) + 1


def _all_twice(ahead, pinned):
    return (ahead + 1) * (1 + pinned)


def _pinned_without_workers(ahead, pinned):
    return ahead + 1 + pinned


@bytes_ahead.wrong
def forgets_the_batch_in_hand(batch, num_workers, prefetch_factor, pin_memory):
    """Only the batches made ahead are counted. As soon as the loop takes one, a worker begins the next, so the one in
    hand is there besides; and without workers it is the only one, where this says 0 bytes."""
    return _counted(total=_without_the_one_in_hand)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def takes_prefetch_factor_for_examples(batch, num_workers, prefetch_factor, pin_memory):
    """prefetch_factor is taken for a number of examples. Workers hold whole batches: with 64 examples in each, the
    memory is 64 times what this says."""
    return _counted(ahead=_examples)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def forgets_prefetch_factor(batch, num_workers, prefetch_factor, pin_memory):
    """One batch a worker is counted. Each holds prefetch_factor of them, 2 unless one says otherwise: the half of the
    memory is missing, and with 4 three quarters."""
    return _counted(ahead=_one_a_worker)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def shares_prefetch_factor_among_the_workers(batch, num_workers, prefetch_factor, pin_memory):
    """prefetch_factor is taken for the batches of all workers together. It is a number for *each*: 8 workers hold 8
    times as much as one, which is how a larger machine runs out of memory with the same script."""
    return _counted(ahead=_for_all_workers)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def counts_numbers(batch, num_workers, prefetch_factor, pin_memory):
    """Numbers are counted, not bytes: an int64 has 8 and a float32 has 4. Only for uint8 and bool both are the same.
    Multiply each tensor's numel() with its element_size()."""
    return _counted(_numbers)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def takes_all_for_float32(batch, num_workers, prefetch_factor, pin_memory):
    """Every number counts 4 bytes. A uint8 image has one a pixel, a quarter of that, which is the reason to convert
    to float only after the hand-over; an int64 target has 8. Ask each tensor: element_size()."""
    return _counted(_numbers_of_4_bytes)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def counts_the_first_tensor_only(batch, num_workers, prefetch_factor, pin_memory):
    """Only the images are counted. The rest of the batch is handed over as well, and it need not be small: in one of
    the batches images have 48 of 264 bytes. Add up all tensors."""
    return _counted(_first)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def forgets_the_pinned_copy(batch, num_workers, prefetch_factor, pin_memory):
    """pin_memory has no influence here. A thread copies batch after batch into memory that the system may not move or
    swap out; while it copies one, original and copy are both there."""
    return _counted(total=_never_pinned)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def counts_every_batch_twice_if_pinned(batch, num_workers, prefetch_factor, pin_memory):
    """Every batch made ahead is counted twice, as if all lay in shared memory and in pinned memory as well. The
    thread copies one after the other and gives each original back: one batch is there twice, whatever their number."""
    return _counted(total=_all_ahead_twice)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.form_of("counts_every_batch_twice_if_pinned")
def counts_the_batch_in_hand_twice_too(batch, num_workers, prefetch_factor, pin_memory):
    return _counted(total=_all_twice)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def counts_a_pinned_copy_without_workers(batch, num_workers, prefetch_factor, pin_memory):
    """With num_workers=0 a copy is counted as well. The thread that pins belongs to the workers: without them there is
    none, and the task counts the one batch in hand."""
    return _counted(total=_pinned_without_workers)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def makes_batches_ahead_without_workers(batch, num_workers, prefetch_factor, pin_memory):
    """With num_workers=0 batches are still counted as made ahead. There is nobody to make them: the loop itself makes
    each one when it needs it, and holds one."""
    return _counted(ahead=_at_least_one)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def stumbles_over_no_workers(batch, num_workers, prefetch_factor, pin_memory):
    """Without workers prefetch_factor is None, in a DataLoader too, and 0 * None is a TypeError: the function fails for
    the one setting that everybody begins with. Ask for num_workers first."""
    return _counted(stumbles=True)(batch, num_workers, prefetch_factor, pin_memory)


@bytes_ahead.wrong
def gives_a_larger_unit(batch, num_workers, prefetch_factor, pin_memory):
    """The result is in MiB (or KiB, or MB). Bytes are asked for: whoever compares it with the free bytes of /dev/shm
    finds that everything fits."""
    return bytes_ahead.answer(batch, num_workers, prefetch_factor, pin_memory) / 2**20


for _unit in (1e6, 1e3, 2**10):
    bytes_ahead.form_of("gives_a_larger_unit")(lambda *given, unit=_unit: bytes_ahead.answer(*given) / unit)

# Two at once, as they come, and each with the None that is forgotten.

_PARTS = {
    "takes_prefetch_factor_for_examples": {"ahead": _examples},
    "forgets_prefetch_factor": {"ahead": _one_a_worker},
    "shares_prefetch_factor_among_the_workers": {"ahead": _for_all_workers},
    "counts_numbers": {"each": _numbers},
    "takes_all_for_float32": {"each": _numbers_of_4_bytes},
    "counts_the_first_tensor_only": {"each": _first},
}
_ENDS = {
    "forgets_the_batch_in_hand": _without_the_one_in_hand,
    "forgets_the_pinned_copy": _never_pinned,
    "counts_every_batch_twice_if_pinned": _all_ahead_twice,
    "counts_a_pinned_copy_without_workers": _pinned_without_workers,
}
for _mistake, _part in _PARTS.items():
    bytes_ahead.form_of(_mistake)(_counted(**_part, stumbles=_mistake != "forgets_prefetch_factor"))
    for _end in (*_ENDS.values(), lambda ahead, pinned: ahead):
        bytes_ahead.form_of(_mistake)(_counted(**_part, total=_end))
for _mistake, _end in list(_ENDS.items())[:-1]:  # the last one differs only where the None ends all
    bytes_ahead.form_of(_mistake)(_counted(total=_end, stumbles=True))
bytes_ahead.form_of("forgets_the_batch_in_hand")(_counted(total=lambda ahead, pinned: ahead))
bytes_ahead.form_of("forgets_the_batch_in_hand")(_counted(total=lambda ahead, pinned: ahead, stumbles=True))
bytes_ahead.form_of("forgets_the_batch_in_hand")(
    _counted(total=lambda ahead, pinned: ahead + 1 + pinned if ahead else 0)
)
bytes_ahead.form_of("takes_prefetch_factor_for_examples")(_counted(lambda batch: sum(t[0].nbytes for t in batch)))
