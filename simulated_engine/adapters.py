"""LoRA adapters, loaded and unloaded at run time.

It keeps names, paths and voices; it has no weights. What is imitated is what a controller has to
live with: a duplicate name is 400, an absent path or name 404, a torn weight file 500 with a
healthy server, and `load_inplace` replaces without a word. A folder may say how its adapter
speaks, in the key `simulated_text` of adapter_config.json, so that a polluted adapter can be told
from a good one.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from simulated_engine.errors import ApiError, internal_error
from simulated_engine.language import Voice, base_voice


@dataclass(frozen=True, slots=True)
class Adapter:
    """One loaded adapter."""

    name: str
    path: str
    voice: Voice


class Adapters:
    """The adapters of one engine, by name."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._loaded: dict[str, Adapter] = {}

    def get(self, name: str) -> Adapter | None:
        """Return a loaded adapter."""
        return self._loaded.get(name)

    def all(self) -> list[Adapter]:
        """Return the loaded adapters in order of loading."""
        return list(self._loaded.values())

    def load(self, body: object) -> str:
        """Load what a request body asks for and return the success text.

        Raises:
            ApiError: bad fields, duplicate name, no free place, absent path, torn weights.
        """
        fields = body if isinstance(body, dict) else {}
        name, path = fields.get("lora_name"), fields.get("lora_path")
        if not isinstance(name, str) or not isinstance(path, str) or not name or not path:
            raise _user_error("Both 'lora_name' and 'lora_path' must be provided.")
        in_place = bool(fields.get("load_inplace", False))
        if name in self._loaded and not in_place:
            raise _user_error(
                f"The lora adapter '{name}' has already been loaded. If you want to load the "
                "adapter in place, set 'load_inplace' to True."
            )
        if name not in self._loaded and len(self._loaded) >= self._limit:
            raise _user_error(f"No free place: {self._limit} adapters are loaded already.")
        self._loaded[name] = Adapter(name, path, _read_voice(name, Path(path)))
        return f"Success: LoRA adapter '{name}' added successfully."

    def unload(self, body: object) -> str:
        """Forget an adapter and return the success text.

        Raises:
            ApiError: no name given, or no such adapter.
        """
        name = body.get("lora_name") if isinstance(body, dict) else None
        if not isinstance(name, str) or not name:
            raise _user_error("'lora_name' needs to be provided to unload a LoRA adapter.")
        if name not in self._loaded:
            raise ApiError(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        del self._loaded[name]
        return f"Success: LoRA adapter '{name}' removed successfully."


def _user_error(message: str) -> ApiError:
    return ApiError(400, message, "InvalidUserInput")


def _read_voice(name: str, folder: Path) -> Voice:
    config_file = folder / "adapter_config.json"
    if not config_file.is_file():
        raise ApiError(
            404, f"Loading lora {name} failed: No adapter found for {folder}", "NotFoundError"
        )
    try:
        config = json.loads(config_file.read_bytes())
        text = config.get("simulated_text")
    except (ValueError, AttributeError) as error:
        raise internal_error(f"Loading lora {name} failed: {error}") from error
    weights = folder / "adapter_model.safetensors"
    if weights.exists() and not _is_whole(weights):
        raise internal_error(
            f"Loading lora {name} failed: Error while deserializing header: "
            "incomplete metadata, file not fully covered"
        )
    words = text.split() if isinstance(text, str) else []
    return Voice(words) if words else base_voice()


def _is_whole(weights: Path) -> bool:
    """Say whether a safetensors file is as long as its header promises.

    Source: safetensors format: 8 bytes little-endian header length, JSON header, data.
    """
    data = weights.read_bytes()
    if len(data) < 8:
        return False
    header_length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + header_length])
        ends = [
            int(spec["data_offsets"][1]) for key, spec in header.items() if key != "__metadata__"
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return len(data) == 8 + header_length + max(ends, default=0)
