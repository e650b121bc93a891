import importlib.metadata
from pathlib import Path

import pytest

from tests.architecture import rules
from tests.architecture.rules import SourceFile

ROOT = Path(__file__).parents[2]
FILES = rules.tracked_files(ROOT)
PYTHON = [SourceFile(p, (ROOT / p).read_text()) for p in FILES if p.endswith(".py")]

PLANTED = [
    pytest.param(rules.no_timedelta_at_activity_calls, path, text, id=f"timedelta: {name}")
    for name, path, text in [
        (
            "at an activity",
            "workflows/a.py",
            "workflow.execute_activity(x, start_to_close_timeout=timedelta(seconds=1))",
        ),
        (
            "at a local activity",
            "workflows/a.py",
            "execute_local_activity_method(x, y, dict(a=datetime.timedelta(1)))",
        ),
    ]
] + [
    pytest.param(rules.no_set_iteration_in_workflows, "workflows/a.py", text, id=f"set: {text}")
    for text in [
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "[x for x in {i for i in y}]",
        "names = frozenset(y)\nlist(names)",
        "self.seen: set[str] = z\nfor x in self.seen | other: pass",
        "[*{1, 2}]",
        "','.join({a, b})",
    ]
]
PLANTED += [
    pytest.param(
        rules.no_swallowed_broad_except_in_workflows, "workflows/a.py", text, id=f"except: {name}"
    )
    for name, text in [
        ("swallowed", "try: f()\nexcept Exception: pass"),
        ("bare", "try: f()\nexcept:\n    log()"),
        ("in a tuple", "try: f()\nexcept (ValueError, BaseException): pass"),
        ("raises only sometimes", "try: f()\nexcept Exception:\n    if a: raise"),
    ]
]
PLANTED += [
    pytest.param(rules.every_definition_names_itself, path, text, id=f"defn: {text}")
    for path, text in [
        ("workflows/a.py", "@workflow.defn\nclass A: pass"),
        ("activities/a.py", "@activity.defn()\ndef a(): pass"),
        (
            "activities/b.py",
            "@temporalio.activity.defn(no_thread_cancel_exception=True)\ndef a(): pass",
        ),
    ]
]
PLANTED += [
    pytest.param(
        rules.holding_workflows_list_their_failures, "workflows/a.py", text, id=f"holds: {name}"
    )
    for name, text in [
        ("lists none", "@workflow.defn(name='A')\nclass A:\n  def run(self): UndoStack()"),
        (
            "lists all",
            "@workflow.defn(name='A', failure_exception_types=[Exception])\nclass A: pass",
        ),
        (
            "lists nondeterminism",
            "@workflow.defn(name='A', failure_exception_types=[workflow.NondeterminismError])\n"
            "class A: pass",
        ),
    ]
]
PLANTED += [
    pytest.param(rules.no_environment_outside_settings, "api/a.py", text, id=f"environment: {text}")
    for text in ["os.environ['A']", "os.getenv('A')", "from os import environ"]
]
PLANTED += [
    pytest.param(rules.no_long_file, "slo/a.py", '"""A."""\n' * 401, id="401 lines"),
    pytest.param(rules.every_module_has_a_docstring, "slo/a.py", "a = 1", id="no docstring"),
]

