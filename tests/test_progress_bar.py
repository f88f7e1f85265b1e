import io

import pytest

from course_utils.progress_bar import SECONDS, planned_updates, postfix, progress_bar

ROW = {"step": 1, "epoch": 0, "loss": 0.41234, "lr": 1e-3, "grad_norm": 1.25, "wait_ms": 10.0}


class Bar:
    """In the place of tqdm's: what it was told."""

    def __init__(self, **how):
        self.how, self.calls = how, []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.calls.append("closed")

    def set_postfix_str(self, text, refresh):
        assert not refresh  # a redraw for each text
        self.text = text

    def update(self, rows):
        self.calls.append((rows, self.text))


@pytest.fixture
def bars(monkeypatch):
    made = []
    monkeypatch.setattr("tqdm.auto.tqdm", lambda **how: made.append(Bar(**how)) or made[-1])
    return made


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_bar_is_drawn_by_time_and_loses_no_update(bars):
    clock = Clock()
    with progress_bar(30, made=5, clock=clock) as show:
        for number in range(1, 24):
            clock.now += SECONDS / 10
            show(ROW | {"loss": float(number)})
    drawn = bars[0].calls
    assert sum(rows for rows, _ in drawn[:-1]) == 23 and len(drawn) - 1 in (3, 4)  # 23 tenths of a look, in floats
    assert drawn[-1] == "closed" and "loss=23.000" in drawn[-2][1]
    assert bars[0].how["total"] == 30 and bars[0].how["initial"] == 5


def test_the_share_of_waiting_is_that_since_the_last_drawing(bars):
    clock = Clock()
    with progress_bar(None, made=0, clock=clock) as show:
        for wait_ms in (50.0, 25.0, 0.0, 10_000.0):
            clock.now += 0.25
            show(ROW | {"wait_ms": wait_ms})
    assert [text.split("wait=")[1] for _, text in bars[0].calls[:-1]] == ["20%", "10%", "0%", "100%"]


def test_the_last_rows_are_shown_also_where_the_run_fails(bars):
    with pytest.raises(KeyError), progress_bar(9, made=0, clock=Clock()) as show:
        show(ROW)
        raise KeyError
    assert [rows for rows, _ in bars[0].calls[:-1]] == [1]
    with progress_bar(9, made=0, clock=Clock()):
        pass
    assert bars[1].calls == ["closed"]  # nothing to show


def test_a_bar_goes_into_a_text_where_one_is_given(bars):
    text, clock = io.StringIO(), Clock()
    with progress_bar(8, made=3, file=text, clock=clock) as show:
        for _ in range(5):
            show(ROW)
            clock.now += 0.02
    first, *_, last = text.getvalue().rstrip().split("\r")
    assert bars == [] and last.startswith("100%") and "8/8" in last
    assert last.endswith(f"{postfix(ROW, 0.5)}]") and "loss" not in first


def test_the_words_are_loss_lr_norm_and_waiting():
    assert postfix(ROW, 0.04) == "loss=0.412, lr=0.001, norm=1.2, wait=4%"


@pytest.mark.parametrize(
    "batches, accumulate, num_epochs, num_steps, planned",
    [
        (10, 1, 2, None, 20),
        (10, 4, 2, None, 6),
        (10, 4, 2, 5, 5),
        (10, 4, 1, 5, 3),
        (0, 1, 2, None, None),
        (0, 1, 2, 7, 7),
    ],
)
def test_planned_updates_are_the_smaller_total(batches, accumulate, num_epochs, num_steps, planned):
    how = {"accumulate": accumulate, "num_epochs": num_epochs, "num_steps": num_steps}
    assert planned_updates(range(batches), **how) == planned
