"""A configuration that does not fit stops the start with one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import ConfigError, load_config, load_token

GOOD = {
    "admin_token_file": "token",
    "journal_dir": "state",
    "routes": [{"name": "chat", "replicas": [{"name": "a", "url": "http://127.0.0.1:1/"}]}],
}


def with_route(**changes: object) -> dict:
    return {**GOOD, "routes": [{**GOOD["routes"][0], **changes}]}


def write(folder: Path, document: object) -> Path:
    path = folder / "gateway.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_good_file_is_read_with_its_defaults(tmp_path: Path):
    config = load_config(write(tmp_path, GOOD))
    route = config.routes[0]
    assert (route.models, route.breaker.threshold_ratio) == (("*",), 0.05)
    assert (route.breaker.window, route.breaker.min) == (200, 100)
    assert route.replicas[0].base == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("{", "not JSON"),
        ({**GOOD, "prot": 1}, "prot"),
        ({**GOOD, "port": 70_000}, "port"),
        ({**GOOD, "routes": []}, "routes"),
        ({**GOOD, "routes": GOOD["routes"] * 2}, "same name"),
        (with_route(replicas=[]), "replicas"),
        (with_route(replicas=GOOD["routes"][0]["replicas"] * 2), "same name"),
        (with_route(replicas=[{"name": "a", "url": "ftp://x"}]), "url"),
        (with_route(replicas=[{"name": 'a"b', "url": "http://x"}]), "name"),
        (with_route(breaker={"threshold_ratio": 5}), "threshold_ratio"),
        (with_route(breaker={"window": 50, "min": 100}), "larger than window"),
        (with_route(gap_limit_seconds=0), "gap_limit_seconds"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(tmp_path: Path, document, words: str):
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, document))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def with_tenants(**changes: object) -> dict:
    return {**GOOD, "tenants": {"members": [{"name": "acme"}], **changes}}


KEY = "0" * 64


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (with_tenants(members=[]), "members"),
        (with_tenants(members=[{"name": "a"}, {"name": "a"}]), "same name"),
        (with_tenants(members=[{"name": "a b"}]), "name"),
        (with_tenants(members=[{"name": "a", "routes": ["none"]}]), "there is no route none"),
        (with_tenants(members=[{"name": "a", "burst_tokens": 5}]), "needs tokens_per_second"),
        (with_tenants(members=[{"name": "a", "tokens_per_second": 0}]), "tokens_per_second"),
        (with_tenants(members=[{"name": "a", "key_sha256": ["secret"]}]), "key_sha256"),
        (with_tenants(members=[{"name": "a", "key_sha256": [KEY]}]), "a sign of kind key"),
        (with_tenants(signs=[{"kind": "key"}]), "members with key_sha256"),
        (with_tenants(signs=[{"kind": "claim"}]), "another sign must name tenants"),
        (with_tenants(signs=[{"kind": "cookie"}]), "cookie"),
        (with_tenants(signs=[{"kind": "header", "name": "Cookie"}]), "cannot name a tenant"),
        (with_tenants(signs=[{"kind": "header"}] * 2), "same header"),
        (with_tenants(signs=[{"kind": "path", "after": "t"}]), "after"),
        (with_tenants(on_conflict="guess"), "on_conflict"),
        (with_route(limit={"in_flight": 0}), "in_flight"),
        (with_route(limit={}), "in_flight"),
    ],
)
def test_a_rule_about_tenants_that_cannot_act_is_refused_in_one_line(
    tmp_path: Path, document, words: str
):
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, document))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_example_of_the_page_about_tenants_is_read(tmp_path: Path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "tenants.md").read_text("utf-8")
    lines = [line[4:] for line in page.splitlines() if line.startswith("    ")]
    config = load_config(write(tmp_path, "\n".join(lines[: lines.index("}") + 1])))
    assert config.tenants is not None and config.tenants.others is not None
    assert config.routes[0].limit is not None


def test_a_missing_file_and_a_short_token_are_said(tmp_path: Path):
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "none.json")
    (tmp_path / "token").write_text("short\n")
    with pytest.raises(ConfigError, match="16 characters"):
        load_token(tmp_path / "token")
    (tmp_path / "token").write_text("long-enough-a-token\n")
    assert load_token(tmp_path / "token") == "long-enough-a-token"


def test_the_process_ends_with_three_and_one_line(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "--config", str(write(tmp_path, {**GOOD, "prot": 1}))],
        capture_output=True,
        text=True,
        timeout=50,
        cwd=Path(__file__).resolve().parents[2],
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "prot" in done.stderr