ALLOWED = [
    (rules.no_timedelta_at_activity_calls, "workflows/policies.py", "A = timedelta(seconds=1)"),
    (rules.no_timedelta_at_activity_calls, "api/a.py", "execute_activity(timedelta(1))"),
    (rules.no_set_iteration_in_workflows, "workflows/a.py", "for x in sorted({1, 2}): pass"),
    (rules.no_set_iteration_in_workflows, "workflows/a.py", "if x in {1, 2}: pass"),
    (rules.no_set_iteration_in_workflows, "slo/a.py", "for x in {1, 2}: pass"),
    (
        rules.no_swallowed_broad_except_in_workflows,
        "workflows/a.py",
        "try: f()\nexcept Exception as e:\n    log()\n    raise A() from e",
    ),
    (
        rules.no_swallowed_broad_except_in_workflows,
        "workflows/a.py",
        "try: f()\nexcept ActivityError: pass",
    ),
    (
        rules.every_definition_names_itself,
        "workflows/a.py",
        "@workflow.defn(name='A', sandboxed=True)\nclass A: pass",
    ),
    (
        rules.holding_workflows_list_their_failures,
        "workflows/a.py",
        "@workflow.defn(name='A', failure_exception_types=[UndoFailed])\n"
        "class A:\n  def run(self): UndoStack()",
    ),
    (rules.no_environment_outside_settings, "settings.py", "os.environ"),
    (rules.no_long_file, "slo/a.py", "a\n" * 400),
]


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda r: r.__name__)
def test_no_file_of_ours_breaks_the_rule(rule: rules.Rule) -> None:
    broken = [str(v) for file in PYTHON for v in rule(file)]
    assert not broken, "\n".join(["", *broken])


@pytest.mark.parametrize(("rule", "path", "text"), PLANTED)
def test_a_planted_violation_is_found(rule: rules.Rule, path: str, text: str) -> None:
    found = list(rule(SourceFile(path, text)))
    assert found
    assert str(found[0]).startswith(f"{path}:")


@pytest.mark.parametrize(("rule", "path", "text"), ALLOWED)
def test_what_the_rule_allows_passes(rule: rules.Rule, path: str, text: str) -> None:
    assert list(rule(SourceFile(path, text))) == []


@pytest.mark.parametrize("allowed", rules.BROAD_EXCEPT_ALLOWED)
def test_an_allowed_broad_except_is_still_there(allowed: str) -> None:
    path, _, function = allowed.partition("::")
    text = (ROOT / path).read_text().replace(f"def {function or '_'}(", "def other(")
    assert list(
        rules.no_swallowed_broad_except_in_workflows(SourceFile("workflows/other.py", text))
    )


def test_every_rule_has_a_planted_violation() -> None:
    assert {p.values[0] for p in PLANTED} == set(rules.RULES)


def test_no_file_names_a_package_index_or_a_path_of_a_build_machine() -> None:
    broken = []
    for path in FILES:
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        broken += [str(v) for v in rules.no_forbidden_text(path, text)]
    assert not broken, "\n".join(["", *broken])


@pytest.mark.parametrize("forbidden", rules.FORBIDDEN_TEXTS)
def test_a_planted_forbidden_text_is_found_on_its_line(forbidden: str) -> None:
    found = list(rules.no_forbidden_text("a.md", f"first line\nsee https://{forbidden}x\n"))
    assert (found[0].line, len(found)) == (2, 1)


def test_the_locked_requirements_have_hashes_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(pinned) > 50
    assert "://" not in text
    assert all("==" in line and line.endswith("\\") for line in pinned)
    assert text.count("--hash=sha256:") >= len(pinned)


def _claims(distributions: dict[str, list[str]], names: tuple[str, ...]) -> dict[str, list[str]]:
    found = {n: [d for d in distributions.get(n, []) if d != "burnproof"] for n in names}
    return {name: others for name, others in found.items() if others}


def test_no_installed_distribution_claims_one_of_our_names() -> None:
    distributions = {k: list(v) for k, v in importlib.metadata.packages_distributions().items()}
    assert "temporalio" in distributions
    assert _claims(distributions, rules.ROOMS + rules.SINGLE_FILES) == {}


def test_a_distribution_that_claims_one_of_our_names_is_found() -> None:
    claimed = _claims({"slo": ["burnproof", "other"], "text": ["burnproof"]}, ("slo", "text"))
    assert claimed == {"slo": ["other"]}


def test_the_list_of_rooms_is_the_tree_and_the_packaging() -> None:
    tops = {p.split("/")[0] for p in FILES if p.count("/") >= 1 and p.endswith("/__init__.py")}
    packaged = (ROOT / "pyproject.toml").read_text()
    linted = (ROOT / ".importlinter").read_text()
    assert tops - {"tests"} == set(rules.ROOMS)
    for room in rules.ROOMS:
        assert f'"{room}", "{room}.*"' in packaged
        assert f"\n    {room}\n" in linted
