"""What counts say to a reader."""

from __future__ import annotations

import pytest

from lookup_hints.lookup_spec import LookupName
from lookup_hints.metrics.lookup_metrics import CountsByKey, Latencies, LookupMetrics, MaxGauge
from lookup_hints.metrics.readable_summary import (
    Measured,
    Moment,
    bytes_text,
    facts_of,
    in_short,
    live_text,
    seconds_text,
    what_mattered,
)
from lookup_hints.metrics.tables import SessionMetrics

CUSTOMERS, PRICES = LookupName("customers", "c"), LookupName("prices", "p")


def latencies(seconds: float, count: int = 100) -> Latencies:
    return Latencies({Latencies.bucket_of(seconds): count})


def lookups(**counts: LookupMetrics) -> dict[LookupName, Measured]:
    names = {"customers": CUSTOMERS, "prices": PRICES}
    return {names[table]: Measured(names[table], each, 100) for table, each in counts.items()}


def waiting(**waited: float) -> LookupMetrics:
    seconds = CountsByKey(waited)
    return LookupMetrics(
        tasks=4, seconds=100.0, waited=seconds, most_in_flight=MaxGauge(40), latency=latencies(0.31)
    )


def test_the_first_sentence_names_the_lookup_that_was_waited_for_longest() -> None:
    ran = lookups(prices=waiting(source=10.0), customers=waiting(source=82.0, reading=3.0))
    assert what_mattered(ran, 30.0) == (
        "82 % of 100 s in 4 tasks went into waiting for customers: 40 requests in flight of 100, p99 320 ms"
    )


def test_a_wait_that_is_little_of_the_whole_time_is_not_spoken_of() -> None:
    """Of a second in the lookup most went into waiting; of the 22 seconds of the statement, hardly any did."""
    short = LookupMetrics(tasks=1, seconds=0.16, waited=CountsByKey({"source": 0.1}), latency=latencies(0.1))
    assert what_mattered(lookups(customers=short), 22.0) == ""
    assert what_mattered(lookups(customers=short), 0.2).startswith(
        "62 % of 160 ms in 1 task went into waiting"
    )
    idle = LookupMetrics(tasks=1, seconds=0.16, waited=CountsByKey({"reading": 0.15}))
    assert what_mattered(lookups(customers=idle), 22.0) == ""


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (
            "slot",
            "70 % of 100 s in 4 tasks went into waiting for customers, with all of `capacity` in flight: 40 requests",
        ),
        ("budget", "70 % of 100 s in 4 tasks went into waiting for the budget of customers: 40 requests"),
        (
            "throttle",
            "70 % of 100 s in 4 tasks went into waiting, as customers takes no more requests: 40 requests",
        ),
        (
            "outage",
            "70 % of 100 s in 4 tasks went into waiting for the end of an outage of customers: 40 requests",
        ),
        ("retry", "70 % of 100 s in 4 tasks went into waiting to ask customers again: 40 requests"),
    ],
)
def test_the_summary_names_the_main_reason_of_waiting(cause: str, said: str) -> None:
    assert what_mattered(lookups(customers=waiting(**{cause: 70.0, "source": 20.0})), 50.0).startswith(said)


def test_where_the_source_hardly_counts_spark_is_named() -> None:
    assert (
        what_mattered(lookups(customers=waiting(source=2.0, reading=90.0)), 50.0)
        == "Spark was the slow side (90 % of 100 s in 4 tasks)"
    )


def test_where_nothing_was_waited_for_it_says_nothing() -> None:
    assert what_mattered(lookups(customers=waiting(source=1.0)), 50.0) == ""
    assert what_mattered(lookups(customers=LookupMetrics()), 50.0) == ""


def test_one_line_says_what_was_asked_found_missed_and_waited_for() -> None:
    counts = LookupMetrics(
        rows_in=5, keys=3, hits=2, misses=1, waited=CountsByKey({"source": 0.1, "reading": 9.0})
    )
    assert in_short(Measured(CUSTOMERS, counts)) == "c: 3 keys asked for, 2 found, 1 missed, waited 100 ms"
    one = LookupMetrics(keys=1, misses=1, cache_missing=1, retried_keys=1200, errors=1, skipped=4)
    assert in_short(Measured(CUSTOMERS, one)) == (
        "c: 1 key asked for, 0 found, 1 missed, 4 skipped, 1 from the cache, 1,200 asked again,"
        " 1 request failed, waited 0 µs"
    )


