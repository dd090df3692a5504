"""Each decision by itself, on times that are made up."""

from __future__ import annotations

import pytest

from lookup_hints.limits.adaptive_concurrency import START, AdaptiveLimit
from lookup_hints.limits.circuit_breaker import PROBES, Breaker, Pause
from lookup_hints.limits.rate_and_retry_budget import Rate, Retries, Spent
from lookup_hints.limits.shared_limits import CELLS, MOST_LEASES, Leases, SharedLimits, surplus
from lookup_hints.limits.shared_memory_record import Cell, Latest, Record


def cells() -> list[float]:
    return [0.0] * CELLS


class Two(Record):
    first = Cell()
    second = Cell()


def test_records_share_cells_and_do_not_overlap() -> None:
    shared = cells()
    one, other = Two(shared, 0), Two(shared, Two.SIZE)
    one.second, other.first = 1.0, 2.0
    assert (Two(shared).second, Two(shared, 2).first, one.first) == (1.0, 2.0, 0.0)


def test_the_latest_numbers_are_kept() -> None:
    latest = Latest(cells(), 5, 3)
    for number in (1.0, 2.0, 3.0, 4.0):
        latest.add(number)
    assert sorted(latest) == [2.0, 3.0, 4.0]
    latest.clear()
    assert list(latest) == []


# --- the limit


def test_a_limit_doubles_until_the_first_refusal_and_is_halved_by_that() -> None:
    limit = AdaptiveLimit(cells())
    assert limit.allowed(1000) == START
    limit.served(START, START, 0.1, 10.0)
    assert limit.allowed(1000) == 2 * START
    assert limit.refused(10.0, 20, 0.0, 10.5)
    assert limit.allowed(1000) == 10


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    limit = AdaptiveLimit(cells())
    limit.served(100, 4, 0.1, 10.0)
    assert limit.allowed(1000) == START


def test_a_limit_keeps_below_its_bounds() -> None:
    limit = AdaptiveLimit(cells())
    assert limit.allowed(3) == 3
    assert limit.allowed(0.2) == 1


def test_one_round_of_refusals_cuts_once() -> None:
    limit = AdaptiveLimit(cells())
    limit.served(10, 10, 0.1, 10.0)
    assert limit.refused(10.0, 20, 0.0, 10.2)
    assert not limit.refused(10.0, 20, 0.0, 10.21), "it was sent before the cut"
    assert not limit.refused(10.25, 20, 0.0, 10.26), "others were still under way"
    assert limit.refused(10.31, 10, 0.0, 10.32)
    assert limit.allowed(1000) == 9


def test_each_refusal_of_a_round_lowers_the_limit_by_one() -> None:
    limit = AdaptiveLimit(cells())
    limit.served(10, 10, 0.1, 10.0)
    limit.refused(10.0, 20, 0.0, 10.2)
    limit.value = 40.0
    assert limit.refused(11.0, 40, 0.0, 11.5)
    assert limit.allowed(1000) == 36
    for _ in range(14):
        limit.refused(11.0, 40, 0.0, 11.6)
    assert limit.allowed(1000) == 25


def test_it_rests_below_the_fewest_that_were_refused() -> None:
    limit = AdaptiveLimit(cells())
    limit.served(10, 10, 0.1, 10.0)
    for _ in range(5):
        limit.refused(10.0, 20, 30.0, 10.2)
    for _ in range(50):
        limit.served(50, limit.value, 0.1, 20.0)
    assert limit.allowed(1000) == 15, "of 20 in flight 5 were refused, and a twentieth less is left to others"


def test_an_origin_that_refuses_all_that_is_under_way_may_bear_half_of_it() -> None:
    limit = AdaptiveLimit(cells())
    limit.served(10, 10, 0.1, 10.0)
    for _ in range(20):
        limit.refused(10.0, 20, 30.0, 10.2)
    assert limit.allowed(1000) == 1
    for _ in range(50):
        limit.served(50, limit.value, 0.1, 20.0)
    assert limit.allowed(1000) == 10


