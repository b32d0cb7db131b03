"""Looking on at a run in another process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flexfl.deploy.watching import watch
from flexfl.errors import FlexFLError
from flexfl.results.observer import Live


def told(iteration: int, state: str = "training") -> Live:
    return Live(10, iteration, {}, {}, {}, None, {"state": state})


def after(looks: Iterator[Live | None], last: Live | None) -> Live | None:
    return next(looks, last)


def test_every_change_is_passed_on_until_the_run_has_ended() -> None:
    looks = iter([None, told(1), told(2), told(10, "finished")])
    seen: list[Live] = []
    end = watch(lambda: after(looks, None), lambda: True, on_live=seen.append, every=0)
    assert [live.iteration for live in seen] == [1, 2, 10]
    assert end == told(10, "finished")


def test_what_an_earlier_part_told_is_not_taken_for_the_end() -> None:
    earlier = told(5, "stopped")
    looks = iter([earlier, earlier, told(6), told(10, "finished")])
    seen: list[Live] = []
    end = watch(lambda: after(looks, None), lambda: True, before=earlier, on_live=seen.append, every=0)
    assert [live.iteration for live in seen] == [6, 10]
    assert end.iteration == 10


def test_a_part_that_ends_where_the_earlier_one_did_has_ended() -> None:
    earlier = told(5, "stopped")
    assert watch(lambda: earlier, lambda: False, before=earlier, every=0) == earlier


def test_a_run_that_is_gone_without_a_word_is_an_error() -> None:
    with pytest.raises(FlexFLError, match=r"ended without a word; see log\.txt"):
        watch(lambda: told(3), lambda: False, every=0)
