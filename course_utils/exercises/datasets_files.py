"""The exercise of chapter 01 about the files of a folder: which are examples, and in which order."""

from __future__ import annotations

import functools
from pathlib import PurePosixPath, PureWindowsPath

from course_utils.exercises.declare import exercise

_ROOTS = {"Linux": PurePosixPath("/home/ada/photos"), "Windows": PureWindowsPath("C:\\photos")}
_ROOTS["Linux, root in .cache"] = PurePosixPath("/home/ada/.cache/photos")


def _listing(names: list[str], system: str) -> tuple:
    return [_ROOTS[system].joinpath(*name.split("/")) for name in names], _ROOTS[system]


@exercise(
    "datasets-2",
    title="Which files are examples, in which order",
    difficulty="medium",
    minutes=10,
    cases=[
        (["cat/1.jpg"], "Linux"),
        (["dog/1.jpg", "cat/2.jpg", "cat/1.jpg"], "Linux"),
        (["cat/1.JPG", "cat/2.Png", "cat/3.jpeg", "cat/notes.txt"], "Linux"),
        (["cat/1.jpg", "cat/2.jpg.part", "cat/jpg"], "Linux"),
        (["cat/._1.jpg", "cat/1.jpg"], "Linux"),
        (["cat/.ipynb_checkpoints/1.jpg", "cat/1.jpg"], "Linux"),
        (["cat/1.jpg"], "Linux, root in .cache"),
        (["dog/1.jpg", "cat/1.jpg"], "Windows"),
        (["cat/1.jpg", "cat2/1.jpg", "Zoo/1.jpg"], "Windows"),
        (["cat/1.jpg", "cat-big/1.jpg", "__old/1.jpg"], "Linux"),
        ([], "Linux"),
    ],
    expected=[
        ["cat/1.jpg"],
        ["cat/1.jpg", "cat/2.jpg", "dog/1.jpg"],
        ["cat/1.JPG", "cat/2.Png", "cat/3.jpeg"],
        ["cat/1.jpg"],
        ["cat/1.jpg"],
        ["cat/1.jpg"],
        ["cat/1.jpg"],
        ["cat/1.jpg", "dog/1.jpg"],
        ["Zoo/1.jpg", "cat/1.jpg", "cat2/1.jpg"],  # capitals come first; "/" is before "2"
        ["__old/1.jpg", "cat-big/1.jpg", "cat/1.jpg"],  # "_" is before the small letters, "-" before "/"
        [],
    ],
    arrange=_listing,
    describe=lambda names, system: (
        f"image_names, with files {names} below {_ROOTS[system]}" + " (paths of Windows)" * (system == "Windows")
    ),
    hints=[
        "path.relative_to(root) is what lies below the root, and .as_posix() its text with / on every system. Do this "
        "first: all the rest works on these names.",
        "A name is hidden if any of its parts begins with a dot, a folder's as well as the file's: name.split('/').",
        "name.lower().endswith(('.jpg', '.jpeg', '.png')); and sort the names, not the paths, at the end.",
    ],
    lesson="The list is a function of what the folder holds: a stored split means the same photos on every machine.",
)
def image_names(paths: list, root) -> list:
    """Names of the images below `root`, in an order that is the same on every machine.

    paths   : all files below root, in the order in which the system listed them: pure paths of
              pathlib, of Linux or of Windows. No disk is behind them, so nothing can be opened
    root    : pure path of the folder
    returns : for each image its path from the root as text, with / on every system; sorted as
              Python sorts text, capitals first

    An image's name ends in .jpg, .jpeg or .png, in small letters or capitals. Left out is what is
    hidden: files and folders below the root whose names begin with a dot, and what these hold.
    Nothing else is.
    """
    names = [path.relative_to(root).as_posix() for path in paths]
    visible = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    return sorted(name for name in visible if name.lower().endswith((".jpg", ".jpeg", ".png")))


_ENDINGS = (".jpg", ".jpeg", ".png")


def _below(path, root) -> str:
    return path.relative_to(root).as_posix()


def _is_hidden(path, root) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _is_image(path) -> bool:
    return path.name.lower().endswith(_ENDINGS)


# What else an answer may have left out, in most of its forms: nothing, hidden files alone, or too much with the root
_KEPT = {
    "all": lambda path, root: True,
    "by the file's name": lambda path, root: not path.name.startswith("."),
    "by the whole path": lambda path, root: not any(part.startswith(".") for part in path.parts),
}
_ASKED = {  # ways to ask for an ending
    "small letters": lambda path: path.name.endswith(_ENDINGS),
    "suffix": lambda path: path.suffix in _ENDINGS,
}


def _names(paths, root, *, keep=None, ask=_is_image, text=_below, order=sorted) -> list[str]:
    """The answer with its decisions as arguments: which paths, as which text, in which order."""
    keep = keep or (lambda path, root: not _is_hidden(path, root))
    return order(text(path, root) for path in paths if keep(path, root) and ask(path))


def _also(mistake: str, **decision) -> None:
    """The mistake together with another one: hidden files kept, or endings in capitals lost."""
    for others in [{"keep": keep} for keep in _KEPT.values()] + [{"ask": ask} for ask in _ASKED.values()]:
        image_names.form_of(mistake)(functools.partial(_names, **{**others, **decision}))
    for keep in _KEPT.values():
        together = {"keep": keep, "ask": _ASKED["small letters"], **decision}
        image_names.form_of(mistake)(functools.partial(_names, **together))