def test_it_rests_below_what_was_refused_and_tries_again_later() -> None:
    limit = AdaptiveLimit(cells())
    limit.served(90, 10, 0.1, 10.0)
    limit.value = 40.0
    limit.refused(10.0, 40, 0.0, 10.5)
    limit.refused(11.0, 20, 0.0, 11.5)
    for step in range(99):
        limit.served(1, limit.value, 0.1, 12.0 + step / 100)
    assert limit.allowed(1000) == 19
    limit.served(19, limit.value, 0.1, 14.0)
    limit.served(19, limit.value, 0.1, 14.1)
    assert limit.allowed(1000) > 19


def test_where_refusals_cost_a_pause_it_tries_less_often_and_for_one_more_in_that_time() -> None:
    limit = AdaptiveLimit(cells())
    limit.served(1000, 10, 0.1, 10.0)
    limit.refused(10.0, 20, 2.0, 10.5)
    for _ in range(20):
        limit.served(50, limit.value, 0.1, 50.0)
    assert limit.allowed(1000) == 19
    for _ in range(22):
        limit.served(19, limit.value, 0.1, 51.0)
    assert limit.allowed(1000) == 20, "some twenty rounds of 0.1 s are the two seconds of a pause"


def test_where_others_are_served_in_a_pause_trying_costs_the_time_until_that_is_seen() -> None:
    limit = AdaptiveLimit(cells())
    limit.served(1000, 10, 0.1, 10.0)
    limit.refused(10.0, 20, 2.0, 10.5)
    assert limit.tries_at == 50.5
    limit.unpaused(10.7)
    assert limit.tries_at == pytest.approx(10.7 + 20 * 0.2)


def test_a_lost_request_cuts_the_limit_without_marking_it_as_refused() -> None:
    limit = AdaptiveLimit(cells())
    limit.lost(10.0, 10.1)
    assert limit.allowed(1000) == 9
    limit.served(9, 9, 0.1, 11.0)
    assert limit.allowed(1000) == 18


# --- pauses


def test_a_pause_that_the_source_names_holds_and_a_shorter_one_does_not_end_it() -> None:
    pause = Pause(cells())
    pause.asked(10.0, 99.9, 100.0, 0.1)
    pause.asked(2.0, 99.9, 101.0, 0.1)
    assert pause.opens == 110.0
    pause.asked(1e9, 99.9, 101.0, 0.1)
    assert pause.opens == 101.0 + 7 * 86400


def asked(seconds: float = 10.0) -> Pause:
    """At 100, in a round of 0.1 s."""
    pause = Pause(cells())
    pause.asked(seconds, 99.9, 100.0, 0.1)
    return pause


def test_a_pause_ends_for_others_when_one_that_tried_is_served() -> None:
    pause = asked()
    assert not pause.served(99.95, 100.05), "it was under way when the other was refused"
    assert not pause.may_try(100.05)
    assert pause.may_try(100.1)
    pause.tries(100.1)
    assert not pause.may_try(100.2), "one is enough"
    assert not pause.served(99.95, 100.15)
    assert pause.served(100.1, 100.2)
    assert pause.opens == 100.2


def test_a_pause_holds_where_one_that_tried_is_refused_and_the_next_is_not_tried() -> None:
    pause = asked()
    pause.tries(100.1)
    pause.asked(10.0, 100.1, 100.15, 0.1)
    assert pause.opens == 110.15
    assert not pause.may_try(105.0)
    pause.asked(10.0, 111.0, 111.1, 0.1)
    assert not pause.may_try(112.0)
    pause.asked(10.0, 170.0, 170.1, 0.1)
    assert pause.may_try(171.0), "after a minute it may have changed its ways"


def test_a_pause_that_comes_with_an_answer_is_not_tried() -> None:
    pause = Pause(cells())
    pause.asked(10.0, 99.9, 100.0)
    assert not pause.may_try(105.0), "no request is left of its allowance"
    assert pause.worth_asking(100.0, 0.01) == 10.0


def test_a_short_pause_is_waited_for() -> None:
    assert not asked(0.3).may_try(100.2)


