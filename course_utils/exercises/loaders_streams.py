"""The exercise of chapter 04 about generator objects of which every worker has the same copy."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy
import torch

from course_utils.exercises.declare import exercise
from course_utils.exercises.facts import LEFT_ALONE, Said, facts_differ, use_of_generators


class Augmented:
    """A dataset with generators of its own; every worker gets them as they are here."""

    def __init__(self) -> None:
        self.torch_rng, self.numpy_rng = torch.Generator().manual_seed(0), numpy.random.RandomState(0)


@dataclass
class Worker:
    """What get_worker_info() gives in a worker."""

    id: int
    num_workers: int
    seed: int
    dataset: Augmented


_NUM_WORKERS = 4
_NAMES = ("torch_rng", "numpy_rng")
_EPOCHS = [(7919 * number + 104_729) ** 3 % (2**62) for number in range(8)]  # base seeds, far apart
_NEAR = 1000 * 2**16  # and one that is so far from the first: remainders by 2**16 and by 1000 are equal
_NUM_EPOCHS = len(_EPOCHS) + 2
_GOT = "the dataset got"


def _started(base_seed: int, id: int) -> Worker:
    """A worker as PyTorch starts it: the global generators are seeded, the dataset is a copy."""
    seed = base_seed + id
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    numpy.random.seed((31 * seed + 7) % 2**32)
    return Worker(id, _NUM_WORKERS, seed, Augmented())


def _draws(fn: Callable, base_seed: int, id: int) -> tuple[tuple, ...]:
    """The first numbers of both generators of one worker."""
    worker = _started(base_seed, id)
    fn(worker)
    dataset = worker.dataset
    drawn = torch.randint(2**31, (4,), generator=dataset.torch_rng)
    return tuple(drawn.tolist()), tuple(dataset.numpy_rng.randint(2**31 - 1, size=4).tolist())


def _alike(streams: list[tuple]) -> str:
    """How many of the streams differ, in words."""
    found = len(set(streams))
    words = "all different" if found == len(streams) else "all alike" if found == 1 else "some alike"
    return words if found == len(streams) else Said(words, f"{found} of {len(streams)} different")


def _stream_facts(fn: Callable, result: None, worker: Worker) -> dict:
    """What the four workers of an epoch draw, and what they draw in other epochs."""
    base_seed = worker.seed - worker.id
    facts = {"the kinds of the generators": _kinds(worker.dataset), _GOT: "nothing new"}
    if facts_differ(_KINDS, facts):
        return facts
    epoch = [_draws(fn, base_seed, id) for id in range(_NUM_WORKERS)]
    once_more = [_draws(fn, base_seed, id) for id in range(_NUM_WORKERS)]
    others = [[_draws(fn, seed, id) for seed in (base_seed, *_EPOCHS, base_seed + _NEAR)] for id in (0, 3)]
    for place, name in enumerate(_NAMES):
        facts[f"{name}, the streams of {_NUM_WORKERS} workers"] = _alike([drawn[place] for drawn in epoch])
        facts[f"{name}, the streams of worker 0 in {_NUM_EPOCHS} epochs"] = _alike([d[place] for d in others[0]])
        facts[f"{name}, the streams of worker 3 in {_NUM_EPOCHS} epochs"] = _alike([d[place] for d in others[1]])
        same = [drawn[place] for drawn in epoch] == [drawn[place] for drawn in once_more]
        facts[f"{name}, the same seeds once more"] = "the same streams" if same else "other streams"
    use = use_of_generators(lambda: fn(Worker(1, _NUM_WORKERS, base_seed + 1, Augmented())))
    facts["the global generators"] = use
    new = [name for name in vars(worker.dataset) if name not in _NAMES]
    return facts | {_GOT: Said("something new", f"a new {new[0]}")} if new and facts_differ(_SOUND, facts) else facts


def _kinds(dataset: Augmented) -> str:
    return " and ".join(type(getattr(dataset, name, None)).__name__ for name in _NAMES)


_KINDS = {"the kinds of the generators": "Generator and RandomState"}
_SOUND = _KINDS | {_GOT: "nothing new", "the global generators": LEFT_ALONE}
for _name in _NAMES:
    _SOUND[f"{_name}, the streams of {_NUM_WORKERS} workers"] = "all different"
    _SOUND[f"{_name}, the streams of worker 0 in {_NUM_EPOCHS} epochs"] = "all different"
    _SOUND[f"{_name}, the streams of worker 3 in {_NUM_EPOCHS} epochs"] = "all different"
    _SOUND[f"{_name}, the same seeds once more"] = "the same streams"

_LARGE = 2**61 + 2**32 - 3  # with an id of 3 added, its remainder by 2**32 begins at 0 again


@exercise(
    "loaders-6",
    title="A stream for each worker",
    difficulty="hard",
    minutes=12,
    cases=[(100, 2), (_LARGE, 2)],
    expected=[_SOUND, _SOUND],
    arrange=lambda base_seed, id: (Worker(id, _NUM_WORKERS, base_seed + id, Augmented()),),
    probe=_stream_facts,
    difference=facts_differ,
    describe=lambda base_seed, id: f"own_streams(info), info.id={id}, info.seed={base_seed + id}, and other workers",
    hints=[
        "A worker's dataset is a copy, and the state of a generator is copied with it. What do you know in a worker "
        "that the other workers of this epoch do not have, nor this one in the next epoch?",
        "info.seed is all of that in one number: another one in each worker and in each epoch. A generator object is "
        "seeded in place: torch_rng.manual_seed(...), numpy_rng.seed(...).",
        "torch takes info.seed as it is. A RandomState takes 0 .. 2**32 - 1 only, and info.seed is usually far above: "
        "use its remainder by 2**32, taken last.",
    ],
    lesson="It belongs into a worker_init_fn. Keys (chapter 03) need none of it, and give the same numbers for any "
    "number of workers. info.seed holds the id already: adding it once more is needless.",
)
def own_streams(info) -> None:
    """Give the generators of a worker's dataset a stream of their own.

    A DataLoader calls a worker_init function in each worker before its first batch; this is what
    it has to do where a dataset draws from generator objects that it holds.

    info : what get_worker_info() gives in a worker:
           info.id      0, 1, ... info.num_workers - 1
           info.seed    the epoch's base seed + info.id; base seeds go up to 2**63
           info.dataset the worker's copy, with info.dataset.torch_rng, a torch.Generator, and
                        info.dataset.numpy_rng, a numpy.random.RandomState

    In every epoch new workers start, with generators as they were made: as they are, all workers
    draw the same numbers, again in each epoch. After the call both generators, seeded anew or
    replaced by others of the same kind, give other numbers in each worker and in each epoch, and
    for the same info the same ones. The global generators are left alone: PyTorch seeds them.
    Nothing is returned. With base seed 100, worker 2 has info.seed 102; worker 3 and worker 2 of
    the next epoch, with base seed 57 say, draw other numbers than it.
    """
    info.dataset.torch_rng.manual_seed(info.seed)
    info.dataset.numpy_rng.seed(info.seed % 2**32)


def _seed(info, torchs: int | None, numpys: int | None) -> None:
    if torchs is not None:
        info.dataset.torch_rng.manual_seed(torchs)
    if numpys is not None:
        info.dataset.numpy_rng.seed(numpys)


@own_streams.wrong
def seeds_with_the_id_alone(info):
    """Worker 0 has the seed 0 in every epoch and in every run: a photo gets the same augmentation each time it falls to
    the same worker, and "another seed" changes nothing. info.seed is new in each epoch."""
    _seed(info, info.id, info.id)


@own_streams.wrong
def gives_all_workers_one_seed(info):
    """All workers of an epoch have one seed, as with info.seed - info.id or a number that the main process drew: worker
    1 repeats for its batch what worker 0 drew for the batch before, number by number."""
    _seed(info, info.seed - info.id, (info.seed - info.id) % 2**32)


@own_streams.wrong
def leaves_the_copies_alike(info):
    """All workers draw the same numbers, and again in every epoch: the objects are as they were copied, or have one
    fixed seed, or only the global generators got one, or a new object went into a local variable and not into
    info.dataset. Neighbouring batches then have the same augmentations."""
    _seed(info, 42, 42)


@own_streams.wrong
def seeds_the_global_generators(info):
    """The global generators are seeded, which PyTorch has done already in each worker. The dataset draws from objects
    of its own, and these stay copies: all workers draw the same numbers, again in each epoch."""
    random.seed(info.seed)
    torch.manual_seed(info.seed)
    numpy.random.seed(info.seed % 2**32)


@own_streams.wrong
def seeds_the_global_generators_too(info):
    """The objects are right. The global generators are seeded besides, which PyTorch has done in each worker with
    seeds made for them; with yours, two libraries may begin to draw the same numbers. Leave them alone."""
    _seed(info, info.seed, info.seed % 2**32)
    torch.manual_seed(info.seed)
    numpy.random.seed(info.seed % 2**32)


@own_streams.wrong
def leaves_the_range_of_numpy_seeds(info):
    """NumPy's RandomState takes seeds of 0 to 2**32 - 1, and PyTorch's base seeds go up to 2**63: the worker dies with
    a ValueError before its first batch. A test with a small seed passes. Take info.seed % 2**32."""
    _seed(info, info.seed, info.seed)


@own_streams.wrong
def takes_the_remainder_too_early(info):
    """The id is added after the remainder: where info.seed % 2**32 ends just below the border the sum lies above it,
    and this worker dies with a ValueError, in one run of a billion. info.seed holds the id already; and a
    remainder comes last."""
    _seed(info, info.seed, info.seed % 2**32 + info.id)


@own_streams.wrong
def forgets_one_of_the_generators(info):
    """Only one of torch_rng and numpy_rng has a stream of its own. What is drawn from the other one is still the same
    in all workers, again in each epoch: half of the augmentations repeat, and the other half hides it."""
    _seed(info, None, info.seed % 2**32)


@own_streams.form_of("forgets_one_of_the_generators")
def forgets_the_numpy_generator(info):
    _seed(info, info.seed, None)


@own_streams.wrong
def seeds_from_the_clock(info):
    """The seed comes from the clock or from the system, as with `.seed()` without a number: the streams differ, and no
    run can be repeated. What went wrong in epoch 7 is never seen again. info.seed follows from the run's own seed."""
    info.dataset.torch_rng.seed()
    info.dataset.numpy_rng.seed()


