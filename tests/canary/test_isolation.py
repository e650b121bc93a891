"""Whether one tenant noticed another: proven harm, proven peace, or neither."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canary.exposure import Arms, During, while_refused, while_touched
from canary.isolation import Finding, IsolationConfig, IsolationReport, judge_isolation
from slo.records import Outcome, RequestRecord
from slo.tenancy import Tenancy
from slo.verdict import Verdict
from tests.canary.build import record

CONFIG = IsolationConfig(source="a", subject="b")
WINDOW = During(1200.0, 1400.0)
Change = Callable[[bool, random.Random], dict[str, Any]]


def nothing(_exposed: bool, _draw: random.Random) -> dict[str, Any]:
    return {}


def traffic(
    change: Change = nothing, *, count: int = 4200, seed: int = 1, marker: bool = True
) -> list[RequestRecord]:
    """Two requests a unit of `b` over ten minutes; `a` is there in the window only."""
    draw = random.Random(seed)
    made = []
    for n in range(count):
        at = 1000.0 + 600.0 * n / count
        exposed = WINDOW.start <= at <= WINDOW.end
        seconds = draw.lognormvariate(-2, 0.7)
        values = {
            "unit": f"b{n // 2}",
            "tenant": "b",
            "accepted": at,
            "at": at + seconds,
            "ttft_s": seconds,
            "e2e_s": seconds,
            "arm": "",
            "tenancy": Tenancy(billed=12),
            **change(exposed, draw),
        }
        made.append(record(2 * n, **values))
        if exposed:
            planted = Tenancy(billed=12, planted=("a",) if marker else ())
            loud = {"unit": f"a{n}", "tenant": "a", "accepted": at, "at": at + 0.1, "arm": ""}
            made.append(record(2 * n + 1, **loud, tenancy=planted))
    return made


def judge(records: list[RequestRecord], **changes: Any) -> IsolationReport:
    return judge_isolation(records, CONFIG, WINDOW, **changes)


def named(report: IsolationReport, name: str) -> Finding:
    return next(finding for finding in report.findings if finding.name == name)


def arms(slow: float, count: int = 2400, seed: int = 3) -> list[RequestRecord]:
    """Single requests of both tenants, put into the arms by lot."""
    draw = random.Random(seed)
    made = []
    for n in range(count):
        arm = draw.choice(["control", "chaos"])
        seconds = draw.lognormvariate(-2, 0.5) * (slow if arm == "chaos" else 1.0)
        tenancy = Tenancy(billed=5, planted=("a",) if n % 2 else ())
        made.append(record(n, tenant="ba"[n % 2], arm=arm, ttft_s=seconds, tenancy=tenancy))
    return made


def test_tenants_that_do_not_touch_pass_in_all_three():
    report = judge(traffic())
    assert [finding.verdict for finding in report.findings] == [Verdict.PASS] * 3
    assert report.verdict is Verdict.PASS
    assert json.loads(json.dumps(report.to_json()))["verdict"] == "PASS"


HARM: dict[str, tuple[str, Change]] = {
    "all slower": ("latency", lambda exposed, d: {"ttft_s": 0.5 + d.random()} if exposed else {}),
    "a slow tail": (
        "latency",
        lambda exposed, d: {"ttft_s": 4.0} if exposed and d.random() < 0.15 else {},
    ),
    "errors": (
        "latency",
        lambda exposed, d: (
            {"outcome": Outcome.HTTP_ERROR, "status": 500, "ttft_s": None}
            if exposed and d.random() < 0.08
            else {}
        ),
    ),
    "refused for its quota": (
        "quota",
        lambda exposed, d: (
            {
                "outcome": Outcome.SHED,
                "status": 429,
                "ttft_s": None,
                "tenancy": Tenancy(refusal="quota"),
            }
            if exposed and d.random() < 0.1
            else {}
        ),
    ),
    "one wrong bill by a sign": (
        "quota",
        lambda exposed, d: (
            {"tenancy": Tenancy(billed=9, signs=("a",))} if exposed and d.random() < 0.01 else {}
        ),
    ),
    "one wrong bill by what the replica said": (
        "quota",
        lambda exposed, d: (
            {"tenancy": Tenancy(billed=9, echo="a")} if exposed and d.random() < 0.01 else {}
        ),
    ),
    "one leak": (
        "content",
        lambda exposed, d: (
            {"tenancy": Tenancy(billed=9, markers=("a",))} if exposed and d.random() < 0.01 else {}
        ),
    ),
}


@pytest.mark.parametrize("case", HARM)
def test_each_harm_is_found_where_it_is_and_nowhere_else(case: str):
    name, change = HARM[case]
    report = judge(traffic(change))
    assert report.verdict is Verdict.FAIL
    assert [f.name for f in report.findings if f.verdict is Verdict.FAIL] == [name]


HARMLESS: dict[str, Change] = {
    "its own marker": lambda exposed, d: {"tenancy": Tenancy(billed=9, markers=("b",))},
    "a marker that it sent itself": lambda exposed, d: {
        "tenancy": Tenancy(billed=9, planted=("a",), markers=("a",))
    },
    "a sign of a third tenant": lambda exposed, d: {"tenancy": Tenancy(billed=9, signs=("c",))},
    "a conflict that was refused": lambda exposed, d: (
        {"tenancy": Tenancy(billed=0, signs=("a",))} if d.random() < 0.01 else {}
    ),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_is_no_harm_between_the_two_is_none(case: str):
    assert judge(traffic(HARMLESS[case])).verdict is Verdict.PASS


def test_a_tenant_that_asks_for_more_itself_is_not_the_others_victim():
    refused = {
        "outcome": Outcome.SHED,
        "status": 429,
        "ttft_s": None,
        "tenancy": Tenancy(refusal="quota"),
    }
    made = traffic()
    more = [
        record(10**6 + n, unit=f"m{n}", tenant="b", accepted=1200 + n * 0.2, at=1200.1 + n * 0.2,
               arm="", **refused)
        for n in range(1000)
    ]  # fmt: skip
    quota = named(judge(made + more), "quota")
    assert quota.verdict is Verdict.INCONCLUSIVE
    assert "asked for more itself" in quota.reasons[0]


NO_PROOF: dict[str, Callable[[], IsolationReport]] = {
    "no records": lambda: judge([]),
    "no records of the subject": lambda: judge([r for r in traffic() if r.tenant == "a"]),
    "no records of the source": lambda: judge([r for r in traffic() if r.tenant == "b"]),
    "nothing before and after": lambda: judge([r for r in traffic() if WINDOW.of(r)]),
    "nothing in the window": lambda: judge([r for r in traffic() if not WINDOW.of(r)]),
    "no tenants configured": lambda: judge(traffic(lambda e, d: {"tenancy": None}, marker=False)),
    "no marker alive": lambda: judge(traffic(marker=False)),
    "lost records": lambda: judge(traffic(), has_gap=True),
    "twenty requests": lambda: judge(traffic(count=20)),
    "probes only": lambda: judge(traffic(lambda e, d: {"probe": True})),
    "everybody refused": lambda: judge(
        traffic(lambda e, d: {"outcome": Outcome.SHED, "tenancy": Tenancy(refusal="identity")})
    ),
}


@pytest.mark.parametrize("case", NO_PROOF)
def test_what_proves_nothing_is_inconclusive(case: str):
    assert NO_PROOF[case]().verdict is Verdict.INCONCLUSIVE


def test_lost_records_hide_no_failure():
    assert judge(traffic(HARM["one leak"][1]), has_gap=True).verdict is Verdict.FAIL


def test_one_unit_is_one_event_however_often_it_fails():
    """Forty failures of one conversation are one unlucky unit, and no proof of harm."""
    made = traffic()
    bad = {"outcome": Outcome.HTTP_ERROR, "status": 500, "ttft_s": None}
    many = [
        record(10**6 + n, unit="b1", tenant="b", accepted=1250.0 + n, at=1250.5 + n, arm="", **bad)
        for n in range(40)
    ]
    apart = [
        record(10**6 + n, unit=f"x{n}", tenant="b", accepted=1250.0 + n, at=1250.5 + n, arm="",
               **bad)
        for n in range(40)
    ]  # fmt: skip
    first = [record(9, unit="b1", tenant="b", accepted=1249.0, at=1249.5, arm="")]
    made = [each for each in made if each.unit != "b1"]
    assert named(judge(made + first + many), "latency").verdict is not Verdict.FAIL
    assert named(judge(made + apart), "latency").verdict is Verdict.FAIL


def test_false_alarms_are_rare():
    """200 pairs of equal groups: at alpha 1 %, more than seven failures are 1 in 1,000."""
    failed = [judge_isolation(arms(1.0, 300, seed), CONFIG, Arms()).verdict for seed in range(200)]
    assert failed.count(Verdict.FAIL) <= 7


def clumps(scale: float) -> Change:
    """Slow spells of some ten seconds that have nothing to do with the other tenant."""
    state = {"left": 0, "slow": False}

    def change(exposed: bool, draw: random.Random) -> dict[str, Any]:
        if state["left"] == 0:
            state["left"], state["slow"] = draw.randint(20, 60), draw.random() < 0.25
        state["left"] -= 1
        slow = 3.0 if state["slow"] else 1.0
        return {"ttft_s": draw.lognormvariate(-2, 0.4) * slow * (scale if exposed else 1.0)}

    return change


def test_clumps_make_blocks_of_time_the_units_and_hide_no_real_harm():
    false_alarms = 0
    for seed in range(10):
        latency = named(judge(traffic(clumps(1.0), seed=seed)), "latency")
        assert latency.figures["units"] == "blocks of 10 s"
        false_alarms += latency.verdict is Verdict.FAIL
    assert false_alarms <= 1
    harmed = named(judge(traffic(clumps(4.0))), "latency")
    assert (harmed.verdict, harmed.figures["units"]) == (Verdict.FAIL, "blocks of 10 s")


def test_arms_of_a_split_are_compared_by_unit():
    assert judge_isolation(arms(1.0), CONFIG, Arms()).verdict is Verdict.PASS
    report = judge_isolation(arms(3.0), CONFIG, Arms())
    assert (report.verdict, named(report, "latency").figures["units"]) == (Verdict.FAIL, "units")


def test_windows_are_found_in_the_records():
    made = traffic()
    a = [each for each in made if each.tenant == "a"]
    assert while_touched(made, "a", "F") is None
    assert while_refused(made, "a") is None
    touched = [record(10**6, tenant="a", accepted=1210.0, at=1215.0, touched=("F",))]
    refused = [record(10**6 + 1, tenant="a", accepted=1300.0, at=1300.5,
                      tenancy=Tenancy(refusal="quota"))]  # fmt: skip
    assert while_touched(a + touched, "a", "F") == During(1210.0, 1215.0)
    assert while_touched(a + touched, "b", "F") is None
    assert while_refused(a + refused, "a") == During(1300.0, 1300.5)


def test_what_hangs_over_an_edge_is_in_neither_group():
    inside = record(1, accepted=1250.0, at=1450.0)
    over_the_start = record(2, accepted=1190.0, at=1210.0)
    just_after = record(3, accepted=1405.0, at=1406.0)
    before, after = record(4, accepted=1100.0, at=1101.0), record(5, accepted=1411.0, at=1412.0)
    labels = [WINDOW.of(each) for each in (inside, over_the_start, just_after, before, after)]
    assert labels == [True, None, None, False, False]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            record,
            st.integers(0, 10**6),
            unit=st.sampled_from(["u1", "u2", "u3"]),
            tenant=st.sampled_from(["a", "b", "c"]),
            accepted=st.floats(1100, 1500),
            at=st.floats(1100, 1500),
            outcome=st.sampled_from(Outcome),
            ttft_s=st.none() | st.floats(0, 10),
            arm=st.just(""),
            tenancy=st.none()
            | st.builds(
                Tenancy,
                refusal=st.sampled_from(["", "quota", "wait", "identity"]),
                billed=st.integers(0, 100),
                signs=st.sampled_from([(), ("a",)]),
                markers=st.sampled_from([(), ("a",), ("b",)]),
            ),
        ),
        max_size=60,
    ),
    st.booleans(),
)
def test_few_records_never_pass_and_order_changes_nothing(records, has_gap):
    report = judge(records, has_gap=has_gap)
    assert report.verdict is not Verdict.PASS
    again = judge(sorted(records, key=lambda r: (r.accepted, repr(r))), has_gap=has_gap)
    assert again.verdict is report.verdict
    json.dumps(report.to_json(), allow_nan=False)
