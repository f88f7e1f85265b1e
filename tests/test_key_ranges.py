"""Rows of a table by ranges of keys: nothing twice, nothing lost, and what can be resumed."""

import multiprocessing
import os
import pickle
import sqlite3
from contextlib import closing

import pytest
from torch.utils.data import DataLoader

from course_utils.datasets import KeyRangeRecords
from course_utils.key_ranges import _open, _read_only

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores: on purpose
KEYS = [-5, 0, 1, 2, 3, 7, 8, 1000, 1001, 1002, 10**15]  # gaps of every size


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    assert multiprocessing.active_children() == []
    yield
    assert multiprocessing.active_children() == []


def change(path, *statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


@pytest.fixture
def shop(tmp_path):
    """A table whose rows were not written in key order."""
    rows = [f"INSERT INTO photos VALUES ({key}, 'photo {key}', {place})" for place, key in enumerate(KEYS)]
    change(tmp_path / "shop.db", "CREATE TABLE photos (id INTEGER PRIMARY KEY, name TEXT, price REAL)", *rows[::-1])
    return tmp_path / "shop.db"


def key_of(row):
    return row["id"]


def records_of(path, **how):
    return KeyRangeRecords(path, "photos", **({"transform": key_of} | how))


def read(records, num_workers=0, **options):
    """All that a plain loader hands over, one example at a time."""
    iterator = iter(DataLoader(records, batch_size=None, num_workers=num_workers, **options))
    try:
        return list(iterator)
    finally:
        if num_workers:
            iterator._shutdown_workers()  # an error's traceback would keep them for seconds


# --- which rows


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_row_comes_once_for_any_number_of_workers_and_ranks(shop, num_workers, world_size):
    ranks = [read(records_of(shop, rank=rank, world_size=world_size), num_workers) for rank in range(world_size)]
    assert sorted(key for keys in ranks for key in keys) == KEYS
    assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


@pytest.mark.parametrize("num_rows", [0, 1, 2, 11])
@pytest.mark.parametrize("num_parts", range(1, 15))
def test_ranges_join_in_key_order_and_differ_by_one_row_at_most(shop, num_rows, num_parts):
    change(shop, f"DELETE FROM photos WHERE id > {[-9, *KEYS][num_rows]}")
    parts = [[row["id"] for row in records_of(shop)._rows(part, num_parts)] for part in range(num_parts)]
    assert sum(parts, []) == KEYS[:num_rows]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_rank_may_end_a_batch_before_another(shop):
    ranks = [DataLoader(records_of(shop, rank=rank, world_size=2), batch_size=5) for rank in range(2)]
    assert [len(list(loader)) for loader in ranks] == [1, 2]  # 5 and 6 rows


def test_ranges_of_equal_width_would_leave_workers_without_work(shop):
    low, width, num_workers = KEYS[0], KEYS[-1] - KEYS[0] + 1, 3
    by_width = [sum(num_workers * (key - low) // width == worker for key in KEYS) for worker in range(num_workers)]
    by_count = [len(list(records_of(shop)._rows(worker, num_workers))) for worker in range(num_workers)]
    assert by_width == [10, 0, 1] and by_count == [3, 4, 4]


def test_a_ranks_rows_do_not_depend_on_its_number_of_workers(shop):
    alone = read(records_of(shop, rank=1, world_size=2))
    assert alone == KEYS[5:] and sorted(read(records_of(shop, rank=1, world_size=2), 3)) == alone


def test_a_row_is_a_dict_and_without_a_transform_it_is_collated_as_it_is(shop):
    assert next(iter(KeyRangeRecords(shop, "photos"))) == {"id": -5, "name": "photo -5", "price": 0.0}
    (batch,) = DataLoader(KeyRangeRecords(shop, "photos", after=7), batch_size=8)
    assert batch["id"].tolist() == KEYS[6:] and batch["name"][0] == "photo 8"


def test_order_and_batches_depend_on_the_number_of_workers(shop):
    def batches(num_workers):
        return [batch.tolist() for batch in DataLoader(records_of(shop), batch_size=4, num_workers=num_workers)]

    assert batches(1) == batches(0) == [KEYS[:4], KEYS[4:8], KEYS[8:]]
    assert batches(2) == [KEYS[:4], KEYS[5:9], KEYS[4:5], KEYS[9:]]  # a partial batch from each worker


# --- connections


def test_only_the_path_is_kept_and_the_dataset_can_be_pickled(shop):
    records = records_of(shop)
    iteration = iter(records)
    next(iteration)
    assert not any(isinstance(value, sqlite3.Connection) for value in vars(records).values())
    assert read(pickle.loads(pickle.dumps(records))) == KEYS
    iteration.close()


def test_a_connection_kept_in_the_dataset_could_not_be_sent_to_a_worker(shop):
    records = records_of(shop)
    with closing(sqlite3.connect(shop)) as records.connection, pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(records)


def test_a_spawned_worker_reads_the_same_rows(shop):
    assert read(records_of(shop), 1, multiprocessing_context="spawn") == KEYS


def test_persistent_workers_read_the_table_again_each_epoch(shop):
    loader = DataLoader(records_of(shop), batch_size=None, num_workers=2, persistent_workers=True)
    assert [sorted(loader) for _ in range(2)] == [KEYS, KEYS]


def test_the_database_is_read_only_and_an_ended_iteration_leaves_it_free(shop):
    iteration = iter(records_of(shop))
    next(iteration)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        with closing(sqlite3.connect(shop, timeout=0)) as writer, writer:
            writer.execute("DELETE FROM photos")
    iteration.close()
    change(shop, "DELETE FROM photos WHERE id = 7")
    assert list(shop.parent.iterdir()) == [shop]  # no journal is left
    with closing(_open(shop)) as connection, pytest.raises(sqlite3.OperationalError, match="readonly database"):
        connection.execute("DELETE FROM photos")


def test_a_file_name_may_hold_what_means_something_in_a_uri(shop):
    odd = "100% ä?mode=rwc#1 .db" if os.name != "nt" else "100% ä&mode=rwc#1 .db"  # Windows has no ? in names
    assert read(records_of(shop.rename(shop.with_name(odd)))) == KEYS


@pytest.mark.parametrize(
    "of_path, given",
    [
        ("file:///data/a%20b.db", "file:///data/a%20b.db?mode=ro"),
        ("file:///C:/data/a.db", "file:///C:/data/a.db?mode=ro"),
        ("file://server/share/a%3Fb.db", "file:////server/share/a%3Fb.db?mode=ro"),  # what Path makes of \\server\share
    ],
)
def test_a_database_is_asked_for_by_a_uri_that_names_no_server(shop, of_path, given):
    assert _read_only(of_path) == given
    with closing(sqlite3.connect(f"file:////{str(shop)[1:]}?mode=ro", uri=True)) as connection:  # four are understood
        assert connection.execute("SELECT COUNT(*) FROM photos").fetchone() == (len(KEYS),)


# --- going on


@pytest.mark.parametrize("seen", range(1, len(KEYS) + 1))
def test_after_the_last_key_seen_comes_the_rest(shop, seen):
    assert read(records_of(shop, after=KEYS[seen - 1])) == KEYS[seen:]


def test_a_row_removed_or_added_after_the_key_moves_no_other(shop):
    change(shop, "DELETE FROM photos WHERE id = 1000", "INSERT INTO photos VALUES (500, '', 0)")
    assert read(records_of(shop, after=7)) == [8, 500, 1001, 1002, 10**15]


def test_a_row_added_before_the_key_is_never_read(shop):
    change(shop, "INSERT INTO photos VALUES (5, 'late', 0)")
    assert 5 not in read(records_of(shop, after=7))


def test_after_the_greatest_key_seen_of_several_workers_rows_are_lost(shop):
    loader = DataLoader(records_of(shop), batch_size=None, num_workers=2)
    seen = [key for key, _ in zip(loader, range(4), strict=False)]
    rest = read(records_of(shop, after=max(seen)))
    assert seen == [-5, 7, 0, 8] and sorted({*KEYS} - {*seen, *rest}) == [1, 2, 3]


def test_a_table_that_has_other_rows_than_at_the_start_is_an_error(shop):
    records = records_of(shop)
    change(shop, "INSERT INTO photos VALUES (4, '', 0)")
    for num_workers in (0, 2):
        with pytest.raises(RuntimeError, match="need the 11 rows .* there are 12 now"):
            read(records, num_workers)


def test_an_iteration_sees_the_table_of_one_moment(shop):
    change(shop, "PRAGMA journal_mode = WAL")  # readers and a writer at once
    iteration = iter(records_of(shop))
    seen = [next(iteration)]
    change(shop, "DELETE FROM photos WHERE id > 2")
    assert seen + list(iteration) == KEYS


class WrittenMeanwhile(KeyRangeRecords):
    """Somebody removes rows between the count and the reading."""

    def _count(self, connection):
        counted = super()._count(connection)
        if connection.in_transaction:
            change(self.path, "DELETE FROM photos WHERE id > 2")
        return counted


def test_the_count_and_the_rows_are_of_one_moment(shop):
    change(shop, "PRAGMA journal_mode = WAL")
    assert read(WrittenMeanwhile(shop, "photos", transform=key_of)) == KEYS
    assert read(records_of(shop)) == KEYS[:4]


# --- errors


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_of_the_transform_names_database_table_and_key(shop, num_workers):
    with pytest.raises(TypeError, match=r"while transforming the row of .*shop\.db, table photos, id = 3") as caught:
        read(records_of(shop, transform=fails_at_3), num_workers)
    assert num_workers or caught.value.args == ("no such photo",)


def test_after_an_error_of_the_transform_the_database_can_be_written_to(shop):
    with pytest.raises(TypeError) as caught:
        read(records_of(shop, transform=fails_at_3))
    with closing(sqlite3.connect(shop, timeout=0)) as writer, writer:
        writer.execute("DELETE FROM photos WHERE id = 3")  # the traceback is still there
    assert caught.value.args == ("no such photo",) and read(records_of(shop)) == [key for key in KEYS if key != 3]


def fails_at_3(row):
    if row["id"] == 3:
        raise TypeError("no such photo")
    return row["id"]


def test_an_error_of_the_database_names_database_and_table(shop):
    change(shop, "UPDATE photos SET name = CAST(X'FF' AS TEXT) WHERE id = 7")
    with pytest.raises(sqlite3.OperationalError, match=r"while reading .*shop\.db, table photos"):
        read(records_of(shop))


def test_a_missing_file_is_an_error_that_says_what_is_there_and_makes_none(shop):
    with pytest.raises(FileNotFoundError, match=r"shpo\.db is not there; files in its folder: shop\.db"):
        records_of(shop.with_name("shpo.db"))
    assert list(shop.parent.iterdir()) == [shop]


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "a.db").write_bytes(b"id,name\n" * 200)
    with pytest.raises(ValueError, match=r"a\.db cannot be read as an SQLite database: file is not a database"):
        records_of(tmp_path / "a.db")


@pytest.mark.parametrize("table", ["photo", "Photos", "photos; DROP TABLE photos", 'photos" WHERE 1 --', "", None])
def test_a_table_that_is_not_there_is_refused_and_its_name_is_never_run(shop, table):
    with pytest.raises(ValueError, match="has no table .*; it has: photos"):
        KeyRangeRecords(shop, table)


def test_names_of_tables_and_keys_may_hold_anything(shop):
    odd = 'a "b"; DROP TABLE photos --'
    quoted = '"' + odd.replace('"', '""') + '"'
    change(shop, f"CREATE TABLE {quoted} ({quoted} INTEGER PRIMARY KEY)", f"INSERT INTO {quoted} VALUES (1), (4)")
    assert [row[odd] for row in KeyRangeRecords(shop, odd, after=1)] == [4]
    assert read(records_of(shop)) == KEYS


@pytest.mark.parametrize(
    "columns, said",
    [
        ("name TEXT", "it has: none"),
        ("code TEXT PRIMARY KEY", "it has: code TEXT"),
        ("a INTEGER, b INTEGER, PRIMARY KEY (a, b)", "it has: a INTEGER, b INTEGER"),
        ("id INT PRIMARY KEY", "it has: id INT"),
    ],
)
def test_a_table_without_one_integer_key_is_refused(shop, columns, said):
    change(shop, f"CREATE TABLE other ({columns})")
    with pytest.raises(ValueError, match=f"needs one INTEGER PRIMARY KEY .*{said}"):
        KeyRangeRecords(shop, "other")


@pytest.mark.parametrize(
    "how, said",
    [
        ({"rank": 2, "world_size": 2}, "0 <= rank < world_size"),
        ({"rank": -1}, "0 <= rank < world_size"),
        ({"after": "7; DROP TABLE photos"}, "after must be a key, an integer"),
        ({"after": True}, "after must be a key, an integer"),
        ({"after": 7.0}, "after must be a key, an integer"),
    ],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused(shop, how, said):
    with pytest.raises(ValueError, match=said):
        records_of(shop, **how)
