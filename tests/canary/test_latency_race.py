"""The race of latencies: thresholds from the past only, tails, and requests without a token."""

import random
from math import inf, log

import pytest

from canary.latency_race import LatencyRace, parse_quantile, quantile_name

MARGINS = {"p50": 1.25, "p95": 1.875}


def race_of(count, share=0.5, seed=3, ratio=1.25, chaos=lambda x, rng: x):
    rng, race = random.Random(seed), LatencyRace(share, ratio, MARGINS)
    crossed = None
    for index in range(count):
        value = rng.lognormvariate(-2, 0.4)
        is_chaos = rng.random() < share
        race.add(chaos(value, rng) if is_chaos else value, is_chaos)
        if crossed is None and race.log_e() >= log(100):
            crossed = index
    return race, crossed


def passes(race):
    return {name: item[2].log_e() for name, item in race.passes.items()}


def test_before_fifty_control_latencies_there_is_no_threshold():
    race = LatencyRace(0.5, 1.25, MARGINS)
    for _ in range(49):
        race.add(0.1, False)
        race.add(99.0, True)
    assert not race.started
    assert race.log_e() == 0.0
    assert race.driving_quantile() is None
    race.add(0.1, False)
    assert race.started
    assert race.add(99.0, True)
    assert race.log_e() > 0


def test_a_value_is_never_measured_against_itself():
    race = LatencyRace(0.5, 1.0, MARGINS)
    for index in range(50):
        race.add(1.0 + index, False)
    assert sum(item.control for item in race.fail.values()) == 0


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_slower_by_half_is_harm(share):
    race, crossed = race_of(6000, share, chaos=lambda x, _: x * 1.5)
    assert crossed is not None
    assert race.driving_quantile() is not None
    assert passes(race)["p50"] < 0 < passes(race)["p95"]


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_equal_latencies_pass_and_are_no_harm(share):
    race, crossed = race_of(6000, share)
    assert crossed is None
    assert min(passes(race).values()) > log(100)


def test_a_tail_alone_is_seen_by_a_high_quantile():
    race, crossed = race_of(20_000, chaos=lambda x, rng: x * 5 if rng.random() < 0.06 else x)
    assert crossed is not None
    assert race.driving_quantile() >= 0.9
    assert passes(race)["p50"] > log(100)


def test_requests_without_a_first_token_count_as_the_slowest():
    _, crossed = race_of(4000, chaos=lambda x, rng: inf if rng.random() < 0.1 else x)
    assert crossed is not None


def test_when_both_groups_lack_first_tokens_nothing_is_proven():
    race = LatencyRace(0.5, 1.25, MARGINS)
    for index in range(2000):
        race.add(inf, index % 2 == 0)
    assert race.log_e() == 0.0
    assert max(passes(race).values()) == 0.0


def test_names_of_quantiles_go_both_ways():
    assert [parse_quantile(name) for name in ("p50", "p95", "p99.9")] == [0.5, 0.95, 0.999]
    assert quantile_name(0.95) == "p95"
    for wrong in ("p0", "p100", "95", "px", "p"):
        with pytest.raises(ValueError, match="quantile"):
            parse_quantile(wrong)
