"""A function is ended when its time is up, and nothing of that reaches later code."""

import sys
import threading
import time

import pytest
import torch

from course_utils.exercises import limit
from course_utils.exercises.limit import StillRunning, call_with_limit


def plain():
    while True:
        pass


def swallows_exceptions():
    while True:
        try:
            sum(range(1000))
        except Exception:
            pass


def swallows_everything():
    while True:
        try:
            sum(range(1000))
        except:  # noqa: E722 - that is the case
            pass


def sleeps_and_swallows_everything():
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            continue


def waits_in_short_sleeps():
    while True:
        time.sleep(0.02)


def lists_an_endless_generator():
    return sum(1 for _ in iter(int, 1))


def trains_for_ever():
    weight = torch.zeros(3, requires_grad=True)
    while True:
        (weight * weight).sum().backward()


ENDLESS = [
    plain,
    swallows_exceptions,
    swallows_everything,
    sleeps_and_swallows_everything,
    waits_in_short_sleeps,
    lists_an_endless_generator,
    trains_for_ever,
]


@pytest.mark.parametrize("fn", ENDLESS, ids=lambda fn: fn.__name__)
def test_an_endless_function_is_ended_and_nothing_arrives_later(fn):
    with pytest.raises(StillRunning, match="still running after 0.1 s"):
        call_with_limit(fn, seconds=0.1)
    assert not any(thread.name == "time limit" for thread in threading.enumerate())
    assert sum(1 for _ in range(10_000)) == 10_000


def test_results_and_errors_come_through():
    assert call_with_limit(lambda a, b: a + b, 2, b=3, seconds=5) == 5
    for error in (ZeroDivisionError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            call_with_limit(_raises, error, seconds=5)


def _raises(error):
    raise error


def test_a_call_in_time_is_sent_nothing_so_that_profilers_and_debuggers_go_on(monkeypatch):
    """Python 3.11 stops for ever where PyThreadState_SetAsyncExc(thread, NULL) is called under a profile function."""
    sent = []
    monkeypatch.setattr(limit, "_send", lambda *what: sent.append(what))
    assert call_with_limit(lambda: 7, seconds=60) == 7 and sent == []


def test_it_works_in_a_thread_and_inside_another_limit():
    ended = []
    thread = threading.Thread(target=lambda: ended.append(_is_ended(plain)))
    thread.start()
    thread.join(10)
    assert ended == [True] and call_with_limit(lambda: _is_ended(plain), seconds=5)
    assert _is_ended(lambda: call_with_limit(plain, seconds=5))


def _is_ended(fn) -> bool:
    try:
        call_with_limit(fn, seconds=0.1)
    except StillRunning:
        return True
    return False


def test_a_function_that_takes_as_long_as_its_limit_gives_a_result_or_still_running():
    interval = sys.getswitchinterval()
    outcomes = {_takes_about_its_limit() for _ in range(60)}
    assert outcomes <= {"a result", "still running"} and sys.getswitchinterval() == interval


def _takes_about_its_limit() -> str:
    def busy():
        end = time.perf_counter() + 0.005
        while time.perf_counter() < end:
            pass
        return "a result"

    try:
        return call_with_limit(busy, seconds=0.0048)
    except StillRunning:
        return "still running"


@pytest.mark.parametrize("make", [lambda caller: limit._TimeIsUp, limit._sends_another], ids=["once", "twice"])
def test_what_is_sent_while_the_call_ends_gets_no_further(make, monkeypatch):
    def sends_when_woken(caller, wake, seconds):
        wake.acquire()
        limit._send(caller, make(caller))
        return True

    monkeypatch.setattr(limit, "_send_until_woken", sends_when_woken)
    for _ in range(100):
        with pytest.raises(StillRunning):
            call_with_limit(lambda: 1, seconds=5)
        assert sum(1 for _ in range(100)) == 100


def test_the_last_thing_sent_takes_back_what_was_not_received(monkeypatch):
    sent = []
    monkeypatch.setattr(limit, "_send", lambda thread_id, exception: sent.append((thread_id, exception)))
    monkeypatch.setattr(limit, "_send_until_woken", lambda caller, wake, seconds: wake.acquire())
    assert call_with_limit(lambda: 1, seconds=5) == 1
    assert sent == [(threading.get_ident(), None)]
