"""Exercises of chapter 01: here the numbers of the classes; the others come in by import.

Order of the numbers: the folder, the split, the stream.
"""

from __future__ import annotations

from course_utils.exercises.datasets_buffer import shuffle_buffer
from course_utils.exercises.datasets_files import image_names
from course_utils.exercises.datasets_groups import leaking_groups
from course_utils.exercises.datasets_records import records_of
from course_utils.exercises.datasets_streams import worker_share
from course_utils.exercises.declare import exercise

__all__ = ["image_names", "leaking_groups", "number_classes", "records_of", "shuffle_buffer", "worker_share"]

_TRAINING = {"cat": 0, "dog": 1, "fox": 2}


@exercise(
    "datasets-1",
    title="Class numbers that stay",
    difficulty="easy",
    minutes=7,
    cases=[
        (["cat", "dog"], None),
        (["fox", "cat", "dog"], None),
        (["dog", ".ipynb_checkpoints", "cat"], None),
        (["fox", "dog", "cat"], _TRAINING),
        (["fox", "dog"], _TRAINING),
        (["fox", ".ipynb_checkpoints"], _TRAINING),
        (["cat", "dog"], {"dog": 0, "cat": 1}),
        (["fox", "dog", "owl"], _TRAINING),
        (["dog", "eel", "fox"], _TRAINING),
        (["_cat", "cat", "Zoo"], None),
        (["cat"], {}),
    ],
    expected=[
        {"cat": 0, "dog": 1},
        _TRAINING,
        {"cat": 0, "dog": 1},
        _TRAINING,
        _TRAINING,
        _TRAINING,
        {"dog": 0, "cat": 1},
        ValueError,
        ValueError,
        {"Zoo": 0, "_cat": 1, "cat": 2},
        ValueError,
    ],
    keep_arguments=True,
    hints=[
        "A model was trained with cat 0, dog 1, fox 2. Which number have the dogs of a split without a cat folder?",
        "First leave out the names that begin with a dot. Then two cases: class_to_idx is None (number the sorted "
        "names), or it is given (look for names that it lacks, and return it as it is).",
        "{name: number for number, name in enumerate(sorted(names))}; and for the other case: "
        "unknown = [name for name in names if name not in class_to_idx], if unknown: raise ValueError(...).",
    ],
    lesson="The training split numbers the classes once; a folder that it does not know stops the run at its start.",
)
def number_classes(folders: list, class_to_idx: dict | None = None) -> dict:
    """Number of each class: the training split makes the numbers, every other split keeps them.

    folders      : names of the folders of one split, in any order. One whose name begins with a
                   dot is no class, in any split; every other one is
    class_to_idx : None for the training split: its classes get 0, 1, 2, ... by sorted name,
                   capitals first, as Python sorts. For another split: the numbers of the
                   training split; {} knows no class at all
    returns      : {name: number}; where class_to_idx is given, all of it, also the classes that
                   have no folder here
    raises       : ValueError for a class that class_to_idx does not have
    """
    names = sorted(name for name in folders if not name.startswith("."))
    if class_to_idx is None:
        return {name: number for number, name in enumerate(names)}
    unknown = [name for name in names if name not in class_to_idx]
    if unknown:
        raise ValueError(f"classes {unknown} are unknown to the training split")
    return dict(class_to_idx)


def _visible(folders) -> list[str]:
    return [name for name in folders if not name.startswith(".")]


def _numbered(names) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


@number_classes.wrong
def numbers_each_split_by_its_own_folders(folders, class_to_idx=None):
    """Each split is numbered by its own folders: without a cat folder the dog moves from 1 to 0. The model's answers
    are then compared with the wrong numbers, and nothing raises: the accuracy is low, or plausible and false."""
    return _numbered(sorted(_visible(folders)))


@number_classes.form_of("numbers_each_split_by_its_own_folders")
def numbers_each_split_by_its_own_folders_and_refuses_unknown_ones(folders, class_to_idx=None):
    if class_to_idx and set(_visible(folders)) - set(class_to_idx):
        raise ValueError
    return _numbered(sorted(_visible(folders)))


@number_classes.wrong
def takes_hidden_folders_for_classes(folders, class_to_idx=None):
    """A name that begins with a dot counts as a class. Jupyter makes `.ipynb_checkpoints` wherever a file is opened: it
    sorts before the letters, becomes class 0, and moves every other number up by one."""
    if class_to_idx is not None and set(folders) - set(class_to_idx):
        raise ValueError
    return _numbered(sorted(folders)) if class_to_idx is None else dict(class_to_idx)


@number_classes.form_of("takes_hidden_folders_for_classes")
def takes_hidden_folders_for_classes_in_training(folders, class_to_idx=None):
    return number_classes.answer(folders, class_to_idx) if class_to_idx is not None else _numbered(sorted(folders))


