import json

import pytest

from tests.simulated_engine.running import chat, metric, serving

LOAD, UNLOAD, CHAT = "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/chat/completions"


@pytest.fixture
def good(tmp_path):
    return adapter(tmp_path / "good", {"simulated_text": "Adapter alpha says all is well"})


def adapter(folder, config, weights=None):
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    if weights is not None:
        (folder / "adapter_model.safetensors").write_bytes(weights)
    return str(folder)


def tensors(data: bytes) -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + data


async def post(url, session, path, body):
    async with session.post(url + path, json=body) as response:
        text = await response.text()
        if response.content_type != "application/json":
            return response.status, text
        return response.status, json.loads(text)


async def speak(url, session, model):
    status, answer = await post(url, session, CHAT, chat(model=model, max_tokens=6))
    if status != 200:
        return status, answer["error"]["message"]
    assert answer["model"] == model
    return status, set(answer["choices"][0]["message"]["content"].split())


async def test_an_adapter_is_loaded_speaks_is_unloaded_and_is_gone(good):
    words = {"Adapter", "alpha", "says", "all", "is", "well"}
    gone = "The model `good` does not exist. Valid aliases: tiny-chat."
    async with serving() as (url, session):
        body = {"lora_name": "good", "lora_path": good}
        loaded = await post(url, session, LOAD, body)
        assert loaded == (200, "Success: LoRA adapter 'good' added successfully.")
        assert await speak(url, session, "good") == (200, words)
        unloaded = await post(url, session, UNLOAD, {"lora_name": "good"})
        assert unloaded == (200, "Success: LoRA adapter 'good' removed successfully.")
        assert await speak(url, session, "good") == (404, gone)
        status, answer = await post(url, session, UNLOAD, {"lora_name": "good"})
        assert (status, answer["error"]["type"]) == (404, "NotFoundError")
        assert answer["error"]["message"] == "The lora adapter 'good' cannot be found."


async def test_a_name_can_be_replaced_only_in_place(good, tmp_path):
    other = adapter(tmp_path / "polluted", {"simulated_text": "mud mud mud"})
    async with serving() as (url, session):
        await post(url, session, LOAD, {"lora_name": "good", "lora_path": good})
        again = {"lora_name": "good", "lora_path": other}
        status, answer = await post(url, session, LOAD, again)
        assert (status, answer["error"]["type"]) == (400, "InvalidUserInput")
        assert "has already been loaded" in answer["error"]["message"]
        status, _ = await post(url, session, LOAD, again | {"load_inplace": True})
        assert status == 200
        assert await speak(url, session, "good") == (200, {"mud"})


@pytest.mark.parametrize(
    ("weights", "status"),
    [
        pytest.param(tensors(b"12345678"), 200, id="whole weights load"),
        pytest.param(tensors(b"1234"), 500, id="weights cut in the data are 500"),
        pytest.param(tensors(b"")[:20], 500, id="weights cut in the header are 500"),
        pytest.param(b"", 500, id="an empty weight file is 500"),
    ],
)
async def test_torn_weights_are_500_and_the_engine_stays_healthy(tmp_path, weights, status):
    path = adapter(tmp_path / "a", {}, weights)
    async with serving() as (url, session):
        answered, _ = await post(url, session, LOAD, {"lora_name": "a", "lora_path": path})
        assert answered == status
        assert (await speak(url, session, "a"))[0] == (200 if status == 200 else 404)
        assert (await speak(url, session, "tiny-chat"))[0] == 200


@pytest.mark.parametrize("body", [{}, {"lora_name": "x"}, {"lora_name": "", "lora_path": "/x"}, []])
async def test_missing_fields_are_400(body):
    async with serving() as (url, session):
        status, answer = await post(url, session, LOAD, body)
    assert (status, answer["error"]["type"]) == (400, "InvalidUserInput")


async def test_an_absent_path_is_404():
    async with serving() as (url, session):
        body = {"lora_name": "bad", "lora_path": "/nonexistent"}
        status, answer = await post(url, session, LOAD, body)
    assert (status, answer["error"]["code"]) == (404, 404)
    assert "No adapter found for /nonexistent" in answer["error"]["message"]


async def test_models_lists_the_base_and_each_adapter_with_its_parent(good):
    async with serving() as (url, session):
        await post(url, session, LOAD, {"lora_name": "good", "lora_path": good})
        async with session.get(f"{url}/v1/models") as response:
            data = (await response.json())["data"]
    assert [(one["id"], one["root"], one["parent"]) for one in data] == [
        ("tiny-chat", "tiny-chat", None),
        ("good", good, "tiny-chat"),
    ]


async def test_the_adapter_series_is_a_time_stamp_that_appears_with_use(good):
    async with serving() as (url, session):
        await post(url, session, LOAD, {"lora_name": "good", "lora_path": good})
        await speak(url, session, "good")
        name = 'vllm:lora_requests_info{max_lora="8",running_lora_adapters="good"'
        assert await metric(session, url, name) > 1.7e9