@own_streams.wrong
def replaces_the_kind(info):
    """numpy_rng is now of another kind. A numpy.random.Generator has no randint and no rand, so the first example whose
    code calls them fails; and PyTorch's calls take no generator of NumPy's. Keep the kind, or seed in place."""
    info.dataset.torch_rng.manual_seed(info.seed)
    info.dataset.numpy_rng = numpy.random.default_rng(info.seed)


@own_streams.wrong
def leaves_worker_0_alike(info):
    """Worker 0 draws the same numbers in every epoch, and it is the one that always exists: a product with info.id is 0
    for it, and so is the condition in `if info.id`. info.seed alone is enough, it holds the id already."""
    _seed(info, info.seed * info.id % 2**63, info.seed * info.id % 2**32)


@own_streams.wrong
def keeps_too_few_seeds(info):
    """Many values of info.seed become one seed. Base seeds are large and far apart: a remainder by 1000 or 2**16 soon
    repeats a stream of another epoch, and min(seed, 2**32 - 1) is nearly always the same. Remainders by 2**32 do."""
    _seed(info, info.seed % 2**16, info.seed % 2**16)


@own_streams.wrong
def asks_for_the_info_itself(info):
    """get_worker_info() is None outside a worker, and here your function is called in the main process. The info is
    handed to you: what get_worker_info() gives in a worker is the argument."""
    _seed(info, torch.utils.data.get_worker_info().seed, None)


