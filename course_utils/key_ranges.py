"""Rows of an SQLite table as a stream: each worker of each rank reads a range of keys of its own, in key order.

It knows no loader and keeps no position: `DataLoader(KeyRangeRecords(...), batch_size=...)`. Re-exported by `datasets`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from course_utils.batches import naming

_SHOWN = 8


class KeyRangeRecords(IterableDataset):
    """The rows of a table with an integer primary key, each once, shared out over ranks and workers.

    path      : an SQLite database; it is opened read-only
    table     : a table in it with one INTEGER PRIMARY KEY, spelled as in the database
    after     : read the rows whose key is greater; None for all
    rank, world_size : this rank reads the rank-th of world_size ranges; their sizes differ by one row at most
    transform : row {column: value} -> example; what it draws is not keyed, as it is in `ShardedRecords`
    raises    : FileNotFoundError for a missing file; ValueError for what is no database, a table that is not there or
                has another key, arguments that do not fit; while reading, RuntimeError where the table has other rows
                than when this was made. An error of the transform gets a note with database, table and key

    Only the path is kept: every iteration opens a connection of its own, where it reads. A connection made in
    `__init__` could not be pickled for a worker, and a forked worker must not use its parent's. `num_rows` counts the
    rows of all ranks. Ranges hold equally many rows, also where keys have gaps; to find its range a worker walks over
    the keys before it. One rank may end a batch before another: a loop whose ranks wait for each other would hang. All
    reading is one transaction, row by row: of the table nothing else is in memory.

    There is no `state_dict`. A cursor is a place inside one connection of one process; nobody else can take it up. The
    key is a position that anybody can: `after=` the last key seen gives the rest, as long as no row with a smaller key
    is added or removed, and only where one reader has read (one rank, 0 or 1 workers). Several workers are each in the
    midst of a range, so the greatest key seen would leave rows out. Order and batches depend on the number of workers;
    those of `ShardedRecords` do not.

    Source: SQLite's "URI filenames" (mode=ro) and "How to corrupt an SQLite database file", section 2.6 (fork).
    """

    def __init__(
        self,
        path: str | os.PathLike,
        table: str,
        *,
        after: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        transform: Callable[[dict[str, Any]], Any] | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"need 0 <= rank < world_size, got rank={rank}, world_size={world_size}")
        if after is not None and (isinstance(after, bool) or not isinstance(after, int)):
            raise ValueError(f"after must be a key, an integer, or None; got {after!r}")
        self.path, self.table, self.after, self.transform = Path(path), table, after, transform
        self.rank, self.world_size = rank, world_size
        with closing(_open(self.path)) as connection:  # closed again before any worker starts
            self.key = _integer_key(connection, self.path, table)
            self.num_rows = self._count(connection)

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        worker, num_workers = (info.id, info.num_workers) if info else (0, 1)
        for row in self._rows(self.rank * num_workers + worker, self.world_size * num_workers):
            with naming(lambda key=row[self.key]: f"while transforming the row of {self._place(key)}"):
                example = row if self.transform is None else self.transform(row)
            yield example

    def _rows(self, part: int, num_parts: int) -> Iterator[dict[str, Any]]:
        """The rows of one range out of `num_parts`, in key order."""
        start, stop = (self.num_rows * number // num_parts for number in (part, part + 1))
        ordered = f"FROM {_quoted(self.table)} WHERE {self._condition()} ORDER BY {_quoted(self.key)} LIMIT ? OFFSET ?"
        with closing(_open(self.path)) as connection, naming(lambda: f"while reading {self._place()}"):
            connection.execute("BEGIN")  # the count and the rows are of one moment, whatever others write
            if (now := self._count(connection)) != self.num_rows:
                raise RuntimeError(
                    f"need the {self.num_rows} rows that were there when this dataset was made, there are {now} now: "
                    "workers would read rows twice or never; make the dataset anew"
                )
            cursor = connection.execute(f"SELECT * {ordered}", (stop - start, start))
            names = [column[0] for column in cursor.description]
            for values in cursor:
                yield dict(zip(names, values, strict=True))

    def _count(self, connection: sqlite3.Connection) -> int:
        query = f"SELECT COUNT(*) FROM {_quoted(self.table)} WHERE {self._condition()}"
        return connection.execute(query).fetchone()[0]

    def _condition(self) -> str:
        return "1" if self.after is None else f"{_quoted(self.key)} > {int(self.after)}"

    def _place(self, key: int | None = None) -> str:
        return f"{self.path}, table {self.table}" + ("" if key is None else f", {self.key} = {key}")


def _open(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        beside = sorted(other.name for other in path.parent.glob("*") if other.is_file())
        raise FileNotFoundError(f"{path} is not there; files in its folder: {_listed(beside)}")
    return sqlite3.connect(_read_only(path.absolute().as_uri()), uri=True, isolation_level=None)


def _read_only(uri: str) -> str:
    """What SQLite takes: of a file on a server (file://server/share/..., on Windows) it takes only file:////server."""
    place = uri.removeprefix("file://")
    return f"file://{place if place.startswith('/') else '//' + place}?mode=ro"


def _integer_key(connection: sqlite3.Connection, path: Path, table: str) -> str:
    """The primary key's name. From here on the table is known to be one, and its name is quoted wherever it is used."""
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} cannot be read as an SQLite database: {error}") from error
    if table not in tables:
        raise ValueError(f"{path} has no table {table!r}; it has: {_listed(sorted(tables))}")
    keys = [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({_quoted(table)})") if row[5]]
    if len(keys) != 1 or keys[0][1].upper() != "INTEGER":
        got = ", ".join(f"{name} {kind}" for name, kind in keys) or "none"
        raise ValueError(f"table {table!r} of {path} needs one INTEGER PRIMARY KEY to be read by ranges; it has: {got}")
    return keys[0][0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none"
