"""Tables of rules that a decorator fills."""

from collections.abc import Callable


def adding_to(rules: dict[str, Callable]) -> Callable:
    """Return a decorator that enters a function in a table under some names.

    >>> table = {}
    >>> @adding_to(table)("add", "sum")
    ... def rule():
    ...     return 1
    >>> sorted(table)
    ['add', 'sum']
    """

    def under(*names: str) -> Callable:
        def add(rule: Callable) -> Callable:
            rules.update(dict.fromkeys(names, rule))
            return rule

        return add

    return under
