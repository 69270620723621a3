"""Cases that one test tries: every one of them, and the names of those that fail."""

from __future__ import annotations

import inspect

import pytest

from support import cases, laws
from support.cases import each, share


def test_every_case_is_tried_and_those_that_fail_are_named() -> None:
    tried = []

    @each("number, word", [(1, "a"), (2, "b"), (3, "c")], ids=lambda case: f"{case[1]}-{case[0]}")
    def test(fixture: str, number: int, word: str) -> None:
        tried.append((fixture, number, word))
        if number == 2:
            pytest.fail("as a test fails")
        assert word == "a"

    assert [*inspect.signature(test).parameters] == ["fixture"]
    with pytest.raises(pytest.fail.Exception, match="as a test fails") as caught:
        test(fixture="x")
    assert caught.value.__notes__ == ["2 of 3 cases fail, this one first: b-2, c-3"]
    assert tried == [("x", 1, "a"), ("x", 2, "b"), ("x", 3, "c")]


def test_what_skips_a_case_is_no_test_of_many() -> None:
    @each("number", [1])
    def test(number: int) -> None:
        pytest.skip("not here")

    with pytest.raises(AssertionError, match="1 is skipped"):
        test()


def test_only_some_cases_are_tried_where_so_many_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert share(range(9), 3) == [0, 4, 8]
    assert share([1, 2], 3) == [1, 2]
    tried = []
    monkeypatch.setattr(cases, "CASES", 2)

    @each("number", range(9))
    def test(number: int) -> None:
        tried.append(number)

    test()
    assert tried == [0, 8]


def test_so_many_days_in_a_row_try_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    for day in (20_000, 20_001, 20_002):
        monkeypatch.setattr(laws, "SEED", day)
        tried.append(laws.of_the_day(range(10), 3, whole=False))
    assert tried == [[2, 5, 8], [0, 3, 6, 9], [1, 4, 7]]
    assert laws.of_the_day(range(10), 3, whole=True) == [*range(10)]