def test_the_counts_of_a_session_show_themselves_as_a_table() -> None:
    counts = LookupMetrics(rows_in=5, rows_out=5, keys=3, hits=2, misses=1)
    shown = SessionMetrics({CUSTOMERS: counts, PRICES: LookupMetrics()})
    assert repr(shown).splitlines() == [
        "lookup                  rows in  rows out  keys  requests  hits  misses  retried  errors  waited",
        "customers AS c, line 1        5         5     3         0     2       1        0       0   0.0 s",
    ]
    assert "<td" in shown._repr_html_()
    assert ">customers AS c, line 1</td>" in shown._repr_html_()
    assert repr(SessionMetrics()) == SessionMetrics()._repr_html_() == "no lookup has counted anything"


def test_facts_of_a_lookup_that_had_trouble() -> None:
    counts = LookupMetrics(
        tasks=2,
        seconds=10.0,
        rows_in=1000,
        rows_found=800,
        rows_out=900,
        null_key_rows=5,
        keys=500,
        hits=400,
        misses=95,
        skipped=5,
        unasked_rows=7,
        requests=50,
        retried_keys=20,
        retried_misses=15,
        retried_failures=5,
        throttled=3,
        errors=2,
        errors_by_class=CountsByKey({"OSError": 2}),
        most_in_flight=MaxGauge(7),
        waited=CountsByKey({"retry": 2.0, "source": 6.0}),
        latency=latencies(0.0123),
        bytes_out=12_345,
        bytes_in=3_400_000,
        repeated_tasks=1,
    )
    facts = dict(facts_of(Measured(CUSTOMERS, counts, 100)))
    assert facts == {
        "rows": "1,000 in, 5 with NULL in the key, 800 found, 7 of keys that were not asked, 900 out",
        "keys": "500 asked, 400 found (80 %), 95 missed, 5 skipped",
        "requests": "50 of 10 keys each, at most 7 of 100 in flight in one task; 12 kB out, 3.4 MB in",
        "latency": "p50 12 ms, p95 12 ms, p99 12 ms, max 12 ms",
        "retried": "15 keys after a miss, 5 keys after a failure,"
        " 3 requests after a pause that the source asked for",
        "failed": "2 requests (2 OSError)",
        "time": "10.0 s in 2 tasks, waiting: source 60 %, retry 20 %",
        "repeated": "1 run of tasks, not counted",
    }


def test_facts_of_a_lookup_with_a_cache() -> None:
    counts = LookupMetrics(
        tasks=1,
        rows_in=100,
        keys=100,
        hits=90,
        misses=10,
        requests=1,
        cache_hits=70,
        cache_missing=5,
        cache_misses=25,
        cache_rows=MaxGauge(1200),
        cache_bytes=MaxGauge(3_400_000),
        cache_evicted_by_reason=CountsByKey({"size": 1000, "expired": 7}),
    )
    facts = dict(facts_of(Measured(CUSTOMERS, counts)))
    assert facts["cache"] == (
        "75 keys known (75 %), 5 of them to have no row, 1,200 rows and 3.4 MB held, 1,000 left it (size),"
        " 7 left it (expired)"
    )
    assert facts["requests"].startswith("1 of 25 keys each")


def test_facts_of_a_lookup_without_a_key_or_trouble() -> None:
    facts = dict(
        facts_of(Measured(CUSTOMERS, LookupMetrics(tasks=1, rows_in=3, null_key_rows=3, rows_out=3)))
    )
    assert facts == {
        "rows": "3 in, 3 with NULL in the key, 0 found, 3 out",
        "keys": "0 asked, 0 found, 0 missed",
        "requests": "none",
        "time": "0 µs in 1 task",
    }


def test_a_line_while_it_runs_tells_the_pace_since_the_last_look() -> None:
    before = Moment(LookupMetrics(keys=900, hits=500), 0, 10.0)
    counts = LookupMetrics(
        keys=3000, hits=2400, misses=60, skipped=40, throttled=2, errors=1, latency=latencies(0.031)
    )
    assert live_text("c", Moment(counts, 55, 12.0), before) == (
        "c: 1,000 keys/s, 96 % found, p99 30 ms, 55 keys wait for a retry, 2 throttled, 1 failed"
    )
    assert live_text("c", before, before) == "c: 0 keys/s, 100 % found"
    one = Moment(LookupMetrics(keys=1), 1, 12.0)
    assert live_text("c", one, one) == "c: 0 keys/s, 1 key waits for a retry"


def test_durations_and_sizes_have_the_unit_that_suits_them() -> None:
    assert [seconds_text(each) for each in (0.0, 0.00004, 0.0123, 0.31, 4.2, 312.0)] == [
        *("0 µs", "40 µs", "12 ms", "310 ms", "4.2 s", "312 s")
    ]
    assert [bytes_text(each) for each in (0, 999, 12_345, 3_400_000, 7e9)] == [
        *("0 B", "999 B", "12 kB", "3.4 MB", "7.0 GB")
    ]
