"""A function of padded arrays that does what another does of the real ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from tilejax._jax.jaxprs import is_tracer, trace
from tilejax._jax.symbolic import choices_refused, is_symbolic, size_at, symbols
from tilejax.errors import BucketError
from tilejax.passes.padded import (
    indexing as indexing,  # which state their rules
    nesting as nesting,
    pointwise as pointwise,
    shaping as shaping,
    summing as summing,
    tiled as tiled,
    windows as windows,
)
from tilejax.passes.padded.axes import UNIFORM, Frame, Padded, layouts_of
from tilejax.passes.padded.run import run


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class Cut:
    """A padded result, and what to cut it to.

    **Arguments:**

    - `axes`: for each axis the factors of its size; empty where nothing is padded.
    """

    x: Any
    axes: tuple[tuple, ...]

    def tree_flatten(self):
        """Keep the factors with the type."""
        return (self.x,), self.axes

    @classmethod
    def tree_unflatten(cls, axes, children):
        """Put it together again."""
        return cls(children[0], axes)

    def real(self, buckets: Mapping[str, int], sizes: Mapping[str, int]) -> Any:
        """Return the real elements.

        **Arguments:**

        - `buckets`, `sizes`: the padded and the real size of each name.
        """
        x = self.x
        for at, factors in enumerate(self.axes):
            if not factors:
                continue
            parts = [int(size_at(f, buckets)) for f in factors]
            x = x.reshape(*x.shape[:at], *parts, *x.shape[at + 1 :])
            cut = [slice(int(size_at(f, sizes))) for f in factors]
            x = x[(*(slice(None),) * at, *cut)]
            x = x.reshape(*x.shape[:at], -1, *x.shape[at + len(factors) :])
        return x


def padded(
    fun: Callable, *, gated: bool, bounds: Mapping[str, tuple[int, int]]
) -> Callable:
    """Return a function of padded arguments.

    **Arguments:**

    - `fun`: of arrays of any size.
    - `gated`: whether it will be differentiated.
    - `bounds`: the least and the greatest that the size of each name can be. What the
      function asks of sizes must be the same for all between.

    **Returns:**

    A function `(names, sizes, args, kwargs)`, `names` being a tree like `(args,
    kwargs)` with a tuple a leaf, of a name or None an axis. It returns what `fun` does,
    with a `Cut` for each array.
    """

    def function(names: Sequence, sizes: Mapping[str, Any], args, kwargs):
        leaves, tree = jax.tree.flatten((args, kwargs))
        known = symbols(bounds, bounds)
        buckets: dict[str, int] = {}
        given, types = [], []
        for leaf, axes in zip(leaves, names, strict=True):
            if not is_tracer(leaf):
                continue
            shape = list(leaf.shape)
            for d, name in enumerate(axes):
                if name is not None:
                    buckets[name], shape[d] = shape[d], known[name]
            types.append(_symbolic(leaf, tuple(shape)))
            given.append(Padded(leaf, layouts_of(shape)))

        def on_traced(*values):
            there = iter(values)
            full = [next(there) if is_tracer(x) else x for x in leaves]
            args, kwargs = jax.tree.unflatten(tree, full)
            return fun(*args, **kwargs)

        try:
            with choices_refused():
                program, out_tree = trace(on_traced, *types)
        except jax.errors.InconclusiveDimensionOperation as error:
            raise BucketError(
                f"the function depends on the value of a padded size "
                f"({', '.join(known)}): {str(error).splitlines()[0]} Leave its name "
                "out of bucket="
            ) from error
        frame = Frame(buckets, {n: sizes[n] for n in buckets}, gated)
        outs = run(program, frame, given)
        cuts = [
            Cut(out.x, _factors(out, v.aval.shape))
            for out, v in zip(outs, program.outvars, strict=True)
        ]
        return jax.tree.unflatten(out_tree, cuts)

    return function


def _symbolic(x: Any, shape: tuple) -> jax.ShapeDtypeStruct:
    weak = getattr(jax.typeof(x), "weak_type", False)
    return jax.ShapeDtypeStruct(shape, x.dtype, weak_type=weak)


def _factors(out: Padded, shape: tuple) -> tuple[tuple, ...]:
    found = []
    for layout, size in zip(out.layouts, shape, strict=True):
        if not is_symbolic(size):
            found.append(())
        else:
            found.append((size,) if layout in (None, UNIFORM) else layout)
    return tuple(found) if any(found) else ()
