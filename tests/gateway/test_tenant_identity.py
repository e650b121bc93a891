"""Every sign of a tenant is read, and what could be read in two ways is never guessed at."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http1.heads import RequestHead, read_request_head
from gateway.tenants.config import TenantsConfig
from gateway.tenants.identity import Identity, Problem, Signs, claims_of
from tests.gateway.effects import bearer
from text.markers import digest_of

KEYS = {"acme": "sk-acme-1", "bolt": "sk-bolt-1"}
ALL_SIGNS = [
    {"kind": "header"},
    {"kind": "path", "after": "/t/"},
    {"kind": "key"},
    {"kind": "claim"},
]


def signs(**changes: Any) -> Signs:
    members = [{"name": name, "key_sha256": [digest_of(key)]} for name, key in KEYS.items()]
    document = {"signs": ALL_SIGNS, "members": members, **changes}
    return Signs(TenantsConfig.model_validate_json(json.dumps(document)))


def head(*headers: str, path: str = "/v1/x") -> RequestHead:
    lines = [f"POST {path} HTTP/1.1", "Host: h", *headers]
    return read_request_head("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")


def read(*headers: str, path: str = "/v1/x") -> Identity:
    return signs().read(head(*headers, path=path), path)


CLAIM = f"Authorization: {bearer({'tenant': 'acme'})}"
OTHER_CLAIM = f"Authorization: {bearer({'tenant': 'bolt'})}"


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        (["X-Tenant-Id: acme"], "/v1/x"),
        (["x-tenant-id:   acme  "], "/v1/x"),
        ([], "/t/acme/v1/x"),
        (["X-Api-Key: sk-acme-1"], "/v1/x"),
        (["X-Tenant-Id: acme", CLAIM, "X-Api-Key: sk-acme-1"], "/t/acme/v1/x"),
        (["X-Tenant-Id: acme", "Authorization: Bearer sk-opaque"], "/v1/x"),
        (["X-Tenant-Id: acme", f"Authorization: {bearer({'sub': 'me'})}"], "/v1/x"),
        (["X-Tenant-Id:", "X-Api-Key: sk-acme-1"], "/v1/x"),
        (["X-Tenant-Id: acme"], "/t/"),
        (["X-Tenant-Id: acme", "X-Tenant-Idx: bolt"], "/v1/x"),
    ],
    ids=str,
)
def test_signs_that_agree_name_the_tenant(headers: list[str], path: str):
    assert read(*headers, path=path) == Identity("acme")


@pytest.mark.parametrize(
    ("headers", "path", "problem", "others"),
    [
        (["X-Tenant-Id: acme", "X-Tenant-Id: bolt"], "/v1/x", Problem.REPEATED, ("bolt",)),
        (["X-Tenant-Id: acme", "X-Tenant-Id: acme"], "/v1/x", Problem.REPEATED, ()),
        (["X-Tenant-Id: acme", "X_Tenant_Id: bolt"], "/v1/x", Problem.REPEATED, ("bolt",)),
        (["X-Tenant-Id: acme, bolt"], "/v1/x", Problem.REPEATED, ("bolt",)),
        (["X-Tenant-Id: acme,acme"], "/v1/x", Problem.REPEATED, ()),
        (["X-Tenant-Id: acme", OTHER_CLAIM], "/v1/x", Problem.DISAGREEING, ("bolt",)),
        (["X-Tenant-Id: acme"], "/t/bolt/v1/x", Problem.DISAGREEING, ("bolt",)),
        (["X-Tenant-Id: bolt", "X-Api-Key: sk-acme-1"], "/x", Problem.DISAGREEING, ("bolt",)),
        (["X-Tenant-Id: acme", "X-Api-Key: guess"], "/v1/x", Problem.UNKNOWN_KEY, ()),
        (["X-Tenant-Id: acme b"], "/v1/x", Problem.MALFORMED, ()),
        (["X-Tenant-Id: \xe4cme"], "/v1/x", Problem.MALFORMED, ()),
        (["X-Tenant-Id: " + "a" * 129], "/v1/x", Problem.MALFORMED, ()),
        ([], "/t/acme/../bolt/x", Problem.MALFORMED, ()),
        ([], "/t/acme/%2E%2e/bolt/x", Problem.MALFORMED, ()),
        ([], "/t//acme/x", Problem.MALFORMED, ()),
        ([], "/t/%61cme/x", Problem.MALFORMED, ()),
        ([], "/t/acme%2fbolt/x", Problem.MALFORMED, ()),
        (["X-Tenant-Id: acme", "Connection: X-Tenant-Id"], "/x", Problem.MALFORMED, ()),
        ([], "/v1/x", Problem.MISSING, ()),
        (["X-Tenant-Id: ,"], "/v1/x", Problem.REPEATED, ()),
        ([CLAIM], "/v1/x", Problem.MISSING, ("acme",)),
        (["X-Tenant-Id: acme", CLAIM, OTHER_CLAIM], "/x", Problem.REPEATED, ("bolt",)),
    ],
    ids=str,
)
def test_signs_that_do_not_agree_say_what_is_wrong(
    headers: list[str], path: str, problem: Problem, others: tuple[str, ...]
):
    found = read(*headers, path=path)
    assert found.problem is problem
    if problem is not Problem.MALFORMED:
        assert found.others == others


def token(text: str) -> bytes:
    part = base64.urlsafe_b64encode(text.encode()).rstrip(b"=")
    return b"e30." + part + b".c2ln"


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ('{"tenant":"a"}', ("a",)),
        ('{"tenant":"a","tenant":"b"}', ("a", "b")),
        ('{"in":{"tenant":"x"},"tenant":"a","more":{"tenant":"y"}}', ("a",)),
        ('{"in":{"tenant":"x"}}', ()),
        ('{"tenant":["a","b"]}', None),
        ('{"tenant":null}', None),
        ('["tenant"]', None),
        ("{", None),
        ("[" * 4000, None),
    ],
)
def test_a_claim_is_read_once_for_each_time_it_stands_there(text: str, claims: Any):
    assert claims_of(token(text), "tenant") == claims


def test_a_token_that_is_no_base64_or_too_long_cannot_be_read():
    assert claims_of(b"a.!!.c", "tenant") is None
    assert claims_of(b"a." + b"A" * 9000 + b".c", "tenant") is None
    assert claims_of(b"sk-opaque", "tenant") == ()


NAMES = st.sampled_from(["acme", "bolt", "", "a b", "acme,bolt", "\xff", "x" * 200])


@given(st.lists(NAMES, max_size=3), st.none() | NAMES, st.none() | NAMES, st.data())
def test_a_tenant_without_a_problem_is_named_by_all_signs_alike(headers, claim, part, data):
    lines = [f"X-Tenant-Id: {name}" for name in headers]
    if claim is not None:
        lines.append(f"Authorization: {bearer({'tenant': claim})}")
    key = data.draw(st.sampled_from([None, *KEYS.values()]))
    lines += [] if key is None else [f"X-Api-Key: {key}"]
    path = "/v1/x" if part is None else f"/t/{part}/x"
    found = signs().read(head(*lines), path)
    said = {name for name in (*headers, claim or "", part or "") if name}
    said |= {name for name, value in KEYS.items() if value == key}
    if found.problem is None:
        assert said == {found.tenant}
        assert len(headers) <= 1
    assert found.tenant in ("", "acme", "bolt")


def test_a_checked_key_goes_before_what_is_only_said_whatever_the_order():
    found = read("X-Tenant-Id: bolt", "X-Api-Key: sk-acme-1")
    assert (found.tenant, found.others) == ("acme", ("bolt",))
