"""Any image file as uint8 (3, H, W), by one policy for every mode and format; and an image at another size.

It knows no folder and no class. Pillow is imported at the first image that needs it, torchvision at the first plain
JPEG.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import interpolate

from course_utils.jpeg_header import is_plain_jpeg

if TYPE_CHECKING:
    from PIL import Image

_ORIENTATION = 274  # the EXIF tag
_RGB = 3  # torchvision.io.ImageReadMode.RGB
_UPRIGHT = {  # orientation: the name of Pillow's transposition that undoes it
    2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE",
    8: "ROTATE_90",
}  # fmt: skip


def load_rgb(source: str | os.PathLike | bytes, *, background: tuple[int, int, int] = (255, 255, 255)) -> torch.Tensor:
    """Decode a whole image, upright, to red, green and blue.

    source     : a path, or the bytes of a file
    background : what shows through where an image is transparent; white
    returns    : uint8 (3, H, W) in 0 .. 255; of a plain JPEG with the channels last in memory, where `view` may fail
                 and `reshape` does not
    raises     : ValueError naming the path and the reason where the file is missing, damaged or no image

    - Grey and 1 bit: three equal channels. Palette: its colours. Alpha, also as one transparent colour: over
      `background`. CMYK, YCbCr, HSV: converted. Only the first frame of several.
    - 16-bit grey is scaled, round(value / 257), not clipped; of 16-bit colour Pillow keeps the high byte, at most 1
      below or above. Floats and 32-bit integers have no stated range: ValueError.
    - The EXIF orientation is applied; unreadable EXIF data counts as none. Colour profiles are ignored.
    - Plain RGB and grey JPEGs that lie upright go through torchvision, twice as fast at 500 x 400; all else through
      Pillow. Which ones they are is read from the header, here where it holds nothing unusual, else by Pillow. The two
      may differ in last bits, as libjpeg versions do. Damage inside a JPEG's compressed data that leaves its length
      right is not noticed by either.
    """
    given_bytes = isinstance(source, (bytes, bytearray, memoryview))
    name = f"image of {len(source)} bytes" if given_bytes else os.fspath(source)
    try:
        return _decode(bytes(source) if given_bytes else _content(source), background)
    except Exception as error:  # damaged files make Pillow raise OSError, SyntaxError, struct.error, KeyError, ...
        raise ValueError(f"{name} cannot be read as an image: {_reason(error)}") from error


def why_unreadable(path: str | os.PathLike) -> str | None:
    """Why `load_rgb(path)` fails; None where it decodes. A pipe, which would wait, is not opened."""
    if not os.path.isfile(path):
        return "it is no regular file, or a link to nothing"
    try:
        load_rgb(path)
    except ValueError as error:
        return _reason(error.__cause__)
    return None


def resize(image: torch.Tensor, size: int | tuple[int, int]) -> torch.Tensor:
    """Any image at one size, its shape not kept: `partial(resize, size=64)` as a dataset's transform.

    image   : uint8 or float (C, H, W)
    size    : (height, width) of the result, or one number for both
    returns : the same dtype (C, height, width): bilinear with antialiasing, to the bit what `v2.Resize((height,
              width))` gives, without the 50 microseconds a call in which v2 finds out what it was given; within 1 of
              Pillow's
    raises  : ValueError for another shape or dtype, or a size below 1
    """
    height, width = (size, size) if isinstance(size, int) else size
    known = isinstance(image, torch.Tensor) and (image.dtype == torch.uint8 or image.is_floating_point())
    if not known or image.dim() != 3 or min(height, width) < 1:
        came = f"{image.dtype} {tuple(image.shape)}" if isinstance(image, torch.Tensor) else type(image).__name__
        raise ValueError(f"resize needs uint8 or float (C, H, W) and a size of 1 or more; got {came} and {size}")
    return interpolate(image[None], (height, width), mode="bilinear", antialias=True)[0]


resize.keyed = True  # it draws nothing


def _content(path: str | os.PathLike) -> bytes:
    with open(path, "rb", buffering=0) as file:  # all at once: a buffer would be filled for nothing
        return file.read()


def _decode(content: bytes, background: tuple[int, int, int]) -> torch.Tensor:
    if not content:
        raise ValueError("the file is empty")
    if is_plain_jpeg(content):
        decoded = _decode_plain_jpeg(content)
        if decoded is not None:
            return decoded
    return _decode_with_pillow(content, background)


def _decode_with_pillow(content: bytes, background: tuple[int, int, int]) -> torch.Tensor:
    """Any format; a JPEG that turns out to be plain goes through torchvision all the same."""
    from PIL import Image

    with Image.open(io.BytesIO(content)) as image:  # reads the header only
        if _is_plain_jpeg(image):
            decoded = _decode_plain_jpeg(content)
            if decoded is not None:
                return decoded
        image.load()  # Pillow turns a TIFF itself here, then has no orientation left
        upright = _upright(_rgb(image, background), _orientation(image))
        return torch.from_numpy(np.array(upright)).permute(2, 0, 1).contiguous()


def _is_plain_jpeg(image: Image.Image) -> bool:
    return image.format in ("JPEG", "MPO") and image.mode in ("RGB", "L") and _orientation(image) not in _UPRIGHT


@cache
def _jpeg_decoder() -> Callable | None:
    """torchvision's operation; None where it is not there. Its Python function warns since 0.29 that it will go."""
    try:
        import torchvision.io  # noqa: F401 - loads the operation; here, because it takes seconds to import

        return torch.ops.image.decode_jpeg
    except (ImportError, AttributeError):
        return None


