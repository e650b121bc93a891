"""Proofs on a gateway before a simulated engine; what has no effect, or stays on, has none."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from api import fault_verify
from api.cli import run
from api.context import Context
from api.fault_cases import Case
from api.fault_verify import Proof, Verdict, verify
from faults.catalog import CATALOG
from gateway import exchange
from gateway.config import GatewayConfig
from gateway.upstream import Outgoing
from settings import AuditSettings, GatewaySettings, TemporalSettings
from simulated_engine.options import EngineOptions
from simulated_engine.server import Engine
from targets.errors import TargetRejected
from tests.gateway.harness import Gate, Stub, good

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Gate]:
    options = EngineOptions(ttft_seconds=0.02, itl_seconds=0.005)
    async with TestServer(Engine(options).app()) as engine:
        base = str(engine.make_url("")).rstrip("/")
        async with Gate(tmp_path, {"a": base, "b": base}) as gate:
            yield gate


def context(gate: Gate) -> Context:
    token = gate.folder / "token"
    settings = GatewaySettings(url=gate.url, admin_token_file=token)
    return Context(TemporalSettings(), settings, AuditSettings(), "simulated")


async def check(gate: Gate, *templates: str) -> list[Proof]:
    return await verify(context(gate), templates, None, None)


async def test_every_fault_is_proven_on_and_off_and_nothing_is_left(gate: Gate) -> None:
    found = await check(gate, *CATALOG)
    unproven = [p for p in found if (p.effect, p.removal) != (Verdict.PROVEN, Verdict.PROVEN)]
    assert not unproven
    assert {proof.template for proof in found} == set(CATALOG)
    assert (await gate.ok("GET", "/leases?open=true"))["leases"] == []
    records = await gate.records()
    assert records and all(record.probe and record.replica == "b" for record in records)


async def test_faults_that_do_nothing_are_unproven(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(_: object, outgoing: Outgoing) -> Outgoing:
        return outgoing

    monkeypatch.setattr(exchange, "before_sending", send)
    monkeypatch.setattr(exchange, "shaper_for", lambda *_: None)
    monkeypatch.setattr(exchange, "shape_headers", lambda _, status, headers: (status, headers))
    for proof in await check(gate, *CATALOG):
        expected = Verdict.UNPROVEN if CATALOG[proof.template].expects_effect else Verdict.PROVEN
        assert proof.effect is expected, proof


async def test_a_fault_that_stays_on_is_not_proven_removed(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = gate.server.core.routes["chat"]
    monkeypatch.setattr(type(state), "take_off", lambda *_: None)
    (proof, *_) = await check(gate, "gateway/error")
    assert (proof.effect, proof.removal) == (Verdict.PROVEN, Verdict.UNPROVEN)


async def test_what_the_target_does_not_have_is_no_proof(tmp_path: Path) -> None:
    async with Stub(good()) as stub:
        async with Gate(tmp_path, {"a": stub.url}, {"models": ["m"]}) as gate:
            found = await check(gate, "gateway/tool-calls", "gateway/constant-embeddings")
            assert len(found) == 7
            assert {(p.effect, p.removal) for p in found} == {(Verdict.NOT_HERE, Verdict.NOT_HERE)}


class TwoRoutes(Gate):
    """The replica `a` chats; `b` stands alone on a route of its own."""

    def config(self) -> GatewayConfig:
        document = super().config().model_dump(mode="json")
        one, two = document["routes"][0]["replicas"]
        first = {**document["routes"][0], "replicas": [one], "models": ["m"]}
        second = {**first, "name": "embeddings", "replicas": [two], "models": ["*"]}
        return GatewayConfig.model_validate({**document, "routes": [first, second]})


async def test_what_one_route_has_not_is_proven_on_another_unless_a_route_is_named(
    tmp_path: Path,
) -> None:
    templates = ("gateway/constant-embeddings", "null")
    engine = TestServer(Engine(EngineOptions()).app())
    async with engine, Stub(good()) as stub:
        base = str(engine.make_url("")).rstrip("/")
        async with TwoRoutes(tmp_path, {"a": stub.url, "b": base}) as gate:
            found = {(p.case, p.route): p for p in await check(gate, *templates)}
            assert {(p.effect, p.removal) for p in found.values()} == {
                (Verdict.PROVEN, Verdict.PROVEN)
            }
            embeddings = {(name, "embeddings") for name in ("floats", "base64", "search")}
            assert set(found) == embeddings | {("no effect", "chat")}
            assert found["search", "embeddings"].seen.endswith("→ accuracy@5 0.125")
            named = await verify(context(gate), templates[:1], "chat", None)
            assert {p.effect for p in named} == {Verdict.NOT_HERE}
            assert (await gate.ok("GET", "/leases?open=true"))["leases"] == []


async def test_a_search_by_simulated_vectors_works_and_is_chance_under_the_fault(
    gate: Gate,
) -> None:
    """A13: accuracy@5; the real engine's figure is in the test on vLLM."""
    found = {p.case: p for p in await check(gate, "gateway/constant-embeddings")}
    before, during = re.findall(r"accuracy@5 ([0-9.]+)", found["search"].seen)
    assert float(before) > 0.8
    assert float(during) == 5 / 40


