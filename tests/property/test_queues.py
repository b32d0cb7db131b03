"""Virtual queues (16)–(18)."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flexfl.control import VirtualQueue, next_queue
from strategies import positive

SPENDING = st.lists(st.floats(0, 10), min_size=1, max_size=40)


@given(SPENDING, positive(0.01, 5), st.floats(0, 5), st.floats(0, 1))
def test_never_below_the_floor_and_never_behind_the_spending(spending, budget, initial, floor):
    queue = VirtualQueue(budget, initial=initial, floor=floor)
    start = float(queue.length)
    assert start == max(initial, floor)
    touched = False
    for spent in spending:
        expected = queue.length + spent - budget
        queue.charge(spent)
        touched |= bool(expected < floor)
        assert queue.length >= floor
        assert queue.length >= expected
    total = start + sum(spending) - budget * len(spending)
    if not touched:
        np.testing.assert_allclose(queue.length, total, atol=1e-9)
    assert queue.length >= total - 1e-9


def test_one_line_of_the_paper():
    assert next_queue(1.0, 0.5, 0.25, 0.0) == 1.25
    assert next_queue(0.1, 0.0, 0.25, 0.0) == 0.0
    assert next_queue(0.1, 0.0, 0.25, 0.001) == 0.001


@given(st.lists(st.lists(st.floats(0, 3), min_size=4, max_size=4), min_size=1, max_size=20))
def test_a_shared_queue_is_charged_the_sum_of_its_members(spending):
    shared = VirtualQueue([0.5, 0.2], initial=1.0, members=np.array([0, 0, 1, 0]))
    group, alone = VirtualQueue(0.5, initial=1.0), VirtualQueue(0.2, initial=1.0)
    for spent in spending:
        shared.charge(np.array(spent))
        group.charge(spent[0] + spent[1] + spent[3])
        alone.charge(spent[2])
    np.testing.assert_allclose(shared.pressure[[0, 1, 3]], group.length)
    np.testing.assert_allclose(shared.pressure[2], alone.length)


def test_without_a_limit_there_is_no_pressure():
    queue = VirtualQueue([0.5, np.inf], initial=1.0)
    assert queue.unlimited.tolist() == [False, True]
    queue.charge(np.array([1.0, 100.0]))
    assert queue.length.tolist() == [1.5, 0.0]
