"""The photo catalogue: a small world of product photos, made from the embedded data and a seed.

It lays the folder down whole or not at all. `catalogue_plan` decides what is in it, `catalogue_photos` draws the
pixels, `catalogue_faults` plants what is wrong.
"""

from __future__ import annotations

import glob
import json
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

NUM_SHARDS = 4
MAX_PRODUCTS = 2900  # the largest class would need more than the 1,000 items that it has
LEFTOVER_SECONDS = 3600  # an unfinished folder of this age belongs to nobody


def make_catalogue(root: str | Path, *, num_products: int, seed: int, messy: bool = False) -> Path:
    """Make the catalogue in `root`, or find it there.

    root         : the folder to make; missing or empty, or a catalogue made with the same arguments
    num_products : 1 .. 2900, each an item of the embedded training split in one colour, with 1 to 3 photos of it
    seed         : everything is a function of (num_products, seed, messy)
    messy        : plant chapter 01's faults; the manifest says what and where
    returns      : `root`, absolute, with `<class>/<product>_<photo>.jpg` (RGB, 88 to 112 pixels a side), the index
                   `index-0-of-4.jsonl` ..., and `manifest.json`
    raises       : ValueError where `root` holds anything else, naming both, or num_products is outside its range

    The number of products a class falls as 1, 1/2, 1/3, ... The folder is built beside `root` and renamed: after an
    interruption it is whole or absent, and of two processes one makes it and both get it. About 1.5 ms a photo.
    """
    arguments = {"num_products": int(num_products), "seed": int(seed), "messy": bool(messy)}
    if not 1 <= num_products <= MAX_PRODUCTS:
        raise ValueError(f"num_products must be 1 to {MAX_PRODUCTS}, got {num_products}")
    root = Path(root).expanduser().absolute()
    if _is_made(root, arguments):
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(root)
    unfinished = root.with_name(f".{root.name}.{uuid.uuid4().hex}.unfinished")
    try:
        _build(unfinished, arguments)
        _move_into_place(unfinished, root, arguments)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return root


def read_manifest(root: str | Path) -> dict[str, Any]:
    """What is in a catalogue: `arguments`, `classes`, `index` (names of its shards), `num_photos`, `planted`."""
    return json.loads((Path(root) / "manifest.json").read_text(encoding="utf-8"))


def read_index(root: str | Path) -> list[dict[str, Any]]:
    """The catalogue's photos, all shards in order; one dict each.

    path          : from `root`, with / on every system
    label, target : the class folder's name, and its place among all ten in alphabetical order
    product       : the group: photos of one product show the same thing
    photo         : 0, 1 or 2, within the product
    width, height : pixels
    box           : [x0, y0, x1, y1] around the item, pixels, ends excluded
    caption       : words
    item          : index in `load_fashion("train")`
    """
    shards = [Path(root) / name for name in read_manifest(root)["index"]]
    return [json.loads(line) for shard in shards for line in shard.read_text(encoding="utf-8").splitlines()]


def _is_made(root: Path, arguments: dict[str, Any]) -> bool:
    """Whether the catalogue is there; False where nothing is; ValueError where something else is."""
    if _is_free(root):
        return False
    try:
        found = read_manifest(root)["arguments"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{root} must be missing or empty, but it holds no catalogue and is in use: give another root"
        ) from error
    if found != arguments:
        raise ValueError(f"{root} holds the catalogue {found}, needed {arguments}: give another root, or remove it")
    return True


def _is_free(root: Path) -> bool:
    """Whether `root` is missing or an empty folder."""
    try:
        return not any(root.iterdir())
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False


def _remove_leftovers(root: Path) -> None:
    """Remove what a killed process left beside `root`."""
    for folder in root.parent.glob(f".{glob.escape(root.name)}.*.unfinished"):
        with suppress(FileNotFoundError):  # another process may clean up too
            if time.time() - folder.stat().st_mtime > LEFTOVER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _move_into_place(unfinished: Path, root: Path, arguments: dict[str, Any]) -> None:
    try:
        with suppress(OSError):
            root.rmdir()  # if it is empty: Windows renames onto no folder
        unfinished.rename(root)
    except OSError:  # another process was first
        if not _is_made(root, arguments):
            raise


def _build(folder: Path, arguments: dict[str, Any]) -> None:
    from course_utils.catalogue_photos import draw_photo  # here, because Pillow is needed only now
    from course_utils.catalogue_plan import CLASSES, catalogue_items, plan_photos

    rows, items = [], catalogue_items()[0]
    for row, drawing in plan_photos(arguments["num_products"], arguments["seed"]):
        path = folder / row["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_photo(items[row["item"]], **drawing).save(path, quality=90)
        rows.append(row)
    planted = []
    if arguments["messy"]:
        from course_utils.catalogue_faults import plant_faults

        planted = plant_faults(folder, rows, seed=arguments["seed"])
    index = _write_index(folder, rows)
    manifest = {
        "arguments": arguments, "classes": sorted(CLASSES), "index": index, "num_photos": len(rows), "planted": planted,
    }  # fmt: skip
    _write_text(folder / "manifest.json", json.dumps(manifest, indent=1) + "\n")


def _write_index(folder: Path, rows: list[dict[str, Any]]) -> list[str]:
    names = [f"index-{shard}-of-{NUM_SHARDS}.jsonl" for shard in range(NUM_SHARDS)]
    cuts = [len(rows) * shard // NUM_SHARDS for shard in range(NUM_SHARDS + 1)]
    for name, start, stop in zip(names, cuts, cuts[1:], strict=False):
        _write_text(folder / name, "".join(json.dumps(row) + "\n" for row in rows[start:stop]))
    return names


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")  # the same bytes on Windows
