"""The text of the running Python, as numbers, and batches of it."""

import numpy as np
import pytest

from tilejax.demo import text as text_of


@pytest.fixture(scope="module")
def text():
    return text_of.load()


def test_the_text_is_english_and_long_enough(text):
    words = text.decode(text.train).split()
    assert len(words) > 50_000
    assert words.count("the") > 1_000


def test_numbers_are_those_of_the_alphabet(text):
    for part in (text.train, text.held_out):
        assert part.dtype == np.uint8
        assert part.max() < len(text.alphabet) <= 256
    assert len(set(text.alphabet)) == len(text.alphabet)


def test_what_is_held_out_is_not_learned(text):
    train = text.decode(text.train)
    for start in range(0, len(text.held_out) - 200, len(text.held_out) // 20):
        assert text.decode(text.held_out[start : start + 200]) not in train


def test_loading_again_gives_the_same(text):
    again = text_of.load()
    assert again.alphabet == text.alphabet
    assert np.array_equal(again.train, text.train)


def test_a_batch_is_the_same_each_time_and_another_each_step(text):
    def batch(step, seed=0):
        return np.asarray(text_of.batch(text.train, step, 4, 16, seed))

    assert batch(3).shape == (4, 17) and batch(3).dtype == np.int32
    assert np.array_equal(batch(3), batch(3))
    assert not np.array_equal(batch(3), batch(4))
    assert not np.array_equal(batch(3), batch(3, seed=1))


def test_a_batch_is_cut_from_the_text(text):
    piece = text.decode(np.asarray(text_of.batch(text.train, 0, 1, 40, 0))[0])
    assert piece in text.decode(text.train)
