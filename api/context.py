"""Find what a command talks to: the environment first, else the local stack that is running.

So `burnproof run` in a second terminal needs no setting after `burnproof up`. Nothing is started
here and nothing is guessed: when neither names a server, the default addresses are tried and the
error says which command mends it.
"""

import contextlib
import getpass
from dataclasses import dataclass
from pathlib import Path

import httpx
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from api.errors import NoStack, NoTrail
from api.stack.options import AUDIT_FILE, STATE_VARIABLE, default_directory
from api.stack.state import load_state
from audit.store import AuditStore
from settings import AuditSettings, GatewaySettings, TemporalSettings, WorkerSettings, is_set
from targets.gateway_admin import GatewayAdmin
from targets.gateway_fleet import GatewayFleet, connect


@dataclass(frozen=True)
class Context:
    """Everything a command may talk to."""

    temporal: TemporalSettings
    gateway: GatewaySettings
    audit: AuditSettings
    engine: str
    no_stack_in: Path | None = None
    """State directory from which no stack runs; None: one does, and it filled what was not set."""

    def store(self) -> AuditStore:
        """Open the audit store to write; it is made where it is missing."""
        return self._open(must_exist=False)

    def trail(self) -> AuditStore:
        """Open the audit store to read; it is never made.

        Raises:
            NoTrail: no such database; the message says which, and how to name another.
        """
        return self._open(must_exist=True)

    def trail_name(self) -> str:
        """Return where the trail lies, for people: a file, or an address without its password."""
        url = make_url(self.audit.url)
        if url.get_backend_name() == "sqlite" and url.database:
            return str(Path(url.database).absolute())
        return url.set(query={}).render_as_string(hide_password=True)

    def _open(self, *, must_exist: bool) -> AuditStore:
        try:
            store = AuditStore(self.audit.url)
        except (ValueError, ImportError, ArgumentError) as error:  # they may quote the password
            raise ValueError(
                "BURNPROOF_AUDIT_URL is no database address that can be used here "
                f"({type(error).__name__}): write it like sqlite:////folder/audit.db"
            ) from None
        if must_exist:
            self._require_file()
        store.upgrade()
        return store

    def _require_file(self) -> None:
        """Refuse a SQLite file that is not there: to open it would make it."""
        url = make_url(self.audit.url)
        name = url.database or ""
        is_file = url.get_backend_name() == "sqlite" and name and not name.startswith("file:")
        if not is_file or name == ":memory:" or Path(name).is_file():
            return
        looked = [self.trail_name()]
        if self.no_stack_in is not None and not is_set("BURNPROOF_AUDIT_URL"):
            looked.insert(0, str(self.no_stack_in / AUDIT_FILE))
        raise NoTrail(
            f"no audit database at {' or '.join(looked)}: start a stack with `burnproof up`, or "
            "name a database, like BURNPROOF_AUDIT_URL=sqlite:////folder/audit.db"
        )

    def admin(self) -> GatewayAdmin | GatewayFleet:
        """Connect to the admin API of the gateway, or of all of them.

        Raises:
            ValueError: no token is set, or the address is none.
            NoStack: no token is set, and no stack runs that has one.
        """
        named = ("BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE", "BURNPROOF_GATEWAY_ADMIN_TOKEN")
        if self.no_stack_in is not None and not any(is_set(name) for name in named):
            raise NoStack(
                f"no stack runs from {self.no_stack_in}: `burnproof up`, or set "
                f"{STATE_VARIABLE} to the state directory of one that runs, or "
                "BURNPROOF_GATEWAY_URL and BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE to a gateway"
            )
        try:
            return connect(self.gateway.urls(), self.gateway.token())
        except httpx.InvalidURL:
            raise ValueError(
                "BURNPROOF_GATEWAY_URL is no address: write it like http://127.0.0.1:8000"
            ) from None

    @property
    def is_simulated(self) -> bool:
        """Tell whether the engine behind the gateway is a simulation."""
        return self.engine == "simulated"


def login() -> str:
    """Return who is at this terminal; a container may have no name for its user."""
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return "unknown"


def load_context() -> Context:
    """Read settings; fill what is not set from the running local stack."""
    state = load_state()
    if state is None:
        directory = default_directory()
        audit_settings, left = AuditSettings(), directory / AUDIT_FILE
        if not is_set("BURNPROOF_AUDIT_URL") and left.is_file():  # of a stack that was taken down
            audit_settings = AuditSettings(url=f"sqlite:///{left}")
        engine = WorkerSettings().engine
        return Context(TemporalSettings(), GatewaySettings(), audit_settings, engine, directory)
    found = {key: value for key, value in state.environment().items() if not is_set(key)}
    temporal = {
        field: found[f"BURNPROOF_TEMPORAL_{field.upper()}"]
        for field in ("address", "ui_url")
        if f"BURNPROOF_TEMPORAL_{field.upper()}" in found
    }
    gateway: dict[str, str | Path] = {}
    if "BURNPROOF_GATEWAY_URL" in found:
        gateway["url"] = found["BURNPROOF_GATEWAY_URL"]
    if "BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE" in found and not is_set(
        "BURNPROOF_GATEWAY_ADMIN_TOKEN"
    ):
        gateway["admin_token_file"] = Path(found["BURNPROOF_GATEWAY_ADMIN_TOKEN_FILE"])
    audit = {"url": found["BURNPROOF_AUDIT_URL"]} if "BURNPROOF_AUDIT_URL" in found else {}
    return Context(
        TemporalSettings.model_validate({**TemporalSettings().model_dump(), **temporal}),
        GatewaySettings.model_validate({**GatewaySettings().model_dump(), **gateway}),
        AuditSettings.model_validate({**AuditSettings().model_dump(), **audit}),
        found.get("BURNPROOF_WORKER_ENGINE", WorkerSettings().engine),
    )