@own_streams.wrong
def takes_the_info_for_a_number(info):
    """What comes in is not the worker's number: it is the whole info, of which info.id is the number and info.seed
    the seed. (A DataLoader's own worker_init_fn gets the number, and asks get_worker_info() for the rest.)"""
    info.dataset.torch_rng.manual_seed(torch.initial_seed() + info)


@own_streams.wrong
def gives_the_dataset_something_new(info):
    """The dataset gets something under another name, and goes on drawing from torch_rng and numpy_rng, which are still
    copies. Seed these two, or put others of their kind in their places."""
    info.dataset.own = torch.Generator().manual_seed(info.seed)


# Other forms


def _few(change: Callable[[int], int]) -> None:
    own_streams.form_of("keeps_too_few_seeds")(lambda info: _seed(info, change(info.seed), change(info.seed)))
    own_streams.form_of("keeps_too_few_seeds")(lambda info: _seed(info, info.seed, change(info.seed)))


_few(lambda seed: seed % 1000)
_few(lambda seed: min(seed, 2**32 - 1))
own_streams.form_of("keeps_too_few_seeds")(lambda info: _seed(info, info.seed, info.seed % 2**16))
for _name in ("id", "dataset", "num_workers"):
    own_streams.form_of("asks_for_the_info_itself")(
        lambda info, name=_name: getattr(torch.utils.data.get_worker_info(), name)
    )
