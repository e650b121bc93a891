"""Every way of getting a file wrong ends in one line that says where and what to write instead."""

import copy
import re
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from faults.experiment import ExperimentSpec
from faults.parse import inline_files, load_experiment, parse_experiment, parse_yaml
from slo.documents import MAX_PROBLEMS
from slo.errors import SpecError, SpecErrors
from tests.faults.documents import ROOT, document

STALL = ROOT / "examples" / "stall-the-chat-stream"
FILES = {
    str(path.relative_to(STALL)): path.read_text(encoding="utf-8") for path in STALL.rglob("*.yaml")
}


def reader(**changed):
    """Read from memory; `changed` replaces whole files, None removes."""
    files = {f"dir/{name}": text for name, text in FILES.items()}
    files |= {f"dir/{name.replace('__', '/')}.yaml": text for name, text in changed.items()}

    def read(name):
        if files.get(name) is None:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return read


def lines(**changed):
    with pytest.raises(SpecErrors) as caught:
        load_experiment("dir/experiment.yaml", reader(**changed))
    assert str(caught.value) == "\n".join(caught.value.lines)
    return caught.value.lines


def edited(old, new, name="experiment.yaml"):
    assert FILES[name].count(old) == 1
    return FILES[name].replace(old, new)


TYPOS = {
    "a misspelt parameter": ("stall: 4s", "stal: 4s", 'stal: unknown key (did you mean "stall"?)'),
    "a misspelt key at the top": (
        "hypothesis:",
        "hypotesis:",
        'hypotesis: unknown key (did you mean "hypothesis"?)',
    ),
    "a misspelt template": (
        "gateway/stream-stall",
        "gateway/stream-stal",
        '(did you mean "gateway/stream-stall"?)',
    ),
    "a misspelt word": ("recovers", "recover", '(did you mean "recovers"?)'),
    "a minute written as a month": ("6m #", "6M #", 'write "6m"'),
    "a length of time without unit": ("stall: 4s", "stall: 4", 'write "4s"'),
    "a probability that is yes": ("0.04", "yes", "probability: must be a number"),
    "a probability that is no number": ("0.04", ".nan", "not a finite number"),
    "a date for a name": ("stall-the-chat-stream\n", "2024-01-01\n", "put it in quotes"),
    "an unknown selector": ("highest-risk", "lowest-risk", '(did you mean "highest-risk"?)'),
    "no labels": ("labels: {tier: chat}", "labels: {}", "target.from.labels"),
    "a share of everything": ("share: 0.5", "share: 1", "arms.chaos.share"),
    "no SLOs": ("- slos/chat.yaml", "[]", "at least one entry is needed"),
}


@pytest.mark.parametrize(("old", "new", "told"), TYPOS.values(), ids=TYPOS)
def test_a_typo_is_one_line_with_file_line_and_fix(old, new, told):
    text = edited(old, new)
    found = lines(experiment=text)
    assert len(found) == 1
    assert told in found[0]
    file, number, _ = found[0].split(":", 2)
    assert file == "dir/experiment.yaml"
    changed = next(
        i
        for i, (a, b) in enumerate(
            zip(FILES["experiment.yaml"].splitlines(), text.splitlines(), strict=True), 1
        )
        if a != b
    )
    assert abs(int(number) - changed) <= 1  # a list that became empty is told at its key


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("tennant: a", 'fault.match.tennant: unknown key (did you mean "tenant"?)'),
        ("tenant: ''", "fault.match.tenant"),
        ("tenant: 3", "fault.match.tenant: text is needed"),
        ("tenant: [a]", "fault.match.tenant: text is needed"),
    ],
)
def test_a_wrong_match_rule_is_told_with_its_place(rule, told):
    text = edited("  duration: 6m", f"  match: {{{rule}}}\n  duration: 6m")
    (line,) = lines(experiment=text)
    assert told in line


