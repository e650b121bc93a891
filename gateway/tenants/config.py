"""Tenants and limits in the gateway's configuration file.

The file holds no secret: API keys and markers stand in it as SHA-256 digests. Hard part: a rule
that cannot act is found out only when it was needed. So a sign that can never name a tenant, keys
that no sign reads, and signs that read the same header in two ways are refused at the start.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from gateway.names import Name, Strict

HeaderName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,63}$", to_lower=True)
]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A SHA-256 in lower-case hexadecimal digits."""

NOT_FOR_TENANTS = frozenset({"host", "content-length", "transfer-encoding", "connection", "cookie"})


class HeaderSign(Strict):
    """A header whose value is the tenant's name. Trust it only behind something that sets it."""

    kind: Literal["header"]
    name: HeaderName = "x-tenant-id"


class KeySign(Strict):
    """A header that holds an API key of one tenant: the only sign that is checked here."""

    kind: Literal["key"]
    header: HeaderName = "x-api-key"


class PathSign(Strict):
    """The part of the path after a prefix: `/t/` reads `acme` out of `/t/acme/v1/completions`."""

    kind: Literal["path"]
    after: Annotated[str, StringConstraints(pattern=r"^/([^?#\s%]*/)?$", max_length=200)]


class ClaimSign(Strict):
    """A claim of a bearer token, whose signature is not checked: it is compared, never believed."""

    kind: Literal["claim"]
    name: Annotated[str, StringConstraints(min_length=1, max_length=100)] = "tenant"
    header: HeaderName = "authorization"


Sign = Annotated[HeaderSign | KeySign | PathSign | ClaimSign, Field(discriminator="kind")]


class Limits(Strict):
    """What a tenant may use. What is not given is not limited."""

    tokens_per_second: float | None = Field(default=None, gt=0, le=1e9)
    """Prompt and completion tokens per second, in the long run."""

    burst_tokens: int | None = Field(default=None, ge=1, le=1_000_000_000)
    """Tokens that may be used at once after a rest. Default: ten seconds' worth."""

    concurrent: int | None = Field(default=None, ge=1, le=1_000_000)
    """Requests in the gateway at once, those that wait included."""

    weight: float = Field(default=1.0, ge=0.01, le=1000)
    """Share of a full route, beside the other tenants' weights. Default 1."""

    @model_validator(mode="after")
    def _burst_has_a_rate(self) -> Self:
        if self.burst_tokens is not None and self.tokens_per_second is None:
            raise ValueError("burst_tokens needs tokens_per_second")
        return self

    @property
    def burst(self) -> float:
        """Tokens that may be used at once; 0 without a quota."""
        rate = self.tokens_per_second or 0.0
        return float(rate * 10 if self.burst_tokens is None else self.burst_tokens)


class TenantConfig(Limits):
    """One tenant."""

    name: Name
    routes: tuple[Name, ...] = ()
    """Routes that it may use; none named: every one."""

    key_sha256: tuple[Digest, ...] = ()
    marker_sha256: tuple[Digest, ...] = ()
    """Digests of markers planted in its data, as `burnproof tenants marker` makes them."""


class TenantsConfig(Strict):
    """Who sends requests, how they are told apart, and what each may use."""

    signs: tuple[Sign, ...] = Field(default=(HeaderSign(kind="header"),), min_length=1)
    """Where a tenant is named. The first one that is there names it, an API key before all others;
    the rest must agree."""

    on_conflict: Literal["refuse", "count"] = "refuse"
    """A sign that is repeated, or two that disagree. `count` takes the first, for measuring only:
    a replica may read the other. Default `refuse`."""

    reserve_tokens: int = Field(default=256, ge=1, le=1_000_000)
    """Completion tokens set aside for a request that names no maximum. Default 256."""

    echo_header: HeaderName | None = None
    """A header of answers in which the replica says whom it served, to be compared."""

    others: Limits | None = None
    """One pool for requests of unknown tenants and of none. Default: they are refused."""

    members: tuple[TenantConfig, ...] = Field(min_length=1, max_length=10_000)

    @model_validator(mode="after")
    def _can_act(self) -> Self:
        if all(sign.kind == "claim" for sign in self.signs):
            raise ValueError(
                "signs: a claim is not checked here, so another sign must name tenants"
            )
        headers = [_header_of(sign) for sign in self.signs if sign.kind != "path"]
        if len(set(headers)) != len(headers):
            raise ValueError("signs: two of them read the same header")
        if bad := NOT_FOR_TENANTS.intersection(headers):
            raise ValueError(f"signs: {sorted(bad)[0]} cannot name a tenant")
        has_key_sign = any(sign.kind == "key" for sign in self.signs)
        keys = [digest for member in self.members for digest in member.key_sha256]
        if has_key_sign != bool(keys):
            wanted = "members with key_sha256" if has_key_sign else "a sign of kind key"
            raise ValueError(f"API keys need both: {wanted} is missing")
        markers = [digest for member in self.members for digest in member.marker_sha256]
        for what, found in (
            ("have the same name", [member.name for member in self.members]),
            ("have the same key_sha256", keys),
            ("have the same marker_sha256", markers),
        ):
            if len(set(found)) != len(found):
                raise ValueError(f"members: two of them {what}")
        return self


def _header_of(sign: HeaderSign | KeySign | PathSign | ClaimSign) -> str:
    if isinstance(sign, HeaderSign):
        return sign.name
    return "" if isinstance(sign, PathSign) else sign.header


class RouteLimit(Strict):
    """How many requests a route takes at once, and how the others wait."""

    in_flight: int = Field(ge=1, le=1_000_000)
    """Requests that are being served at once."""

    queue_per_tenant: int = Field(default=64, ge=0, le=100_000)
    """Requests of one tenant that may wait. Default 64."""

    wait_seconds: float = Field(default=10.0, gt=0, le=3600)
    """Longest wait, in seconds; then the request is refused. Default 10."""
