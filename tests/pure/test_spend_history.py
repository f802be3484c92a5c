"""Days of the calendar and notices that belong together, whatever is thrown at them."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from herma.review.spending import SpendRows, Stopped, history, last_days, local_day, together
from herma.testing import FixedClock

MOMENTS = st.floats(1.6e9, 1.6e9 + 10 * 86_400)
NOTED = st.lists(st.builds(Stopped, MOMENTS, st.sampled_from(["review", "tidy"]), st.text(max_size=5)))


@given(st.dates(date(1971, 1, 1), date(2200, 1, 1)), st.integers(1, 400))
def test_days_follow_one_another_and_end_today(today: date, count: int) -> None:
    days = [date.fromisoformat(day) for day in last_days(today.isoformat(), count)]
    assert len(days) == count
    assert days[-1] == today
    assert all((after - before).days == 1 for before, after in pairwise(days))


@given(NOTED)
def test_one_notice_for_each_day_and_purpose(noted: list[Stopped]) -> None:
    found = together(noted)
    assert {(local_day(one.at), one.purpose) for one in found} == {(local_day(one.at), one.purpose) for one in noted}
    assert sum(one.times for one in found) == len(noted)
    assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)
    for one in found:
        assert one.at == max(o.at for o in noted if (local_day(o.at), o.purpose) == (local_day(one.at), one.purpose))


def test_no_days_are_none_at_all() -> None:
    class Nothing:
        def newest(self, limit: int) -> list[object]:
            return []

    rows: SpendRows = Nothing()  # type: ignore[assignment]
    assert history(rows, [], FixedClock()(), days=0, calls=0).days == ()
