import json
import random
from itertools import accumulate, islice, takewhile
from statistics import mean

import pytest

from traffic.profiles import MAX_REQUESTS, ChatProfile, arrival_gaps, parse_lengths


def test_arrivals_are_a_poisson_process_of_the_asked_rate():
    gaps = list(islice(arrival_gaps(1, 50.0), 20_000))
    # Exponential: mean 1/rate with a standard error of mean/sqrt(n), and P(gap > mean) = 1/e.
    assert abs(mean(gaps) - 0.02) < 4 * 0.02 / 20_000**0.5
    above = sum(gap > 0.02 for gap in gaps) / len(gaps)
    assert abs(above - 0.3679) < 4 * (0.3679 * 0.6321 / 20_000) ** 0.5


def test_arrivals_in_disjoint_seconds_vary_as_much_as_their_mean():
    times = list(takewhile(lambda t: t < 400, accumulate(arrival_gaps(3, 20.0))))
    counts = [0] * 400
    for at in times:
        counts[int(at)] += 1
    average = mean(counts)
    variance = mean((count - average) ** 2 for count in counts)
    # Poisson: variance = mean; the ratio has a standard error of sqrt(2 / 400) = 0.07.
    assert abs(variance / average - 1) < 0.28


def test_the_seed_decides_the_arrivals():
    assert list(islice(arrival_gaps(5, 1.0), 5)) == list(islice(arrival_gaps(5, 1.0), 5))
    assert list(islice(arrival_gaps(5, 1.0), 5)) != list(islice(arrival_gaps(6, 1.0), 5))


@pytest.mark.parametrize(
    "text", ["geometric:1", "geometric:3", "geometric:8", "fixed:1", "fixed:8"]
)
def test_the_stated_mean_length_is_the_drawn_one(text):
    lengths, chance = parse_lengths(text), random.Random(2)
    drawn = [lengths.draw(chance) for _ in range(20_000)]
    assert min(drawn) >= 1
    assert max(drawn) <= MAX_REQUESTS
    # The standard deviation is below 3 requests, so the standard error is below 0.022.
    assert abs(mean(drawn) - lengths.mean()) < 4 * 0.022


@pytest.mark.parametrize("text", ["geometric:0.5", "geometric:9", "fixed:0", "fixed:9", "x:1", ""])
def test_lengths_that_make_no_sense_are_refused(text):
    with pytest.raises(ValueError, match=r"length|mean"):
        parse_lengths(text)


def test_a_conversation_pauses_before_every_request_but_the_first():
    profile = ChatProfile("m", 4, parse_lengths("fixed:5"))
    talk = profile.conversation("u", random.Random(1))
    assert (talk.unit, len(talk.prompts), len(talk.pauses)) == ("u", 5, 5)
    assert talk.pauses[0] == 0
    assert all(pause > 0 for pause in talk.pauses[1:])


def test_a_body_carries_the_history_in_turns():
    body = json.loads(ChatProfile("m", 4).body(["a", "b", "c"], ["x", "y"]))
    assert [(one["role"], one["content"]) for one in body["messages"]] == [
        ("user", "a"),
        ("assistant", "x"),
        ("user", "b"),
        ("assistant", "y"),
        ("user", "c"),
    ]
    assert (body["model"], body["max_tokens"], body["stream"]) == ("m", 4, True)
    assert body["stream_options"] == {"include_usage": True}


def test_a_body_is_ascii_even_when_an_answer_held_half_a_surrogate_pair():
    body = ChatProfile("m", 4).body(["a", "b"], ["x\ud83d"])
    assert body.isascii()
    assert rb"x\ud83d" in body
