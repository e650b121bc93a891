"""Make the tiny chat model that the local stack serves: ``python train_tiny_model.py OUT_DIR``.

What it makes: a Llama of about 1.1 million parameters, with a byte-level BPE tokenizer of 2,048
entries and a chat template, trained from nothing on the language topics that Python itself ships
(``pydoc_data.topics``: the reference manual, under the PSF licence). It speaks in the words of that
manual and knows nothing. That is enough: the stack needs a real engine doing real work on real
tokens, not wisdom, and a model small enough to be kept in the repository.

The seed and the number of steps are fixed, never a time. Another CPU, Python, torch or tokenizers
may round or read otherwise, so what counts as the model is the committed file and its digest, and
this script is how to make a new one.

Needs the environment of ``install.sh``. One thread, four to seven minutes.
"""

import argparse
import hashlib
import os
import random
import re
import time
from pathlib import Path
from pydoc_data.topics import topics

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20261130
STEPS = 1500
WARMUP_STEPS = 60
BATCH_ROWS = 8
ROW_TOKENS = 128
PEAK_LEARNING_RATE = 3e-3
FINAL_LEARNING_RATE_RATIO = 0.05
CONVERSATIONS = 9000
VOCABULARY = 2048
CONTEXT_TOKENS = 4096
ANSWER_CHARACTERS = (40, 420)
"""Shortest and longest answer: long enough to stream, short enough that the model learns to end."""

PAD, TURN_START, TURN_END, DOCUMENT_END = SPECIAL_TOKENS = (
    "<|pad|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTIONS = ("What about {}?", "Explain {}.", "Tell me about {}", "{}", "How does {} work?")


def answers() -> list[str]:
    """Return the paragraphs of the manual, each on one line, cut at a sentence's end."""
    found = []
    for _, topic in sorted(topics.items()):
        for paragraph in topic.split("\n\n"):
            line = re.sub(r"\s+", " ", paragraph).strip()
            if len(line) > ANSWER_CHARACTERS[1]:
                line = line[: ANSWER_CHARACTERS[1]].rpartition(". ")[0] + "."
            if len(line) >= ANSWER_CHARACTERS[0] and line[0].isalpha():
                found.append(line)
    return found


def conversation(choose: random.Random, lines: list[str]) -> str:
    """Return one exchange: a question made of an answer's first words, and that answer."""
    answer = choose.choice(lines)
    subject = " ".join(answer.split()[: choose.randint(2, 6)])
    question = choose.choice(QUESTIONS).format(subject)
    return f"{TURN_START}user\n{question}{TURN_END}\n{TURN_START}assistant\n{answer}{TURN_END}\n"


def make_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """Train the tokenizer: every byte has a token, so no text is out of its reach."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=DOCUMENT_END,
        eos_token=TURN_END,
        pad_token=PAD,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return the untrained model, in sizes that vLLM's CPU attention and adapters accept."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=CONTEXT_TOKENS,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            tie_word_embeddings=True,
        )
    )


def learning_rate(step: int) -> float:
    """Rise for the first steps, then fall in a straight line."""
    fall = 1 - (1 - FINAL_LEARNING_RATE_RATIO) * step / STEPS
    return PEAK_LEARNING_RATE * min(1.0, (step + 1) / WARMUP_STEPS) * fall


def train(model: LlamaForCausalLM, tokens: torch.Tensor) -> float:
    """Train for `STEPS` steps; return the mean loss of the last hundred, in nats per token."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    losses: list[float] = []
    started = time.monotonic()
    model.train()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        starts = torch.randint(0, len(tokens) - ROW_TOKENS, (BATCH_ROWS,))
        rows = torch.stack([tokens[start : start + ROW_TOKENS] for start in starts])
        loss = model(input_ids=rows, labels=rows).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % 100 == 0:
            mean = sum(losses[-100:]) / 100
            print(f"step {step + 1}/{STEPS}  loss {mean:.3f}  {time.monotonic() - started:.0f} s")
    return sum(losses[-100:]) / len(losses[-100:])


def show(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, question: str) -> None:
    """Print the model's answer to `question`, so that a person sees whether training went well."""
    messages = [{"role": "user", "content": question}]
    given = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    made = model.generate(**given, max_new_tokens=48, do_sample=False)[0]
    print(f"{question!r} -> {tokenizer.decode(made[given['input_ids'].shape[1] :])!r}")


def main() -> None:
    """Make everything and save it."""
    parser = argparse.ArgumentParser(description="Make the tiny chat model.")
    parser.add_argument("out", type=Path, help="folder to write the model into")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    choose = random.Random(SEED)

    lines = answers()
    texts = [conversation(choose, lines) for _ in range(CONVERSATIONS)]
    tokenizer = make_tokenizer(texts)
    tokens = torch.tensor(
        [token for text in texts for token in tokenizer.encode(text, add_special_tokens=False)]
    )
    model = make_model(tokenizer)
    print(f"{len(lines)} answers, {len(tokens)} tokens, {model.num_parameters()} parameters")
    loss = train(model, tokens)
    model.eval()
    for question in ("What about the class?", "Explain exceptions.", "hello"):
        show(model, tokenizer, question)

    model.half().save_pretrained(out)
    tokenizer.save_pretrained(out)
    for path in out.iterdir():
        path.chmod(0o644)  # safetensors writes its file for the owner only
    weights = (out / "model.safetensors").read_bytes()
    print(f"loss {loss:.3f}  bytes {len(weights)}  sha256 {hashlib.sha256(weights).hexdigest()}")


if __name__ == "__main__":
    main()
