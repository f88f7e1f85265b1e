import signal
import threading

import pytest

from course_utils.interrupts import stop_at_boundary

SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def handlers_as_before():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_a_request(number):
    with stop_at_boundary() as stop:
        assert stop.requested is None
        signal.raise_signal(number)
        assert stop.requested == number.name


def test_a_second_ctrl_c_stops_at_once():
    with pytest.raises(KeyboardInterrupt), stop_at_boundary() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert stop.requested == "SIGINT"


def test_a_second_signal_goes_to_the_handler_that_was_there():
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    with stop_at_boundary():
        signal.raise_signal(signal.SIGTERM)
        assert seen == []
        signal.raise_signal(signal.SIGTERM)
    assert seen == [signal.SIGTERM]


def test_handlers_are_put_back_also_on_an_exception():
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyError), stop_at_boundary():
        assert [signal.getsignal(number) for number in SIGNALS] != before
        raise KeyError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_another_thread_changes_no_handler():
    before, seen = signal.getsignal(signal.SIGINT), []

    def work():
        with stop_at_boundary() as stop:
            seen.append((signal.getsignal(signal.SIGINT), stop.requested))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, None)]


def test_a_signal_that_was_ignored_on_purpose_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_at_boundary() as stop:
            signal.raise_signal(signal.SIGINT)
        assert stop.requested is None and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
