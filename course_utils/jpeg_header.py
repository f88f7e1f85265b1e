"""Whether bytes are a plain JPEG, by their header alone: a tenth of the time that Pillow takes to open it.

It answers "surely" or "ask Pillow", never "no image": what is rare is not worth a second reader of it. It decodes
nothing.
"""

from __future__ import annotations

_START = b"\xff\xd8\xff"
_FRAMES = {0xC0, 0xC2}  # baseline, and progressive: Huffman coded, not lossless
_APP0, _TABLES, _SCAN = 0xE0, 0xDB, 0xDA
_WITHOUT_EFFECT = {0xC4, 0xDD, 0xFE}  # Huffman tables, restart interval, comment: Pillow steps over them
_LEAST_APP0 = 16  # of a JFIF block, length included
_TABLE_BYTES = 65  # of a quantisation table of 8 bits, its number included
_MOST_PIXELS = 1 << 20  # beside decoding more than these, opening takes no time; and Pillow has limits of its own


def is_plain_jpeg(content: bytes) -> bool:
    """True only where Pillow would open `content` as a JPEG of mode RGB or L without an EXIF orientation.

    content : a file's bytes; what follows the header is not looked at
    returns : True for 8 bits, one or three components, at most 2**20 pixels, and no blocks but JFIF, comment and
              tables, each whole and directly after the one before. False for the rest: EXIF, XMP, colour profiles,
              Adobe (CMYK, too), several pictures, fill bytes, damage, other formats

    Source: ITU-T T.81 (ISO/IEC 10918-1), annex B.
    """
    if content[:3] != _START:
        return False
    at, frames = 2, 0
    while at + 4 <= len(content) and content[at] == 0xFF:
        marker, length = content[at + 1], content[at + 2] << 8 | content[at + 3]
        if length < 2 or at + 2 + length > len(content):
            return False
        if marker == _SCAN:
            return frames == 1
        if marker not in _WITHOUT_EFFECT and not _is_usual(marker, content[at + 4 : at + 2 + length]):
            return False
        frames += marker in _FRAMES
        at += 2 + length
    return False


def _is_usual(marker: int, block: bytes) -> bool:
    """Whether Pillow surely reads past this block, or takes size and mode from it."""
    if marker in _FRAMES:
        return _is_usual_frame(block)
    if marker == _TABLES:
        return bool(block) and len(block) % _TABLE_BYTES == 0 and max(block[::_TABLE_BYTES]) < 16
    if marker == _APP0:
        return len(block) + 2 >= _LEAST_APP0
    return False


def _is_usual_frame(block: bytes) -> bool:
    """Block: bits, height (2 bytes), width (2 bytes), number of components, 3 bytes for each."""
    if len(block) < 6:
        return False
    bits, components = block[0], block[5]
    pixels = (block[1] << 8 | block[2]) * (block[3] << 8 | block[4])
    return bits == 8 and components in (1, 3) and len(block) == 6 + 3 * components and 0 < pixels <= _MOST_PIXELS
