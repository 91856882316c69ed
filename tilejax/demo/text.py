"""English text that every Python has, as characters numbered from 0."""

from dataclasses import dataclass
from pydoc_data.topics import topics

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Text:
    """The topics of Python's `help`, in two parts.

    **Arguments:**

    - `alphabet`: the characters, each at its number.
    - `train`, `held_out`: numbers of characters, `uint8[n]`; every tenth topic is held
      out, and so are its paragraphs in others, since topics repeat each other.
    """

    alphabet: str
    train: np.ndarray
    held_out: np.ndarray

    def decode(self, numbers) -> str:
        """Return the characters of the numbers."""
        return "".join(self.alphabet[int(i)] for i in numbers)


# Rarer characters are left out, so that each one left is seen often.
_LEAST = 20
# Between paragraphs.
_BREAK = "\n\n"


def load() -> Text:
    """Read the topics of the running Python.

    >>> text = load()
    >>> len(text.alphabet) < 128 and len(text.train) > 400_000
    True
    """
    parts = [topics[name] for name in sorted(topics)]
    characters, counts = np.unique(list("".join(parts)), return_counts=True)
    alphabet = "".join(characters[counts >= _LEAST])
    number = {c: i for i, c in enumerate(alphabet)}

    def encode(chosen: list[str]) -> np.ndarray:
        found = [number[c] for c in "\n".join(chosen) if c in number]
        return np.array(found, dtype=np.uint8)

    held_out = [part for i, part in enumerate(parts) if i % 10 == 4]
    known = {piece for part in held_out for piece in part.split(_BREAK)}
    train = [
        _BREAK.join(piece for piece in part.split(_BREAK) if piece not in known)
        for i, part in enumerate(parts)
        if i % 10 != 4
    ]
    return Text(alphabet, encode(train), encode(held_out))


def batch(part: np.ndarray, step: int, rows: int, length: int, seed: int) -> jax.Array:
    """Cut pieces from random places, the same ones for the same step and seed.

    **Returns:** `int32[rows, length + 1]`: a piece and the character after it.
    """
    random = np.random.default_rng((seed, step))
    starts = random.integers(0, len(part) - length - 1, rows)
    return jnp.asarray(part[starts[:, None] + np.arange(length + 1)], jnp.int32)