@number_classes.wrong
def refuses_hidden_folders_of_other_splits(folders, class_to_idx=None):
    """Hidden names are left out of the training split alone: in another split `.ipynb_checkpoints` is reported as an
    unknown class, and an evaluation stops because somebody opened a file in Jupyter. Leave them out first."""
    if class_to_idx is not None and set(folders) - set(class_to_idx):
        raise ValueError
    return number_classes.answer(folders, class_to_idx)


@number_classes.form_of("refuses_hidden_folders_of_other_splits")
def raises_key_error_for_hidden_folders(folders, class_to_idx=None):
    for name in folders if class_to_idx is not None else ():
        class_to_idx[name]
    return number_classes.answer(folders, class_to_idx)


@number_classes.wrong
def numbers_in_the_order_of_the_listing(folders, class_to_idx=None):
    """The folders are numbered in the order in which they came. os.listdir promises none: another disk or system lists
    them otherwise, and a checkpoint loaded there takes foxes for cats. Sort the names."""
    return _numbered(_visible(folders)) if class_to_idx is None else number_classes.answer(folders, class_to_idx)


@number_classes.wrong
def gives_an_unknown_class_the_next_number(folders, class_to_idx=None):
    """An unknown class gets a number of its own, for which the model has no output: cross_entropy stops with "Target 3
    is out of bounds", hours later, or a metric counts it as wrong for ever. Raise ValueError at the start."""
    numbers = number_classes.answer(folders, None) if class_to_idx is None else dict(class_to_idx)
    for name in sorted(_visible(folders)):
        numbers.setdefault(name, len(numbers))
    return numbers


@number_classes.form_of("gives_an_unknown_class_the_next_number")
def enters_an_unknown_class_into_the_numbers_of_training(folders, class_to_idx=None):
    numbers = {} if class_to_idx is None else class_to_idx
    for name in sorted(_visible(folders)):
        numbers.setdefault(name, len(numbers))
    return numbers


@number_classes.wrong
def leaves_unknown_classes_out(folders, class_to_idx=None):
    """An unknown class is passed over: a misspelt folder `Dog` vanishes from the validation, and the accuracy is that
    of the other classes. Nobody hears of it. Raise ValueError."""
    return number_classes.answer(folders, None) if class_to_idx is None else dict(class_to_idx)


@number_classes.wrong
def keeps_only_the_classes_of_this_split(folders, class_to_idx=None):
    """The numbers are right, but a class without a folder here is left out: who takes len(...) for the number of
    classes builds a last layer that is too small. Return all that the training split knows."""
    numbers = number_classes.answer(folders, class_to_idx)
    return {name: numbers[name] for name in _visible(folders)}


@number_classes.form_of("keeps_only_the_classes_of_this_split")
def keeps_only_the_known_classes_of_this_split(folders, class_to_idx=None):
    numbers = number_classes.answer(folders, None) if class_to_idx is None else class_to_idx
    return {name: numbers[name] for name in _visible(folders) if name in numbers}


@number_classes.wrong
def lets_a_key_error_out(folders, class_to_idx=None):
    """class_to_idx[name] raises a KeyError by itself, and its whole message is the name: it does not say that a folder
    is unknown to the training split. The task asks for a ValueError, so look first and raise it."""
    for name in _visible(folders) if class_to_idx is not None else ():
        class_to_idx[name]
    return number_classes.answer(folders, class_to_idx)


@number_classes.wrong
def counts_classes_from_one(folders, class_to_idx=None):
    """The first class has number 1. cross_entropy counts from 0: with as many outputs as classes the last number is out
    of bounds, and with one output more the first is never used."""
    numbers = number_classes.answer(folders, class_to_idx)
    return {name: number + 1 for name, number in numbers.items()} if class_to_idx is None else numbers


@number_classes.wrong
def takes_no_numbers_for_a_training_split(folders, class_to_idx=None):
    """`if not class_to_idx` is true for None and for {} alike: where the numbers of training got lost on the way, the
    split quietly gets numbers of its own. Ask `class_to_idx is None`."""
    return number_classes.answer(folders, class_to_idx or None)


@number_classes.wrong
def sorts_without_regard_to_capitals(folders, class_to_idx=None):
    """The names are sorted without regard to capitals. `Zoo` comes last then, where every other tool that sorts names
    has it first: two programs number one folder in two ways. Plain `sorted` is the agreement."""
    names = sorted(_visible(folders), key=str.lower)
    return _numbered(names) if class_to_idx is None else number_classes.answer(folders, class_to_idx)


@number_classes.wrong
def asserts_where_an_error_is_asked_for(folders, class_to_idx=None):
    """An assert raises AssertionError, not ValueError, and under `python -O` it raises nothing: it is for what cannot
    happen, and an unknown folder can. Write `raise ValueError(...)`, with the name of the class in it."""
    assert class_to_idx is None or set(_visible(folders)) <= set(class_to_idx)
    return number_classes.answer(folders, class_to_idx)


@number_classes.form_of("asserts_where_an_error_is_asked_for")
def asserts_of_hidden_folders_too(folders, class_to_idx=None):
    assert class_to_idx is None or set(folders) <= set(class_to_idx)
    return number_classes.answer(folders, class_to_idx)
