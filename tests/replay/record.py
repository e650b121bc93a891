"""Record workflow histories: `python -m tests.replay.record [SCENARIO]`. Review the diff.

Files hold what a replay needs and nothing of the machine: who polled, where the code lay and which
binary it was are wiped.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from tests.replay.scenarios import SCENARIOS, play

HISTORIES = Path(__file__).parent / "histories"
WIPED = {"identity": "recorder", "stackTrace": ""}


def wipe(node: Any) -> Any:
    """Return the history without what is true of one machine only."""
    if isinstance(node, dict):
        kept = {key: WIPED.get(key, wipe(value)) for key, value in node.items()}
        kept.pop("workerVersion", None)
        return kept
    if isinstance(node, list):
        return [wipe(item) for item in node]
    return node


async def record(name: str) -> list[Path]:
    """Play one scenario and write its histories."""
    written = []
    for workflow, history in (await play(name)).items():
        path = HISTORIES / workflow / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(wipe(history.to_json_dict()), indent=1, sort_keys=True) + "\n")
        written.append(path)
    return written


def main(names: list[str]) -> int:
    """Record the scenarios named, or all."""
    unknown = set(names) - set(SCENARIOS)
    if unknown:
        sys.stderr.write(f"no scenario {sorted(unknown)}; there are: {', '.join(SCENARIOS)}\n")
        return 2
    logging.disable(logging.CRITICAL)  # scenarios fail and are cancelled on purpose
    for name in names or SCENARIOS:
        for path in asyncio.run(record(name)):
            sys.stdout.write(f"{path.relative_to(HISTORIES.parent)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
