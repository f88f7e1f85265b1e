"""What goes wrong in folders of images, planted in a catalogue on purpose. Chapter 01 finds it.

Every fault is a file or folder of its own, or a copy: the photos that the index names stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_utils.catalogue_plan import CLASSES
from course_utils.randomness import derive_seed

_EXIF_ORIENTATION = 274
_JUNK = b"\x00\x05\x16\x07\x00\x02\x00\x00Mac OS X        "  # how an AppleDouble file (._name) begins


def plant_faults(folder: Path, rows: list[dict[str, Any]], *, seed: int) -> list[dict[str, str]]:
    """Plant one of each kind, and say what and where.

    folder  : a finished catalogue
    rows    : its index
    seed    : chooses the photos and the classes
    returns : a dict for each fault: `fault`, `path` (from `folder`, with /), for a duplicate also `of`
    """
    rng = random.Random(derive_seed("faults", seed))
    planted = [*_plant_clutter(folder, rows, rng), *_plant_odd_files(folder, rows, rng)]
    return planted + _plant_duplicates(folder, rows, rng)


def _photo(rows: list[dict[str, Any]], rng: random.Random) -> dict[str, Any]:
    return rows[rng.randrange(len(rows))]


def _plant_clutter(folder: Path, rows: list[dict[str, Any]], rng: random.Random) -> list[dict[str, str]]:
    """What systems and editors leave behind, and an empty class."""
    photo = folder / _photo(rows, rng)["path"]
    label = photo.parent.name
    files = {
        "checkpoint folder": (f".ipynb_checkpoints/{photo.stem}-checkpoint.jpg", photo.read_bytes()),
        "checkpoint folder in a class": (f"{label}/.ipynb_checkpoints/{photo.stem}-checkpoint.jpg", photo.read_bytes()),
        "hidden folder": (f".thumbnails/{photo.name}", photo.read_bytes()),
        "archive folder": (f"__MACOSX/._{label}", _JUNK),
        "hidden file": (f"{label}/.DS_Store", b"\x00\x00\x00\x01Bud1"),
        "resource fork": (f"{label}/._{photo.name}", _JUNK),
        "thumbnail database": (f"{label}/Thumbs.db", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    }
    for name, content in files.values():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "hat").mkdir()
    planted = [{"fault": fault, "path": name} for fault, (name, _) in files.items()]
    return [*planted, {"fault": "empty class", "path": "hat"}]


def _plant_odd_files(folder: Path, rows: list[dict[str, Any]], rng: random.Random) -> list[dict[str, str]]:
    """New products whose file is broken, or whose image is not plain RGB."""
    product, planted = rows[-1]["product"] + 1, []
    for fault, (suffix, write) in _ODD_FILES.items():
        source = _photo(rows, rng)
        name = f"{source['label']}/{product:05d}_0{suffix}"
        write(folder / source["path"], folder / name)
        planted.append({"fault": fault, "path": name})
        product += 1
    return planted


def _plant_duplicates(folder: Path, rows: list[dict[str, Any]], rng: random.Random) -> list[dict[str, str]]:
    """The same bytes twice: under another product of the class, and in another class."""
    product, planted = rows[-1]["product"] + 1 + len(_ODD_FILES), []
    for fault in ("duplicate product", "duplicate in another class"):
        source = _photo(rows, rng)
        present = [name for name in sorted(CLASSES) if (folder / name).is_dir() and name != source["label"]]
        label = rng.choice(present or sorted(CLASSES)) if fault.endswith("class") else source["label"]
        name = f"{label}/{product:05d}_0.jpg"
        (folder / label).mkdir(exist_ok=True)
        (folder / name).write_bytes((folder / source["path"]).read_bytes())
        planted.append({"fault": fault, "path": name, "of": source["path"]})
        product += 1
    return planted


def _truncated(source: Path, target: Path) -> None:
    content = source.read_bytes()
    target.write_bytes(content[: len(content) // 2])


def _text(source: Path, target: Path) -> None:
    target.write_text("<html><body>404 Not Found</body></html>\n", encoding="utf-8", newline="\n")


def _empty(source: Path, target: Path) -> None:
    target.write_bytes(b"")


def _in_mode(mode: str) -> Callable[[Path, Path], None]:
    def write(source: Path, target: Path) -> None:
        from PIL import Image

        with Image.open(source) as image:
            image.convert(mode).save(target)

    return write


def _with_alpha(source: Path, target: Path) -> None:
    """A round photo: transparent outside."""
    from PIL import Image, ImageDraw

    with Image.open(source) as image:
        alpha = Image.new("L", image.size)
        ImageDraw.Draw(alpha).ellipse((0, 0, image.width - 1, image.height - 1), fill=255)
        image.putalpha(alpha)
        image.save(target)


def _sixteen_bit(source: Path, target: Path) -> None:
    import numpy as np
    from PIL import Image

    with Image.open(source) as image:
        Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257).save(target)


def _rotated(source: Path, target: Path) -> None:
    """Stored on its side, with the EXIF tag that says so."""
    from PIL import Image

    with Image.open(source) as image:
        exif = Image.Exif()
        exif[_EXIF_ORIENTATION] = 6  # turn by 90 degrees clockwise to see it upright
        image.transpose(Image.Transpose.ROTATE_90).save(target, exif=exif, quality=90)


_ODD_FILES: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "truncated": (".jpg", _truncated),
    "not an image": (".jpg", _text),
    "empty file": (".jpg", _empty),
    "grey": (".jpg", _in_mode("L")),
    "alpha": (".png", _with_alpha),
    "cmyk": (".jpg", _in_mode("CMYK")),
    "palette": (".png", _in_mode("P")),
    "16-bit": (".png", _sixteen_bit),
    "rotated": (".jpg", _rotated),
}