def test_who_waits_for_a_pause_looks_again_when_it_may_have_ended() -> None:
    pause = asked()
    assert pause.worth_asking(100.0, 0.01) == pytest.approx(0.1)
    pause.tries(100.1)
    assert pause.worth_asking(100.1, 0.01) == 0.01
    assert pause.worth_asking(103.1, 0.01) == pytest.approx(0.3), "its answer may never come"
    pause.asked(10.0, 100.1, 100.2, 0.1)
    assert pause.worth_asking(100.2, 0.01) == pytest.approx(10.0)


def test_guesses_double_until_a_request_is_served() -> None:
    pause = Pause(cells())
    opens = []
    for sent in (100.0, 100.5, 101.0, 103.0):
        pause.refused(sent, 1.0, sent)
        opens.append(pause.opens - sent)
    assert opens == [1.0, 0.5, 2.0, 4.0], "the second was sent before the pause was over"
    pause.served(109.9, 110.0)
    pause.refused(111.0, 1.0, 111.0)
    assert pause.opens == 112.0


def test_a_guess_is_short_while_others_are_served() -> None:
    pause = Pause(cells())
    pause.served(99.9, 100.0)
    for sent in (101.0, 110.0, 120.0):
        pause.refused(sent, 1.0, sent)
    assert pause.opens == 122.0
    for sent in (200.0, 300.0, 400.0, 500.0):
        pause.refused(sent, 1.0, sent)
    assert pause.opens == 560.0, "nothing was served for long: a minute at most"


# --- the rate


def test_requests_are_due_one_after_the_other() -> None:
    rate = Rate(cells())
    assert [rate.reserve(4.0, 10.0) for _ in range(3)] == [10.0, 10.25, 10.5]


def test_unused_time_of_a_rate_is_lost_but_for_a_moment() -> None:
    rate = Rate(cells())
    rate.reserve(100.0, 10.0)
    due = [rate.reserve(100.0, 20.0) for _ in range(12)]
    assert sum(each <= 20.0 + 1e-9 for each in due) == 10


# --- retries


def test_retries_are_a_fifth_of_first_tries_and_ten_a_second() -> None:
    retries = Retries(cells())
    assert retries.reserve(100, 10.0) == 0.0
    assert retries.reserve(10, 10.0) == pytest.approx(1.0)
    retries.tried(100, 10.0)
    assert retries.reserve(10, 10.0) == 0.0
    assert retries.reserve(10, 10.0) == pytest.approx(1.0 - 0.0, abs=1.0)
    assert Retries(cells()).reserve(200, 10.0) == pytest.approx(10.0)


def test_what_was_saved_up_is_forgotten_with_time() -> None:
    retries = Retries(cells())
    retries.tried(10_000, 10.0)
    assert retries.reserve(1000, 10.0) == 0.0
    later = Retries(cells())
    later.tried(10_000, 10.0)
    assert later.reserve(1000, 100.0) > 0.0


# --- the breaker


def broken(now: float = 100.0) -> Breaker:
    breaker = Breaker(cells())
    opened = [breaker.lost(now, now) for _ in range(20)]
    assert opened == [False] * 19 + [True]
    return breaker


def test_it_opens_when_half_of_the_last_requests_are_lost() -> None:
    breaker = Breaker(cells())
    breaker.answered(100, 99.0, 99.0)
    assert [breaker.lost(100.0, 100.0) for _ in range(50)] == [False] * 49 + [True]
    assert breaker.waits(100.0) == 5.0


def test_few_requests_do_not_open_it_nor_do_old_ones() -> None:
    breaker = Breaker(cells())
    assert not any(breaker.lost(100.0, 100.0 + second) for second in range(40))


def test_after_a_while_a_few_probes_go_out() -> None:
    breaker = broken()
    assert breaker.waits(104.0) == pytest.approx(1.0)
    for _ in range(PROBES):
        assert breaker.waits(105.0) == 0.0
        breaker.probes(105.0)
    assert breaker.waits(105.5) == pytest.approx(4.5), "they may have died: others go out later"
    assert breaker.waits(110.0) == 0.0


