"""Every command of README, examples and pages is run, or the test that covers it is named here."""

import ast
import json
import re
from pathlib import Path

import pytest

from tests.docs.conftest import run
from tests.docs.pages import ROOT, Command, commands, pages

pytestmark = pytest.mark.timeout(600)

DEMO = "tests/docs/test_demo.py::test_the_demo_runs_every_example_to_pass_and_replays_equal"
UP = (
    "tests/stack/test_command_line.py::"
    "test_a_stack_answers_shows_itself_refuses_a_second_one_and_goes_down_without_a_trace"
)
CONTROL = "tests/docs/test_commands.py::test_a_run_is_followed_and_stopped_by_its_run_id"
ISOLATION = (
    "tests/api/test_tenants_command.py::"
    "test_a_fault_of_one_tenant_is_found_at_the_other_and_only_there"
)
REAL = "tests/e2e/test_examples.py::test_the_stall_is_mended_and_the_remedy_is_credited"

ELSEWHERE = {
    "make demo": DEMO,
    "make test": "tests/architecture/test_makefile.py::"
    "test_ci_runs_the_test_command_and_nothing_that_hides_a_failure",
    "make setup": "tests/architecture/test_makefile.py::test_every_target_is_phony",
    "burnproof up": REAL,
    "burnproof up --embeddings": "tests/e2e/test_faults.py::"
    "test_every_fault_is_proven_on_the_real_engine_and_nothing_is_left",
    ".venv/bin/burnproof up": REAL,
    "burnproof up --engine simulated": UP,
    "burnproof up --engine simulated --rate 40": UP,
    "burnproof down": UP,
    "burnproof run examples/aa-null/experiment.yaml": DEMO,
    "burnproof run examples/stall-the-chat-stream/experiment.yaml": DEMO,
    "burnproof run experiment.yaml": DEMO,
    "burnproof follow RUN_ID": CONTROL,
    "burnproof abort RUN_ID": CONTROL,
    "burnproof approve RUN_ID": CONTROL,
    "burnproof holds clear TARGET --reason 'what you checked'": CONTROL,
    "burnproof tenants isolation NOISY QUIET --minutes 30": ISOLATION,
    "burnproof tenants isolation NOISY QUIET --run RUN --fault ITEM": "tests/api/"
    "test_tenants_command.py::test_a_run_on_the_trail_is_read_again",
    "burnproof topology spans.jsonl": "tests/api/test_topology.py::"
    "test_spans_of_a_collectors_file_part_the_wait_of_the_same_requests",
    "python -m gateway --config gateway.json": "tests/gateway/test_config.py::"
    "test_the_process_ends_with_three_and_one_line",
}
"""Commands that are not run here: too long, or with a place to fill in. Each names its test."""

INSTEAD = {"RUN": "aa-null", "FILE": "examples/aa-null/experiment.yaml"}
"""What a reader would put there."""

ALL = list({str(c): c for page in pages() for c in commands(page)}.values())
RUN_HERE = [c for c in ALL if str(c) not in ELSEWHERE]


def filled(command: Command) -> str:
    return re.sub(r"\b(RUN|FILE)\b", lambda found: INSTEAD[found[0]], command.words)


def test_there_are_commands_to_run() -> None:
    assert len(RUN_HERE) >= 15
    assert {c.page for c in ALL} >= {"README.md", "docs/cli.md", "docs/local-stack.md"}


@pytest.mark.parametrize("command", RUN_HERE, ids=lambda c: f"{c.page}:{c.line} {c}")
def test_a_command_of_a_page_works(command: Command, stack: Path) -> None:
    done = run(filled(command), stack)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("words", ELSEWHERE)
def test_a_command_that_is_not_run_here_has_a_test_that_exists(words: str) -> None:
    assert words in {str(c) for c in ALL}, "no page has this command any more"
    file, _, name = ELSEWHERE[words].partition("::")
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_every_example_is_run_by_a_command_of_its_page() -> None:
    folders = [path for path in sorted((ROOT / "examples").iterdir()) if path.is_dir()]
    assert len(folders) >= 2
    for folder in folders:
        words = f"burnproof run examples/{folder.name}/experiment.yaml"
        assert words in {str(c) for c in commands(folder / "README.md")}
        assert ELSEWHERE.get(words) == DEMO or words in {str(c) for c in RUN_HERE}


def test_a_simulated_stack_says_so_in_what_it_prints(stack: Path) -> None:
    example = "examples/aa-null/experiment.yaml"
    for words in (["burnproof", "status"], ["burnproof", "plan", example]):
        assert "simulated" in run(words, stack).stdout.lower()


def test_a_run_is_followed_and_stopped_by_its_run_id(stack: Path) -> None:
    example = "examples/aa-null/experiment.yaml"
    started = run(["burnproof", "run", example, "--detach"], stack)
    assert started.returncode == 0, started.stderr
    named = re.search(r"run (\S+)  workflow \S+", started.stdout)
    assert named
    approved = run(["burnproof", "approve", named[1]], stack)
    assert approved.returncode == 3, "nobody asked for approval"
    assert "Traceback" not in approved.stderr
    assert run(["burnproof", "abort", named[1]], stack).returncode == 0
    followed = run(["burnproof", "follow", named[1]], stack)
    assert followed.returncode == 2, followed.stdout
    assert "INCONCLUSIVE" in followed.stdout
    cleared = run(["burnproof", "holds", "clear", "route/chat", "--reason", "looked"], stack)
    assert cleared.returncode == 3, "what is free needs no clearing"
    assert "Traceback" not in cleared.stderr
    leases = json.loads(run(["burnproof", "status", "--json"], stack).stdout)["now"]
    assert "aa-null" not in json.dumps(leases.get("leases"))
