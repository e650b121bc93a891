"""Headers and signs of the tenant, changed as a broken or confused proxy would change them.

Pure: a function takes what would be sent and returns what is sent instead, or None if there is
nothing to change. The bytes of a bearer token's signature stay as they were, so whoever checks it
sees that the claim was changed; whoever does not is what this fault is meant to find.
"""

import base64
import binascii
import json

from multidict import CIMultiDict

from faults.parameters import Headers, TenantConfusion


def change_header(headers: CIMultiDict[str], given: Headers) -> CIMultiDict[str] | None:
    """Return the headers with one removed, set or doubled."""
    there = headers.getall(given.name, [])
    if given.action == "set":
        assert given.value is not None
        if there == [given.value]:
            return None
        changed = headers.copy()
        changed[given.name] = given.value
        return changed
    if not there:
        return None
    changed = headers.copy()
    if given.action == "remove":
        del changed[given.name]
    else:
        changed.add(given.name, there[0] if given.value is None else given.value)
    return changed


def confuse_tenant(
    target: str, headers: CIMultiDict[str], given: TenantConfusion
) -> tuple[str, CIMultiDict[str]] | None:
    """Return target and headers with a second tenant in one of the signs."""
    named = headers.get(given.header)
    if named is None or named == given.tenant:
        return None
    changed = headers.copy()
    if given.kind == "repeat-header":
        changed.add(given.header, given.tenant)
        return target, changed
    if given.kind == "header":
        changed[given.header] = given.tenant
        return target, changed
    if given.kind == "claim":
        token = _with_claim(headers.get("Authorization", ""), given.claim, given.tenant)
        if token is None:
            return None
        changed["Authorization"] = token
        return target, changed
    path, mark, query = target.partition("?")
    parts = path.split("/")
    if named not in parts:
        return None
    parts[parts.index(named)] = given.tenant
    return "/".join(parts) + mark + query, changed


def _with_claim(authorization: str, claim: str, value: str) -> str | None:
    """Return a bearer token with another value in one of its claims."""
    scheme, _, token = authorization.partition(" ")
    parts = token.strip().split(".")
    if scheme.lower() != "bearer" or len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(claims, dict) or claim not in claims or claims[claim] == value:
        return None
    claims[claim] = value
    body = json.dumps(claims, separators=(",", ":")).encode()
    parts[1] = base64.urlsafe_b64encode(body).rstrip(b"=").decode()
    return f"{scheme} {'.'.join(parts)}"
