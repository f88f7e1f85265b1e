"""The exercise of chapter 01 about the files of a folder: which are examples, and in which order."""

from __future__ import annotations

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
        (["cat/1.jpg", "cat-big/1.jpg"], "Linux"),
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
        ["cat-big/1.jpg", "cat/1.jpg"],  # "-" is before "/"
        [],
    ],
    arrange=_listing,
    describe=lambda names, system: f"image_names, with files {names} below {_ROOTS[system]}",
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

    paths   : pathlib paths of all files below root, in the order in which the system listed them
    root    : pathlib path of the folder
    returns : for each image its path from the root as text, with / on every system; sorted as
              text is sorted

    An image's name ends in .jpg, .jpeg or .png, in small letters or capitals. Left out is what is
    hidden: files and folders below the root whose names begin with a dot, and what these hold.
    """
    names = [path.relative_to(root).as_posix() for path in paths]
    visible = [name for name in names if not any(part.startswith(".") for part in name.split("/"))]
    return sorted(name for name in visible if name.lower().endswith((".jpg", ".jpeg", ".png")))


_ENDINGS = (".jpg", ".jpeg", ".png")


def _names(paths, root) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


def _shown(names) -> list[str]:
    return [name for name in names if not any(part.startswith(".") for part in name.split("/"))]


def _images(names) -> list[str]:
    return [name for name in names if name.lower().endswith(_ENDINGS)]


@image_names.wrong
def keeps_the_order_of_the_listing(paths, root):
    """The order is the one in which the system listed the files. Another disk lists them otherwise: the same seed then
    draws another split, and photos that a model was trained on come into its validation."""
    return _images(_shown(_names(paths, root)))


@image_names.wrong
def loses_endings_in_capitals(paths, root):
    """`.JPG` is not `.jpg`: photos of a camera that writes capitals are left out, without a word. Compare
    name.lower()."""
    return sorted(name for name in _shown(_names(paths, root)) if name.endswith(_ENDINGS))


@image_names.wrong
def takes_part_of_a_name_for_its_ending(paths, root):
    """`"jpg" in name` is true anywhere in the name: `2.jpg.part`, half a download, counts as an image and fails when it
    is decoded. Ask for the end of the name, with its dot."""
    return sorted(n for n in _shown(_names(paths, root)) if any(e in n.lower() for e in _ENDINGS))


@image_names.form_of("takes_part_of_a_name_for_its_ending")
def takes_the_ending_without_its_dot(paths, root):
    return sorted(n for n in _shown(_names(paths, root)) if n.lower().endswith(("jpg", "jpeg", "png")))


@image_names.wrong
def keeps_hidden_files(paths, root):
    """Hidden files count. `._1.jpg`, in which macOS keeps attributes, is no image and fails when it is decoded; a copy
    in `.ipynb_checkpoints` is one, and the same photo comes twice. Look at every part of the name."""
    return sorted(_images(_names(paths, root)))


@image_names.form_of("keeps_hidden_files")
def looks_at_the_files_name_only(paths, root):
    return sorted(n for n in _images(_names(paths, root)) if not n.split("/")[-1].startswith("."))


@image_names.form_of("keeps_hidden_files")
def looks_at_the_folders_only(paths, root):
    return sorted(n for n in _images(_names(paths, root)) if not any(p[0] == "." for p in n.split("/")[:-1]))


@image_names.wrong
def asks_the_folders_above_the_root_too(paths, root):
    """The dots are looked for in the whole path, so a root in `~/.cache`, where data sets often lie, hides every photo:
    the list is empty. Look at what lies below the root."""
    return _images(sorted(_names([p for p in paths if not any(n.startswith(".") for n in p.parts)], root)))


@image_names.wrong
def writes_the_names_as_the_system_does(paths, root):
    r"""str(path) has \ on Windows: a split stored there names files that do not exist elsewhere, and the order
    differs too. as_posix() gives / everywhere."""
    return sorted(_images([str(p.relative_to(root)) for p in paths if _shown(_names([p], root))]))


@image_names.wrong
def sorts_the_paths(paths, root):
    r"""What is sorted is the paths, not the names. Path objects compare part by part, and on Windows without regard to
    capitals; as text, \ and / have other places among the signs. Either way the order differs between systems."""
    return _images(_shown(_names(sorted(paths), root)))


@image_names.form_of("sorts_the_paths")
def sorts_the_paths_as_text(paths, root):
    return _images(_shown(_names(sorted(paths, key=str), root)))


@image_names.wrong
def keeps_the_names_of_the_files_alone(paths, root):
    """Only the last part is kept: `cat/1.jpg` and `dog/1.jpg` are the same name, and the class is lost with the
    folder."""
    return sorted(name.split("/")[-1] for name in _images(_shown(_names(paths, root))))


@image_names.wrong
def keeps_the_way_to_the_root(paths, root):
    """The names begin with the root, which is another one on every machine: a list stored with the split fits this
    machine only. relative_to(root) takes it off."""
    return sorted(f"{root.as_posix()}/{name}" for name in _images(_shown(_names(paths, root))))


@image_names.form_of("keeps_the_way_to_the_root")
def keeps_the_paths(paths, root):
    return sorted(str(path) for path in paths if _images(_shown(_names([path], root))))
