"""The exercise of chapter 01 about records that are read in chunks of bytes."""

from __future__ import annotations

from course_utils.exercises.declare import exercise

_FOX = "Füchsin\n".encode()  # ü is two bytes, at places 1 and 2


@exercise(
    "datasets-6",
    title="Records out of chunks",
    difficulty="medium",
    minutes=12,
    cases=[
        ([b"cat\ndog\n"],),
        ([b"cat\ndo", b"g\n"],),
        ([b"cat\n", b"dog"],),
        ([b"c", b"a", b"t\nd", b"og\n"],),
        ([b"cat\r\ndog\r", b"\n"],),
        ([b"cat\n\nd", b"og\n\n"],),
        ([b"a\r\n\r\nb\r\n"],),
        ([b" cat \n\tdog\n"],),
        ([b"cat\r\r\n"],),
        ([_FOX[:2], _FOX[2:]],),
        ([b"old\rcat\n"],),
        (["old\u2028cat\n".encode()],),
        ([],),
    ],
    expected=[
        ["cat", "dog"],
        ["cat", "dog"],
        ["cat", "dog"],
        ["cat", "dog"],
        ["cat", "dog"],
        ["cat", "dog"],
        ["a", "b"],
        [" cat ", "\tdog"],
        ["cat\r"],
        ["Füchsin"],
        ["old\rcat"],
        ["old\u2028cat"],
        [],
    ],
    keep_arguments=True,
    hints=[
        "A chunk may end anywhere, within a record and within a letter. What is to become of the bytes after the last "
        "\\n of a chunk?",
        "Put them before the next chunk: lines = (rest + chunk).split(b'\\n'), and the last of lines is the new rest. "
        "After the last chunk the rest is a record too, if it is not empty.",
        "Decode whole records only. .removesuffix(b'\\r') takes off what a file from Windows has before its \\n.",
    ],
    lesson="A chunk is how bytes travel, a record is what they mean: only a whole record can be an example.",
)
def records_of(chunks: list) -> list:
    r"""The records of a text file that is read in chunks.

    chunks  : the bytes of a UTF-8 file, in order, cut at any place
    returns : its records as strings, in order, without their ends. A record ends with \n or with
              \r\n, and nowhere else; the last one may lack its end. Lines without any sign between
              two ends are no records; spaces and tabs are signs, and stay
    """
    lines, rest = [], b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        lines += whole
    lines = [line.removesuffix(b"\r") for line in lines] + [rest]
    return [line.decode() for line in lines if line]


def _ended(lines: list[bytes]) -> list[str]:
    lines = [line.removesuffix(b"\r") for line in lines]
    return [line.decode() for line in lines if line]


@records_of.wrong
def takes_a_chunk_for_a_record(chunks):
    """Each chunk becomes a record: several are glued together, others are cut through, and how depends on the size of
    the chunks, not on the data."""
    return [chunk.decode() for chunk in chunks]


@records_of.form_of("takes_a_chunk_for_a_record")
def takes_a_chunk_without_its_ends_for_a_record(chunks):
    return [chunk.decode().strip() for chunk in chunks if chunk.strip()]


@records_of.wrong
def splits_each_chunk_by_itself(chunks):
    """Each chunk is split by itself, so a record that lies across a border becomes two halves: `do` and `g`. With other
    chunks there are other halves. Carry the rest over into the next chunk."""
    return _ended([line for chunk in chunks for line in chunk.split(b"\n")])


for _lines in (
    lambda chunk: chunk.split(b"\n"),
    lambda chunk: chunk.splitlines(),
    lambda chunk: [line.encode() for line in chunk.decode().split("\n")],
    lambda chunk: [line.encode() for line in chunk.decode().splitlines()],
):
    for _clean in (bytes, bytes.strip, lambda line: line.removesuffix(b"\r"), lambda line: line.rstrip(b"\r\n")):
        for _keep in (bool, lambda line: True):
            records_of.form_of("splits_each_chunk_by_itself")(
                lambda chunks, lines=_lines, clean=_clean, keep=_keep: [
                    clean(line).decode() for chunk in chunks for line in lines(chunk) if keep(clean(line))
                ]
            )


@records_of.wrong
def drops_what_crosses_a_border(chunks):
    """What stands after the last end of a chunk is thrown away, and the next chunk begins with a torso: each border
    costs a record. Put the rest before the next chunk."""
    return _ended([line for chunk in chunks for line in chunk.split(b"\n")[:-1]])


@records_of.wrong
def loses_the_last_record(chunks):
    r"""A last record without \n is never delivered: many files end so, and each then lacks one example. After the last
    chunk the rest is a record too."""
    return _ended(b"".join(chunks).split(b"\n")[:-1])


@records_of.wrong
def decodes_each_chunk(chunks):
    """Each chunk is decoded by itself: a letter of two bytes cut by a border raises UnicodeDecodeError, in mid-epoch
    and only for some sizes of a chunk. Cut the records as bytes, then decode them."""
    return _ended("".join(chunk.decode() for chunk in chunks).encode().split(b"\n"))