def test_a_probe_that_is_answered_closes_it() -> None:
    breaker = broken()
    breaker.answered(1, 99.0, 106.0)
    assert breaker.opened_at, "it was sent before"
    breaker.probes(105.0)
    breaker.answered(1, 105.0, 106.0)
    assert not breaker.opened_at
    assert breaker.waits(106.0) == 0.0
    assert not breaker.lost(107.0, 107.0)


def test_a_probe_that_is_lost_opens_it_for_longer_up_to_a_minute() -> None:
    breaker, now, waits = broken(), 100.0, []
    for _ in range(5):
        now += breaker.waits(now)
        breaker.probes(now)
        breaker.lost(now, now)
        waits.append(breaker.waits(now))
    assert waits == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert breaker.opened_at == 100.0


# --- leases


def test_permits_are_granted_up_to_the_limit_and_come_back() -> None:
    leases = Leases(cells())
    one, other = leases.begin(1, 1e9), leases.begin(2, 1e9)
    assert one is not None
    assert other is not None
    assert leases.grant(one, 8, 10, 1.0) == 8
    assert leases.grant(other, 5, 10, 2.0) == 2
    assert leases.fair == 5.0, "the other lacks what is fair"
    assert surplus(one.held, leases.fair) == 3
    leases.give_back(one, 3, 10)
    assert leases.grant(other, 3, 10, 3.0) == 3
    assert leases.held == 10


def test_no_permit_is_kept_above_a_limit_that_came_down() -> None:
    leases = Leases(cells())
    tasks = [lease for number in range(1, 5) if (lease := leases.begin(number, 1e9))]
    for lease in tasks:
        leases.grant(lease, 8, 32, 1.0)
    leases.share(29)
    assert surplus(8, leases.fair) == 0, "none holds a whole one above what is fair"
    for lease in tasks:
        leases.give_back(lease, surplus(lease.held, leases.fair, leases.excess), 29)
    assert leases.held == 29
    assert [lease.held for lease in tasks] == [7, 7, 7, 8]


def test_who_waited_for_longer_is_first() -> None:
    leases = Leases(cells())
    one, two, three = (leases.begin(number, 1e9) for number in (1, 2, 3))
    assert one is not None
    assert two is not None
    assert three is not None
    leases.grant(one, 1, 1, 1.0)
    assert leases.grant(two, 1, 1, 2.0) == 0
    assert surplus(one.held, leases.fair) == 1, "there is less than one for each: it goes round"
    leases.give_back(one, 1, 1)
    assert leases.grant(three, 1, 1, 3.0) == 0
    assert leases.grant(two, 1, 1, 3.0) == 1


def test_permits_of_dead_and_silent_tasks_are_returned() -> None:
    leases = Leases(cells())
    dead, silent, alive = leases.begin(1, 1e9), leases.begin(2, 50.0), leases.begin(3, 1e9)
    for lease in (dead, silent, alive):
        assert lease is not None
        leases.grant(lease, 2, 6, 1.0)
    leases.drop_lost(lambda process: process != 1, 60.0)
    assert leases.held == 2
    again = leases.begin(4, 1e9)
    assert again is not None
    assert again.ticket == 4


@pytest.mark.work(4)
def test_there_are_leases_for_a_large_executor_and_no_more() -> None:
    limits = SharedLimits(cells())
    assert all(limits.leases.begin(7, 1e9) for _ in range(MOST_LEASES))
    assert limits.leases.begin(7, 1e9) is None
    assert limits.spent.send(1, 1), "it lies behind them"


# --- statements


def test_requests_of_a_statement_are_counted_up_to_the_last_one() -> None:
    spent = Spent(cells())
    assert [spent.send(7, 3) for _ in range(5)] == [True, True, True, False, False]
    assert spent.send(0, 3)
    assert spent.send(8, 1)


def test_the_oldest_statements_are_forgotten() -> None:
    spent = Spent(cells())
    for statement in range(100):
        assert spent.send(statement, 1)
    assert not spent.send(99, 1)