@image_names.wrong
def keeps_the_way_to_the_root(paths, root):
    """The names begin with the root, which is another one on every machine: a list stored with the split fits this
    machine only. relative_to(root) takes it off."""
    return _names(paths, root, text=lambda path, root: path.as_posix())


for _text in (lambda path, root: str(path), lambda path, root: path, lambda path, root: path.as_posix()):
    _also("keeps_the_way_to_the_root", text=_text)


@image_names.form_of("keeps_the_way_to_the_root")
def keeps_the_paths(paths, root):
    return _names(paths, root, text=lambda path, root: str(path))


@image_names.wrong
def keeps_the_names_of_the_files_alone(paths, root):
    """Only the last part is kept: `cat/1.jpg` and `dog/1.jpg` are the same name, and the class is lost with the
    folder."""
    return _names(paths, root, text=lambda path, root: path.name)


_also("keeps_the_names_of_the_files_alone", text=lambda path, root: path.name)


@image_names.wrong
def keeps_the_order_of_the_listing(paths, root):
    """The order is the one in which the system listed the files. Another disk lists them otherwise: the same seed then
    draws another split, and photos that a model was trained on come into its validation."""
    return _names(paths, root, order=list)


_also("keeps_the_order_of_the_listing", order=list)


@image_names.wrong
def sorts_without_regard_to_capitals(paths, root):
    """The names are sorted without regard to capitals. That is a fixed order as well, but not the one that was agreed
    upon: the position of a photo in a stored split names another photo. Sort the text as it is."""
    return _names(paths, root, order=lambda names: sorted(names, key=str.lower))


@image_names.wrong
def loses_endings_in_capitals(paths, root):
    """`.JPG` is not `.jpg`: photos of a camera that writes capitals are left out, without a word. Compare
    name.lower()."""
    return _names(paths, root, ask=_ASKED["small letters"])


for _keep in _KEPT.values():
    for _ask in _ASKED.values():
        image_names.form_of("loses_endings_in_capitals")(functools.partial(_names, keep=_keep, ask=_ask))


@image_names.wrong
def takes_part_of_a_name_for_its_ending(paths, root):
    """`"jpg" in name` is true anywhere in the name: `2.jpg.part`, half a download, counts as an image and fails when it
    is decoded. Ask for the end of the name, with its dot."""
    return _names(paths, root, ask=lambda path: any(ending in path.name.lower() for ending in _ENDINGS))


@image_names.wrong
def takes_the_ending_without_its_dot(paths, root):
    """Without its dot, "jpg" is also the end of a file that is named `jpg`, or `notjpg`: no image, and it fails when it
    is decoded. Ask for ".jpg"."""
    return _names(paths, root, ask=lambda path: path.name.lower().endswith(("jpg", "jpeg", "png")))


@image_names.wrong
def keeps_hidden_files(paths, root):
    """Hidden files count. `._1.jpg`, in which macOS keeps attributes, is no image and fails when it is decoded; a copy
    in `.ipynb_checkpoints` is one, and the same photo comes twice. Look at every part of the name."""
    return _names(paths, root, keep=_KEPT["all"])


@image_names.form_of("keeps_hidden_files")
def looks_at_the_files_name_only(paths, root):
    return _names(paths, root, keep=_KEPT["by the file's name"])


@image_names.form_of("keeps_hidden_files")
def looks_at_the_folders_only(paths, root):
    return _names(paths, root, keep=lambda path, root: not _is_hidden(path.parent, root))


@image_names.form_of("keeps_hidden_files")
def looks_at_the_first_sign_of_the_name_only(paths, root):
    return _names(paths, root, keep=lambda path, root: not _below(path, root).startswith("."))


@image_names.wrong
def asks_the_folders_above_the_root_too(paths, root):
    """The dots are looked for in the whole path, so a root in `~/.cache`, where data sets often lie, hides every photo:
    the list is empty. Look at what lies below the root."""
    return _names(paths, root, keep=_KEPT["by the whole path"])


@image_names.wrong
def writes_the_names_as_the_system_does(paths, root):
    r"""str(path) has \ on Windows: a split stored there names files that do not exist elsewhere, and the order
    differs too. as_posix() gives / everywhere."""
    return _names(paths, root, text=lambda path, root: str(path.relative_to(root)))


_also("writes_the_names_as_the_system_does", text=lambda path, root: str(path.relative_to(root)))


@image_names.wrong
def sorts_the_paths(paths, root):
    r"""What is sorted is the paths, not the names. Path objects compare part by part, and on Windows without regard to
    capitals; as text, \ and / have other places among the signs. Either way the order differs between systems."""
    return _names(sorted(paths), root, order=list)


@image_names.form_of("sorts_the_paths")
def sorts_the_paths_as_text(paths, root):
    return _names(sorted(paths, key=str), root, order=list)


@image_names.wrong
def asks_the_disk(paths, root):
    """These are pure paths: text with rules, and no disk behind it, so that what is right here is right on Linux and on
    Windows. is_file, exists, glob, rglob and iterdir are not to be had; all files there are stand in `paths`."""
    return _names([path for path in paths if path.is_file()], root)


for _asked in ("exists", "is_dir", "stat", "resolve", "absolute"):
    image_names.form_of("asks_the_disk")(lambda paths, root, asked=_asked: [getattr(path, asked)() for path in paths])
for _asked in ("rglob", "glob", "iterdir"):
    image_names.form_of("asks_the_disk")(lambda paths, root, asked=_asked: getattr(root, asked))
