"""The committed tiny model is whole, small, and what its README says; that needs no vLLM."""

import hashlib
import json
import re
import struct
from math import prod
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "models" / "tiny-chat"
RECIPE = REPOSITORY / "deploy" / "vllm" / "train_tiny_model.py"
SMALLEST_BYTES, LARGEST_BYTES = 2_000_000, 4_000_000


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tensors() -> dict[str, dict[str, object]]:
    """Read the header of the safetensors file: eight bytes of length, then JSON."""
    raw = (MODEL / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__", None)
    return header


def config() -> dict[str, object]:
    return json.loads((MODEL / "config.json").read_text())


def readme_figure(label: str) -> str:
    found = re.search(
        rf"^\| {re.escape(label)} \| (.+) \|$", (MODEL / "README.md").read_text(), re.M
    )
    assert found, f"no row {label!r}"
    return found[1]


def recipe_constant(name: str) -> str:
    found = re.search(rf"^{name} = (\S+)", RECIPE.read_text(), re.M)
    assert found, f"no {name}"
    return found[1]


def test_every_file_of_the_model_has_its_digest_and_it_matches() -> None:
    lines = [line.split() for line in (MODEL / "SHA256SUMS").read_text().splitlines()]
    assert {name: digest(MODEL / name) for _, name in lines} == {name: sha for sha, name in lines}
    assert {path.name for path in MODEL.iterdir()} - {"README.md", "SHA256SUMS"} == {
        name for _, name in lines
    }


def test_the_model_takes_two_to_four_megabytes_of_the_repository() -> None:
    total = sum(path.stat().st_size for path in MODEL.iterdir())
    assert SMALLEST_BYTES <= total <= LARGEST_BYTES


def test_the_readme_states_the_digest_the_bytes_and_the_parameters_of_the_weights() -> None:
    weights = MODEL / "model.safetensors"
    parameters = sum(prod(tensor["shape"]) for tensor in tensors().values())  # type: ignore[arg-type]
    assert readme_figure("SHA-256 of model.safetensors") == digest(weights)
    assert f"{weights.stat().st_size:,} bytes" in readme_figure("stored as")
    assert readme_figure("parameters") == f"{parameters:,}"


def test_the_readme_states_the_steps_and_the_seed_of_the_recipe() -> None:
    training = readme_figure("training")
    assert f"{int(recipe_constant('STEPS')):,} steps" in training
    assert f"seed {recipe_constant('SEED')}" in training
    assert f"{recipe_constant('BATCH_ROWS')} rows" in training
    assert f"{recipe_constant('ROW_TOKENS')} tokens" in training


def test_the_weights_fit_the_configuration() -> None:
    shapes = {name: tensor["shape"] for name, tensor in tensors().items()}
    made = config()
    assert shapes["model.embed_tokens.weight"] == [made["vocab_size"], made["hidden_size"]]
    assert "lm_head.weight" not in shapes and made["tie_word_embeddings"] is True
    layers = {name.split(".")[2] for name in shapes if name.startswith("model.layers.")}
    assert len(layers) == made["num_hidden_layers"]
    assert {tensor["dtype"] for tensor in tensors().values()} == {"F16"}
    assert made["architectures"] == ["LlamaForCausalLM"]


def test_no_weight_is_infinite_or_not_a_number() -> None:
    raw = (MODEL / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    halves = memoryview(raw)[8 + length :].cast("H")
    exponent = 0x7C00  # all five exponent bits set: infinite or not a number
    assert not any(half & exponent == exponent for half in halves)


def test_the_tokenizer_has_every_byte_and_the_special_tokens_where_the_model_expects_them() -> None:
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    made = config()
    assert len(vocabulary) == made["vocab_size"] == 2048
    assert sorted(vocabulary.values()) == list(range(2048))
    assert len([token for token in vocabulary if len(token) == 1]) == 256
    assert special["<|im_end|>"] == made["eos_token_id"]
    assert special["<|endoftext|>"] == made["bos_token_id"]
    assert special["<|pad|>"] == made["pad_token_id"]


@pytest.mark.parametrize("marker", ["<|im_start|>", "<|im_end|>"])
def test_the_chat_template_uses_tokens_that_the_tokenizer_has(marker: str) -> None:
    assert marker in (MODEL / "chat_template.jinja").read_text()
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    assert marker in {token["content"] for token in tokenizer["added_tokens"]}