def test_match_rules_are_read_and_left_out_of_the_wire_form_when_there_are_none():
    plain = document()
    assert "match" not in parse_experiment(plain).document()["fault"]
    matched = parse_experiment(document(fault__match={"tenant": "acme", "path": "/v1/*"}))
    assert matched.fault.match.tenant == "acme"
    assert ExperimentSpec.model_validate(matched.document()) == matched


def test_several_problems_are_several_lines():
    text = edited("stall: 4s", "stal: 4s").replace("share: 0.5", "shar: 0.5")
    assert len(lines(experiment=text)) == 2


def test_a_problem_in_an_inlined_slo_is_told_with_that_file_and_line():
    text = edited("gapOver", "gapOvr", "slos/chat.yaml")
    (line,) = lines(slos__chat=text)
    number = 1 + text.splitlines().index("              gapOvr: 2s")
    assert line.startswith(f"dir/slos/chat.yaml:{number}: slos[0].spec.indicator")
    assert line.endswith('(did you mean "gapOver"?)')


def test_a_missing_file_is_told_where_it_is_named_and_where_it_was_looked_for():
    (line,) = lines(policies__chat=None)
    assert re.match(r"dir/experiment.yaml:\d+: remediation.policy: cannot read", line)
    assert "dir/policies/chat.yaml" in line
    assert "No such file" in line
    assert "folder of the experiment's file" in line


def test_a_missing_experiment_is_one_line():
    assert lines(experiment=None) == ("cannot read dir/experiment.yaml: No such file or directory",)


def test_bytes_that_are_no_text_are_one_line():
    def read(name):
        return b"\xff".decode("utf-8")

    with pytest.raises(SpecErrors, match="not UTF-8"):
        load_experiment("x.yaml", read)


BROKEN = {
    "an empty file": ("", "the file is empty"),
    "only a comment": ("# nothing\n", "the file is empty"),
    "a tab for indentation": ("a: 1\n\tb: 2\n", "indent with spaces"),
    "a bracket left open": ("a: [b\nc: d", "not valid YAML"),
    "two documents": ("a: 1\n---\nb: 2\n", "one document a file"),
    "a key twice": ("a: 1\na: 2\n", '"a" is here twice, first on line 1'),
    "a key twice deep inside": ("a:\n- b: 1\n  b: 2\n", "twice, first on line 2"),
    "a key that is a list": ("? [a]\n: b\n", "a key must be text"),
    "an object of the language": ("a: !!python/name:os.system", "not allowed"),
    "an alias of itself": ("a: &x [*x]\n", "aliases"),
    "aliases that grow without end": (
        "".join(
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" if i else "a0: &a0 [x]\n"
            for i in range(12)
        ),
        "aliases",
    ),
    "a huge file": ("a: " + "x" * 1_000_001, "at most 1,000,000"),
    "a control character": ("a: \x00", "not valid YAML"),
    "brackets without end": ("[\n" * 20_000, "not valid YAML"),
}


@pytest.mark.parametrize(("text", "told"), BROKEN.values(), ids=BROKEN)
def test_what_is_not_one_yaml_document_is_one_line(text, told):
    with pytest.raises(SpecErrors) as caught:
        parse_yaml(text, "f.yaml")
    (line,) = caught.value.lines
    assert line.startswith("f.yaml")
    assert told in line
    assert "\n" not in line
    assert len(line) < 400


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "3\n"])
def test_a_document_that_is_no_mapping_is_refused(text):
    (line,) = lines(experiment=text)
    assert "a mapping is needed" in line


def test_anchors_and_merges_are_read():
    doc, _ = parse_yaml("a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n", "f.yaml")
    assert doc == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}