@pytest.mark.parametrize(
    ("effects", "code"),
    [
        ((Verdict.PROVEN, Verdict.PROVEN), 0),
        ((Verdict.PROVEN, Verdict.UNPROVEN), 1),
        ((Verdict.NOT_HERE, Verdict.UNPROVEN), 1),
        ((Verdict.PROVEN, Verdict.NOT_HERE), 2),
        ((Verdict.NOT_HERE, Verdict.NOT_HERE), 3),
    ],
)
@pytest.mark.parametrize("which", ["effect", "removal"])
def test_the_exit_code_is_zero_only_when_everything_is_proven(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    effects: tuple[Verdict, ...],
    code: int,
    which: str,
) -> None:
    async def verified(*_: object) -> list[Proof]:
        return [Proof("null", "c", *_sides(which, each), 0.0, "") for each in effects]

    monkeypatch.setenv("BURNPROOF_STACK_DIR", str(tmp_path))
    monkeypatch.setattr(fault_verify, "verify", verified)
    assert run(["faults", "verify", "--all"]) == code


def _sides(which: str, verdict: Verdict) -> tuple[Verdict, Verdict]:
    """Let the verdict be that of one side alone, but for what was not tried at all."""
    if verdict is Verdict.NOT_HERE:
        return verdict, verdict
    return (verdict, Verdict.PROVEN) if which == "effect" else (Verdict.PROVEN, verdict)


async def test_a_route_that_a_run_holds_is_left_alone(gate: Gate) -> None:
    await gate.lease("L")
    with pytest.raises(TargetRejected, match="route_busy"):
        await check(gate, "null")


@pytest.mark.parametrize(
    ("effect", "removal", "tries"),
    [
        (Verdict.PROVEN, Verdict.UNPROVEN, 1),
        (Verdict.UNPROVEN, Verdict.UNPROVEN, 1),
        (Verdict.UNPROVEN, Verdict.PROVEN, 2),
    ],
)
async def test_only_an_effect_is_tried_again_never_a_removal(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, effect: Verdict, removal: Verdict, tries: int
) -> None:
    tried: list[str] = []

    async def prove(_: object, __: object, where: tuple[str, str], case: Case) -> Proof:
        tried.append(where[1])
        shown = (effect, removal) if len(tried) == 1 else (Verdict.PROVEN, Verdict.PROVEN)
        return Proof(case.template, case.name, *shown, 0.0, "")

    monkeypatch.setattr(fault_verify, "_prove", prove)
    (proof,) = await check(gate, "null")
    assert len(tried) == tries
    assert proof.removal is removal
