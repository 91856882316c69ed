"""An immutable mapping that hashes, so that a record can be a cache key."""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

V = TypeVar("V")


class Table(Mapping[str, V], Generic[V]):
    """Hold names and values, in order, unchangeable.

    A `dict` cannot be hashed and a `MappingProxyType` cannot be pickled; a record
    needs both, to key caches and to travel to another process.

    **Arguments:**

    - `items`: Any mapping from strings, or nothing.

    Example:

    >>> Table({"float32": 2.0}) == {"float32": 2.0}
    True
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V] | None = None):
        """Copy the items."""
        self._items = dict(items or {})

    def __getitem__(self, key: str) -> V:
        """Return the value of a name."""
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in order."""
        return iter(self._items)

    def __len__(self) -> int:
        """Count the names."""
        return len(self._items)

    def __hash__(self) -> int:
        """Hash the items without regard to order, as equality does."""
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        """Show the call that makes this table."""
        return f"Table({self._items!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the call that makes this table."""
        return Table, (self._items,)