def test_lines_are_found_for_keys_with_dots_and_for_what_is_not_there():
    _, locate = parse_yaml("a:\n  b.c/d: 1\n  e:\n  - x\n  - y: 2\n", "f.yaml")
    assert [locate(p) for p in ("a", "a.b.c/d", "a.e[1].y", "a.e[7]", "a.zz.q", "")] == [
        1,
        2,
        5,
        3,
        1,
        1,
    ]


def test_inlining_leaves_the_document_of_the_caller_alone():
    doc = yaml.safe_load(FILES["experiment.yaml"])
    before = copy.deepcopy(doc)
    made, _ = inline_files(doc, "dir", reader())
    assert doc == before
    assert made["slos"][0]["kind"] == "SLO"
    assert made["remediation"]["policy"]["kind"] == "RemediationPolicy"


def test_a_file_name_that_reaches_a_worker_is_refused_not_opened():
    with pytest.raises(SpecErrors, match="no file can be read here"):
        parse_experiment(document(slos=["slos/chat.yaml"]))


# C49: an SLO that cannot be evaluated must stop the run before the fault, never count as met.
UNSUPPORTED = {
    "a target that is misspelt": lambda slo: slo["spec"]["objectives"][0].update(
        tarjet=slo["spec"]["objectives"][0].pop("target")
    ),
    "a plugin instead of an indicator": lambda slo: slo["spec"].update(
        indicator={"spec": {"plugin": {"id": "x"}}}
    ),
    "a reference to an indicator": lambda slo: slo["spec"].update(indicatorRef="other"),
    "a source of another vendor": lambda slo: slo["spec"]["indicator"]["spec"]["ratioMetric"][
        "bad"
    ]["metricSource"].update(type="Datadog"),
    "a method that is not supported": lambda slo: slo["spec"].update(budgetingMethod="Timeslices"),
    "no objective": lambda slo: slo["spec"].update(objectives=[]),
    "a bound that does not exist": lambda slo: slo["spec"]["indicator"]["spec"]["ratioMetric"][
        "bad"
    ]["metricSource"]["spec"].update(errorRate=0.5),
    "another kind": lambda slo: slo.update(kind="AlertPolicy"),
}


@pytest.mark.parametrize("spoil", UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_an_slo_that_cannot_be_evaluated_is_an_error_beside_a_good_one(spoil):
    doc = document()
    bad = copy.deepcopy(doc["slos"][0])
    bad["metadata"]["name"] = "other"
    spoil(bad)
    doc["slos"].append(bad)
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(doc)
    assert all(error.path.startswith("slos[1]") for error in caught.value.errors)


def test_two_slos_of_one_name_are_refused():
    doc = document()
    doc["slos"] *= 2
    with pytest.raises(SpecErrors, match="there twice"):
        parse_experiment(doc)


def test_any_one_unknown_key_anywhere_is_refused():
    def paths(part, so_far=()):
        if isinstance(part, dict):
            yield so_far
            for key, value in part.items():
                yield from paths(value, (*so_far, key))
        elif isinstance(part, list):
            for index, value in enumerate(part):
                yield from paths(value, (*so_far, index))

    full = parse_experiment(document()).document()
    base = document(**{key: {} for key in ("guard", "judge", "steady_state", "recovery", "lease")})
    assert set(base) <= set(full)
    for path in list(paths(base)):
        if path and path[-1] == "labels":
            continue
        spoilt = copy.deepcopy(base)
        part = spoilt
        for step in path:
            part = part[step]
        part["zzz"] = 1
        with pytest.raises(SpecErrors, match=r"zzz: unknown key"):
            parse_experiment(spoilt)


def test_the_wire_form_is_read_back_and_ignores_what_a_newer_version_added():
    spec = parse_experiment(document(remediation={"policy": {"kind": "x"}, "recover_within": "1m"}))
    wire = spec.document()
    assert ExperimentSpec.model_validate(wire) == spec
    wire["novelty"] = 1
    wire["fault"]["parameters"]["novelty"] = 1
    assert ExperimentSpec.model_validate(wire) == spec


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"target": {}}, "either `route` or `select`"),
        ({"target": {"route": "a", "select": "highest-risk"}}, "not both"),
        ({"target": {"select": "highest-risk"}}, "go together"),
        ({"arms__chaos__ramp": [0.5, 0.2]}, "ramp must rise"),
        ({"arms__chaos__ramp": [0.1, 0.2]}, "end at share"),
        ({"arms__chaos__replicas": ["a", "a"]}, "twice"),
        ({"judge": {"metrics": ["ttft", "ttft"]}}, "twice"),
        ({"observe": {"max": "7m"}}, "would watch no fault"),
        ({"lease": {"seconds": "20s"}}, "must be a number"),
        ({"remediation": {"under_fault": True}}, "remediation.policy: is missing"),
        ({"fault__template": None}, "fault.template: is missing"),
        ({"slos": []}, "at least one entry"),
        ({"metadata": []}, "a mapping is needed"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused(changes, told):
    with pytest.raises(SpecErrors, match=re.escape(told)):
        parse_experiment(document(**changes))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(document())), JSON)