def _decode_plain_jpeg(content: bytes) -> torch.Tensor | None:
    """The pixels; None where torchvision cannot: then Pillow reads the file, or says what is wrong with it."""
    decoder = _jpeg_decoder()
    try:
        return decoder and decoder(torch.frombuffer(bytearray(content), dtype=torch.uint8), _RGB, False)
    except RuntimeError:
        return None


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none, or none that can be read."""
    try:
        return image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a damaged EXIF block: viewers show such a photo as it is stored
        return 1


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    from PIL import Image

    return image.transpose(Image.Transpose[_UPRIGHT[orientation]]) if orientation in _UPRIGHT else image


def _rgb(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        image = _eight_bits(image)
    if image.mode in ("I", "F"):
        raise ValueError(f"mode {image.mode} has no stated range: scale it to 0 .. 255 and save it as 8 bits")
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert({"La": "LA"}.get(image.mode, image.mode)).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, (*background, 255)), image).convert("RGB")


def _eight_bits(image: Image.Image) -> Image.Image:
    """16-bit grey in 0 .. 65535 to 8 bits; the value that a PNG calls transparent becomes alpha."""
    from PIL import Image

    values = np.asarray(image).astype(np.int64)
    grey = Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))
    if "transparency" in image.info:
        grey.putalpha(Image.fromarray(np.where(values == image.info["transparency"], 0, 255).astype(np.uint8)))
    return grey


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "it is in no image format that Pillow knows"  # its own words carry a memory address
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def check_unit_range(images: torch.Tensor, *, name: str = "images", slack: float = 1e-5) -> None:
    """Nothing where white is known: uint8 (0 .. 255), or float in [0, 1]; else a ValueError with dtype and range.

    images : of any shape
    name   : what the error calls them
    slack  : how far floats may lie outside; resizing a white float image rounds to 1.0000004. NaN is refused
    """
    if images.dtype == torch.uint8 or images.numel() == 0 and images.is_floating_point():
        return
    values = images if images.is_floating_point() else images.double()
    low, high = values.aminmax() if images.numel() else (0, 0)
    if not images.is_floating_point() or not (low >= -slack and high <= 1 + slack):
        span = f"{images.dtype} from {low:g} to {high:g}"
        raise ValueError(f"{name}: need uint8, or float in [0, 1]; got {span}: scale it first, and normalise once")