for _number in (
    lambda info: info + torch.initial_seed(),
    lambda info: info % 2**32,
    lambda info: 2 * info,
    lambda info: info.dataset.torch_rng.manual_seed(info),
    lambda info: info.dataset.numpy_rng.seed(info),
):
    own_streams.form_of("takes_the_info_for_a_number")(lambda info, number=_number: number(info) and None)
for _name in ("own", "rng", "generator"):
    own_streams.form_of("gives_the_dataset_something_new")(
        lambda info, name=_name: getattr(info.dataset, name).manual_seed(info.seed)
    )
for _number, _mistake in (
    (lambda info: info.id + 42, "seeds_with_the_id_alone"),
    (lambda info: info.seed - info.id, "gives_all_workers_one_seed"),
    (lambda info: 42, "leaves_the_copies_alike"),
    (lambda info: info.seed * bool(info.id), "leaves_worker_0_alike"),
):
    own_streams.form_of(_mistake)(lambda info, number=_number: _seed(info, number(info) % 2**32, None))
    own_streams.form_of(_mistake)(lambda info, number=_number: _seed(info, None, number(info) % 2**32))
    if _mistake != "leaves_the_copies_alike":  # where one object is right, that is a forgotten generator
        own_streams.form_of(_mistake)(lambda info, number=_number: _seed(info, info.seed, number(info) % 2**32))
        own_streams.form_of(_mistake)(lambda info, number=_number: _seed(info, number(info) % 2**32, info.seed % 2**32))


@own_streams.wrong
def takes_seeds_from_a_global_generator(info):
    """The seeds are drawn from a global generator, which moves it: whatever else draws from it in this worker gets
    other numbers than without this function. info.seed is there and costs no draw."""
    _seed(info, int(torch.randint(2**31, ())), int(numpy.random.randint(2**31)))


@own_streams.form_of("leaves_the_range_of_numpy_seeds")
def leaves_the_range_of_numpy_seeds_alone(info):
    _seed(info, None, info.seed)


@own_streams.form_of("leaves_the_range_of_numpy_seeds")
def leaves_the_range_of_numpy_seeds_with_the_initial_seed(info):
    _seed(info, torch.initial_seed(), torch.initial_seed())


@own_streams.form_of("leaves_the_range_of_numpy_seeds")
def leaves_the_range_of_numpy_seeds_and_adds_the_id(info):
    _seed(info, info.seed + info.id, info.seed + info.id)
