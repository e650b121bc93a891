"""A/A through the running gateway: two equal groups, told apart by nothing but a label.

Whatever the judge calls worse here is a false alarm. The runs are made once; each test looks at
one thing that they must show. What the clients do (conversations, prompts, who is refused) and who
is put into which arm are drawn from the runs' numbers, so they are the same each time; latencies
are real.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from canary.report import StopReason
from canary.session import observe
from slo.burn_rate import clopper_pearson
from slo.records import Outcome
from slo.verdict import Verdict
from tests.aa.campaign import ALPHA, SHARE, Campaign, Run, comparison, run_campaign
from tests.aa.conversations import CONVERSATIONS
from tests.aa.processes import REPLICAS

Say = Callable[[str], None]

RUNS = 200
MOST_FAILS = 6
"""More than this many of 200 have a chance of 0.4 % when each is a false alarm with 1 %."""

MOST_ALARMS = 2
"""Alarms of the split's own check: 0.2 are expected at 1 in 1,000, more than 2 at 0.1 %."""

SECONDS_ALLOWED = 300.0
CORES = 2

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder: Path = tmp_path_factory.mktemp("aa")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_campaign(folder, RUNS))


def judged_again(run: Run, unit: str) -> Verdict:
    """Judge the stored pages at the edge of what may be called equal: a latency ratio of 1."""
    accepted_after = run.config.accepted_after
    assert accepted_after is not None
    assert run.config.lease_id is not None
    assert run.config.effect is not None
    config = comparison(
        accepted_after,
        run.config.lease_id,
        run.config.effect.item_id,
        unit=unit,
        latency_fail_ratio=1.0,
    )
    return observe(config, run.pages).verdict


@pytest.fixture
def say(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Say:
    """Print a figure, whether the test passes or not."""
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    assert reporter is not None

    def line(text: str) -> None:
        with capfd.disabled():
            reporter.write_line(f"\n{text}")

    return line


def counted(verdicts: list[Verdict], what: str) -> tuple[int, str]:
    """Return the false alarms, and a line about them."""
    count = verdicts.count(Verdict.FAIL)
    low, high = clopper_pearson(count, len(verdicts))
    return count, f"{what}: {count} FAIL in {len(verdicts)} runs, 95 % {low:.2%} to {high:.2%}"


def test_equal_groups_are_hardly_ever_called_worse(campaign: Campaign, say: Say):
    assert len(campaign.runs) == RUNS
    fails, line = counted([run.report.verdict for run in campaign.runs], "as configured by default")
    say(line)
    assert fails <= MOST_FAILS


def test_nor_are_they_at_the_edge_of_what_may_be_called_equal(campaign: Campaign, say: Say):
    verdicts = [judged_again(run, "conversation") for run in campaign.runs]
    fails, line = counted(verdicts, "latency ratio 1, per conversation")
    say(line)
    assert fails <= MOST_FAILS


def test_a_judge_that_counts_requests_one_by_one_breaks_the_bound_on_the_same_pages(
    campaign: Campaign, say: Say
):
    verdicts = [judged_again(run, "request") for run in campaign.runs]
    count, line = counted(verdicts, "latency ratio 1, per request (mutant)")
    say(line)
    assert count > MOST_FAILS
    assert clopper_pearson(count, RUNS)[0] > ALPHA


def test_no_run_ends_for_lack_of_evidence_from_the_gateway(campaign: Campaign):
    reasons = Counter(run.report.reason for run in campaign.runs)
    assert not {StopReason.GAP, StopReason.LEASE_LOST, StopReason.GUARD} & reasons.keys(), reasons
    for run in campaign.runs:
        assert run.report.effect is not None
        assert run.report.effect.exposed > 0
        assert (run.report.effect.touched, run.report.effect.state) == (0, "not_expected")


def test_every_request_of_a_client_has_exactly_one_record(campaign: Campaign):
    for run in campaign.runs:
        records = run.records
        assert Counter((record.unit, record.status) for record in records) == run.sent
        sequences = [record.seq for record in records]
        assert len(set(sequences)) == len(sequences)
        assert not any(record.probe or record.flags == ("transport",) for record in records)


def test_a_conversation_stays_in_its_arm_and_on_its_replica(campaign: Campaign):
    for run in campaign.runs:
        places: dict[str, set[tuple[str, str, str]]] = {}
        firsts: Counter[str] = Counter()
        for record in run.records:
            place = (record.arm, record.assigned, record.replica)
            places.setdefault(record.unit, set()).add(place)
            firsts[record.unit] += record.first_of_unit
        assert len(places) == CONVERSATIONS
        assert all(len(seen) == 1 for seen in places.values())
        assert set(firsts.values()) == {1}
        for arm, _, replica in {place for seen in places.values() for place in seen}:
            assert arm == ("chaos" if replica == run.chaos else "control")


def test_the_arms_have_their_share_and_every_replica_the_same_load(campaign: Campaign):
    units = [
        (run.number, record.unit, record.arm, record.replica)
        for run in campaign.runs
        for record in run.records
        if record.first_of_unit
    ]
    total = RUNS * CONVERSATIONS
    assert len(units) == len({unit[:2] for unit in units}) == total
    # 5 standard deviations of a binomial count: 346 of 6,000 units.
    bound = 5.0 * (total * SHARE * (1.0 - SHARE)) ** 0.5
    counts = Counter(arm for *_, arm, _ in units)
    assert abs(counts["chaos"] - SHARE * total) < bound, counts
    loads = Counter(replica for *_, replica in units)
    assert set(loads) == set(REPLICAS)
    assert all(abs(load - total / len(REPLICAS)) < bound for load in loads.values()), loads


def test_the_check_of_the_split_is_silent(campaign: Campaign):
    reports = [run.report.judge for run in campaign.runs]
    assert sum(report is None or report.srm_alarm for report in reports) <= MOST_ALARMS


def test_the_clients_really_differ_and_some_fail(campaign: Campaign):
    """Else the mutant would have nothing to trip over, and the judge nothing to be right about."""
    records = [record for run in campaign.runs for record in run.records]
    outcomes = Counter(record.outcome for record in records)
    assert outcomes[Outcome.OK] > 0.9 * len(records)
    assert outcomes[Outcome.HTTP_ERROR] > 0.03 * len(records)
    slow = sorted(record.ttft_s for record in records if record.ttft_s is not None)
    assert slow[len(slow) * 9 // 10] > 1.5 * slow[len(slow) // 10]


def test_it_fits_into_five_minutes_of_two_cores(campaign: Campaign, say: Say):
    """Processor time is bounded, not wall time: neighbours on the machine do not count."""
    spent = campaign.processor_seconds
    say(
        f"{campaign.requests} requests in {campaign.seconds:.0f} s"
        f" ({campaign.requests / campaign.seconds:.0f} a second); processor seconds: "
        + ", ".join(f"{name} {seconds:.0f}" for name, seconds in spent.items())
        + f"; gateway {spent['gateway'] / campaign.requests * 1e3:.2f} ms a request"
    )
    assert sum(spent.values()) / CORES < SECONDS_ALLOWED
    assert max(spent.values()) < SECONDS_ALLOWED
