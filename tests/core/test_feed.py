"""Positions in the change feed: one integer for a commit and a place in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgeq.core.feed import commit_and_place, position_of

COMMITS = st.integers(0, 2**42)
PLACES = st.integers(0, 2**20 - 1)


@given(COMMITS, PLACES)
def test_a_position_names_its_commit_and_its_place(commit: int, place: int) -> None:
    assert commit_and_place(position_of(commit, place)) == (commit, place)


@given(st.tuples(COMMITS, PLACES), st.tuples(COMMITS, PLACES))
def test_positions_are_in_the_order_of_commits_and_then_of_places(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert (position_of(*one) < position_of(*other)) == (one < other)


@given(COMMITS, PLACES)
def test_a_position_fits_the_integers_of_a_database(commit: int, place: int) -> None:
    assert 0 <= position_of(commit, place) < 2**63


def test_a_commit_begins_where_nothing_of_it_was_seen() -> None:
    assert position_of(0, 0) == 0
    assert commit_and_place(position_of(8, 0) - 1)[0] == 7