def test_whatever_stands_in_a_document_it_is_read_or_refused_on_one_line_each(key, value):
    doc = document()
    doc[key] = value
    try:
        parse_experiment(doc)
    except SpecErrors as errors:
        assert errors.errors
        for line in errors.lines:
            assert "\n" not in line
            assert len(line) < 1000


@given(st.text(max_size=60))
def test_any_text_is_a_value_or_one_line(text):
    try:
        parse_yaml(text, "f.yaml")
    except SpecErrors as errors:
        assert len(errors.lines) == 1


def test_an_error_can_be_carried_and_said_again():
    error = SpecError("a.b", "is wrong\nhere", "c", 3).under("x[0]")
    assert str(error) == 'line 3: x[0].a.b: is wrong here (did you mean "c"?)'


def test_what_is_said_of_a_document_cannot_command_a_terminal_or_break_a_record():
    line = str(SpecError("a\nb\x1b[2J", "is \x00 wrong \ud800", "c\u2028d"))
    assert line.isprintable()
    assert line.encode("utf-8")


@pytest.mark.parametrize("value", ["!!bool maybe", "!!int ''", "!!float _", "!!timestamp soon"])
def test_a_tag_that_its_value_does_not_fit_is_one_line_with_the_file(value):
    text = edited("duration: 6m", f"duration: {value}")
    assert lines(experiment=text) == (
        "dir/experiment.yaml: not valid YAML: a value does not fit the tag written before it; "
        "leave the tag out",
    )


@pytest.mark.parametrize("bad", [r"\0", r"\uD800"])
def test_text_that_no_database_can_store_is_refused_where_it_stands(bad):
    text = edited("hypothesis: recovers", f'hypothesis: "{bad}"')
    (line,) = lines(experiment=text)
    assert re.match(r"dir/experiment\.yaml:\d+: hypothesis: the text holds NUL or half of", line)


def test_a_name_that_no_file_can_have_is_one_line_with_its_path():
    def read(name):
        if "\0" in name:
            raise ValueError("embedded null byte")
        return FILES["experiment.yaml"].replace("slos/chat.yaml", r'"a\0b"')

    with pytest.raises(SpecErrors) as caught:
        load_experiment("dir/experiment.yaml", read)
    assert any("no file can have this name" in line for line in caught.value.lines)
    assert all(line.startswith("dir/") for line in caught.value.lines)


def test_tens_of_thousands_of_unknown_keys_are_refused_in_a_second():
    raw = document() | {f"hypothesi{number}": 1 for number in range(50_000)}
    began = time.perf_counter()
    with pytest.raises(SpecErrors) as caught:
        parse_experiment(raw)
    assert time.perf_counter() - began < 5
    assert len(caught.value.errors) <= MAX_PROBLEMS + 1
    assert "more problems" in str(caught.value)