@records_of.wrong
def replaces_what_it_cannot_decode(chunks):
    """errors="replace" or "ignore" silences the error and damages the text: a letter of two bytes that a border cuts
    becomes question marks, or vanishes. Decode whole records."""
    return _ended("".join(chunk.decode(errors="replace") for chunk in chunks).encode().split(b"\n"))


@records_of.form_of("replaces_what_it_cannot_decode")
def leaves_out_what_it_cannot_decode(chunks):
    return _ended("".join(chunk.decode(errors="ignore") for chunk in chunks).encode().split(b"\n"))


@records_of.wrong
def keeps_the_carriage_return(chunks):
    r"""Files from Windows end their lines with \r\n. The \r stays at the end of a record, invisible in print, and
    "cat\r" is another label than "cat". A border may come between the two: look at whole records."""
    return [line.decode() for line in b"".join(chunks).split(b"\n") if line]


@records_of.form_of("keeps_the_carriage_return")
def looks_for_both_signs_within_a_chunk(chunks):
    joined = b"".join(chunk.replace(b"\r\n", b"\n") for chunk in chunks)
    return [line.decode() for line in joined.split(b"\n") if line]


@records_of.wrong
def splits_text_where_no_record_ends(chunks):
    r"""splitlines also splits at signs that end no record here: a lone \r, and in a str U+2028, which may stand in JSON
    as it is. One record becomes two halves, which a parser refuses. Split at \n."""
    return [line for line in b"".join(chunks).decode().splitlines() if line]


@records_of.form_of("splits_text_where_no_record_ends")
def splits_bytes_where_no_record_ends(chunks):
    return [line.decode() for line in b"".join(chunks).splitlines() if line]


@records_of.wrong
def delivers_empty_lines(chunks):
    r"""Empty lines come out as records: a file that ends with \n gives one example "" more than it has, and a parser
    stops at it."""
    return [line.removesuffix(b"\r").decode() for line in b"".join(chunks).split(b"\n")]


@records_of.form_of("delivers_empty_lines")
def delivers_empty_lines_of_splitlines(chunks):
    return [line.decode() for line in b"".join(chunks).splitlines()]


@records_of.form_of("delivers_empty_lines")
def delivers_empty_lines_of_splitlines_as_text(chunks):
    return b"".join(chunks).decode().splitlines()


@records_of.form_of("delivers_empty_lines")
def delivers_empty_lines_and_keeps_the_carriage_return(chunks):
    return b"".join(chunks).decode().split("\n")


@records_of.wrong
def looks_for_empty_lines_too_early(chunks):
    r"""What is empty is left out *before* the \r is taken off: an empty line of a file from Windows is `\r` until then,
    so it passes and comes out as a record "". First take the \r off, then look."""
    return [line.removesuffix(b"\r").decode() for line in b"".join(chunks).split(b"\n") if line]


@records_of.wrong
def strips_the_records(chunks):
    r"""strip() takes off every space, tab and \r at both ends, and those may belong to a record: a column of an
    aligned table, the indentation of a line of code. Take off one \r and nothing else: removesuffix(b"\r")."""
    return [line.strip().decode() for line in b"".join(chunks).split(b"\n") if line.strip()]


@records_of.form_of("strips_the_records")
def strips_the_ends_of_the_records(chunks):
    return [line.rstrip().decode() for line in b"".join(chunks).split(b"\n") if line.rstrip()]


@records_of.form_of("strips_the_records")
def strips_all_carriage_returns(chunks):
    return [line.rstrip(b"\r").decode() for line in b"".join(chunks).split(b"\n") if line.rstrip(b"\r")]


@records_of.form_of("strips_the_records")
def strips_the_records_and_keeps_what_is_empty_then(chunks):
    return [line.strip().decode() for line in b"".join(chunks).split(b"\n") if line]


@records_of.wrong
def takes_bytes_for_text(chunks):
    """The chunks are bytes, and were joined as text. `"".join(chunks)` and `"" + chunk` raise a TypeError; str(chunk)
    raises nothing and gives the text b'cat', with the b and the quotation marks. Begin with b"", decode at the end."""
    return "".join(chunks).split("\n")


@records_of.form_of("takes_bytes_for_text")
def adds_bytes_to_text(chunks):
    rest = ""
    for chunk in chunks:
        rest = rest + chunk
    return rest.split("\n") if rest else []


@records_of.form_of("takes_bytes_for_text")
def joins_the_chunks_as_text(chunks):
    return "".join(chunks).splitlines()


@records_of.form_of("takes_bytes_for_text")
def takes_the_text_of_bytes(chunks):
    return [line for line in "".join(map(str, chunks)).split("\n") if line]


@records_of.form_of("takes_bytes_for_text")
def takes_the_text_of_bytes_and_keeps_what_is_empty(chunks):
    return "".join(map(str, chunks)).split("\n")


@records_of.form_of("takes_bytes_for_text")
def splits_the_text_of_each_chunk(chunks):
    return [line for chunk in chunks for line in str(chunk).split("\n") if line]
