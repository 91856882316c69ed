"""Few cases that still try every pair of options together."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any


def pairwise(options: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Choose cases so that any two values of two options meet in one of them.

    Greedy: of all combinations, take the one with the most pairs not yet met, until
    none is left. Values are told apart by their place, so they need not hash.
    """
    names = list(options)
    places = [range(len(options[name])) for name in names]

    def pairs(case):
        return set(itertools.combinations(enumerate(case), 2))

    product = list(itertools.product(*places))
    missing = set().union(*map(pairs, product))
    chosen = []
    while missing:
        best = max(product, key=lambda case: len(pairs(case) & missing))
        missing -= pairs(best)
        chosen.append(best)
    return [
        {name: options[name][i] for name, i in zip(names, case, strict=True)}
        for case in chosen
    ]
