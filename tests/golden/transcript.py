"""Tell a run's history as text: one line for each command, with its decoded input.

A replay does not notice a changed argument, a changed queue or a changed time-out; a transcript
does. What differs from run to run is masked (ids, clocks, measured figures); what is written in
code or in a document stays. A large value is told once, at the end, under the name of a note.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

LONG = 160
"""Characters of JSON after which a value becomes a note."""

RUN_ID = re.compile(r"\bscenario-[0-9a-f]{8}\b")
UUID = re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b")
FIGURE = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?:e-?\d+)?(?![\w-])")
NOTE = re.compile(r"\*\d+n\b")
CLOCK = 1e9
"""Numbers above this are instants (unix seconds)."""
MASKED_KEYS = {"seed"}


def transcript(history: WorkflowHistory) -> str:
    """Return the whole text, newline at the end."""
    notes = Notes()
    lines = [f"{name} {notes.text(value)}".rstrip() for name, value in commands(history)]
    return notes.numbered("\n".join(lines)) + "\n"


class Notes:
    """Large values by name."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def text(self, value: Any, depth: int = 0) -> str:
        """Return the value in one line; large parts of it become notes."""
        if isinstance(value, dict) and value and depth < 2:
            inner = {key: self.text(item, depth + 1) for key, item in value.items()}
            pairs = ", ".join(f"{key}={item}" for key, item in inner.items())
            return pairs if depth == 0 else self._short(value, f"{{{pairs}}}")
        if value == {}:
            return "" if depth == 0 else "{}"
        return self._short(value, json.dumps(value, sort_keys=True))

    def _short(self, value: Any, line: str) -> str:
        if len(line) <= LONG:
            return line
        whole = json.dumps(value, sort_keys=True, indent=2)
        return self._names.setdefault(whole, f"*{len(self._names)}n")

    def numbered(self, text: str) -> str:
        """Number the notes in the order in which the text names them, and append those."""
        used = list(dict.fromkeys(NOTE.findall(text)))
        numbers = {name: f"*{number}" for number, name in enumerate(used, start=1)}
        text = NOTE.sub(lambda found: numbers[found[0]], text)
        whole = {name: whole for whole, name in self._names.items()}
        return "\n\n".join([text, *(f"{numbers[name]} = {whole[name]}" for name in used)])


def commands(history: WorkflowHistory) -> Iterator[tuple[str, Any]]:
    """Return each event that tells of a command or a message: its name and its decoded content."""
    for event in history.events:
        kind = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower()
        teller = TELLERS.get(kind)
        if teller is not None:
            attributes = getattr(event, f"{kind}_event_attributes")
            yield teller(attributes)


def decoded(payload: Payload) -> Any:
    """Return a payload's JSON with everything masked that differs between runs."""
    return masked(json.loads(payload.data)) if payload.data else None


def masked(value: Any) -> Any:
    """Replace ids, instants and measured figures."""
    if isinstance(value, dict):
        return {
            masked(key): "#" if key in MASKED_KEYS else masked(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, float) and (value > CLOCK or len(repr(value)) > len("0.0001")):
        return "#.#"
    return value


def masked_text(text: str) -> str:
    """Replace ids everywhere, and figures in sentences."""
    text = UUID.sub("<uuid>", RUN_ID.sub("<run>", text))
    return FIGURE.sub("#", text) if " " in text else text


def _limits(attributes: Any, *names: str) -> str:
    """Return the time limits that are set, and the queue."""
    found = [f"queue={attributes.task_queue.name}"]
    for name in names:
        limit: Duration = getattr(attributes, name)
        if limit.ToSeconds():
            found.append(f"{name.removesuffix('_timeout')}={limit.ToSeconds()}s")
    attempts = attributes.retry_policy.maximum_attempts
    return " ".join([*found, f"attempts={attempts or 'any'}"])


def _activity(attributes: Any) -> tuple[str, Any]:
    limits = _limits(
        attributes, "start_to_close_timeout", "schedule_to_close_timeout", "heartbeat_timeout"
    )
    values = [decoded(payload) for payload in attributes.input.payloads]
    return f"activity {attributes.activity_type.name} [{limits}]", values[0] if values else None


def _local(attributes: Any) -> tuple[str, Any]:
    data = json.loads(attributes.details["data"].payloads[0].data)
    result = attributes.details.get("result")
    said = decoded(result.payloads[0]) if result is not None else None
    name = f"local activity {data['activity_type']} ->"
    return name, said if said is not None else masked_text(attributes.failure.message)


def _child(attributes: Any) -> tuple[str, Any]:
    name = f"child {attributes.workflow_type.name} id={masked_text(attributes.workflow_id)}"
    return name, decoded(attributes.input.payloads[0])


def _upsert(attributes: Any) -> tuple[str, Any]:
    fields = attributes.search_attributes.indexed_fields
    return "upsert", {key: decoded(value) for key, value in sorted(fields.items())}


def _update(attributes: Any) -> tuple[str, Any]:
    asked = attributes.accepted_request.input
    return f"update {asked.name}", decoded(asked.args.payloads[0])


def _failed(attributes: Any) -> tuple[str, Any]:
    failure = attributes.failure
    kind = failure.application_failure_info.type
    return f"failed {kind}", masked_text(failure.message)


def _named(name: str, content: Callable[[Any], Any]) -> Callable[[Message], tuple[str, Any]]:
    return lambda attributes: (name, content(attributes))


TELLERS: dict[str, Callable[[Any], tuple[str, Any]]] = {
    "activity_task_scheduled": _activity,
    "activity_task_cancel_requested": _named("cancel of an activity", lambda _: {}),
    "marker_recorded": _local,
    "timer_started": _named("timer", lambda a: f"{a.start_to_fire_timeout.ToSeconds()} s"),
    "timer_canceled": _named("timer cancelled", lambda _: {}),
    "start_child_workflow_execution_initiated": _child,
    "request_cancel_external_workflow_execution_initiated": _named("cancel of a child", str),
    "upsert_workflow_search_attributes": _upsert,
    "workflow_execution_update_accepted": _update,
    "workflow_execution_cancel_requested": _named("cancel of the run", lambda _: {}),
    "workflow_execution_completed": _named("completed", lambda a: decoded(a.result.payloads[0])),
    "workflow_execution_failed": _failed,
    "workflow_execution_canceled": _named("cancelled", lambda _: {}),
}
