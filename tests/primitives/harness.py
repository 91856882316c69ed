"""One record a case of an operation, and the comparison that all shared tests make.

Each family lists its cases in `cases_<family>.py`; `transforms.py` and `shardings.py`
hold what is done with them. What an operation should give is what a reference, written
here in plain JAX and not taken from the declaration, gives for the same operands in
float64; `oracle` is the same in NumPy alone, so that JAX is not the only witness.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# One dimension's mesh axis, one spec a dimension, one layout an operand.
Spec = tuple[str | tuple[str, ...] | None, ...]
Layout = tuple[Spec, ...]

FLOATS = ("float32", "float16", "bfloat16", "float64")
TOLERANCE = {
    "float32": 3e-5,
    "float16": 6e-3,
    "bfloat16": 5e-2,
    "float64": 1e-10,
    "int8": 0.0,
    "int32": 0.0,
}


# compared by identity, so that what is compiled for a case can be kept for all checks
@dataclass(frozen=True, eq=False)
class Case:
    """One use of an operation.

    **Arguments:**

    - `name`: unique; it starts with the family.
    - `fun`: what is tested, `(*operands, **params)` to an array or several.
    - `reference`: the same in plain JAX, keeping float64 where it is given.
    - `make`: `(rng)` to the operands: NumPy arrays, floating ones in float64 (they are
      cast to the dtype under test), others as they stay.
    - `params`: keyword arguments of both functions.
    - `moving`: the operands that are differentiated; None for all floating ones.
    - `mapped`: the operands that `vmap` may map; None for all.
    - `layouts`: shardings to try, a spec an operand, over the axes `x` and `y`; `x`
      has 2 or 4 devices, `y` has 2. `local` those of them for which each device's part
      can be computed by itself (`shard_map`); None for all.
    - `dtypes`: those that floating operands are cast to.
    - `oracle`: the same as `reference` in NumPy.
    - `tolerance`: by dtype, where `TOLERANCE` is too tight.
    - `special`: NaN and infinities in an operand give what the reference gives.
    - `thin`: only values, first derivatives and `vmap`: for edges of shapes.
    - `collectives`: what the compiled module must match, if not `reference`.
    - `fewer`: by (place in `layouts`, kind of axes, "value" or "gradient") the counts
      of the operation and of the reference, where a declared backward needs fewer
      collectives than the derived one; everywhere else they must be equal.
    """

    name: str
    fun: Callable
    reference: Callable
    make: Callable[[np.random.Generator], Sequence[np.ndarray]]
    params: Mapping[str, Any] = field(default_factory=dict)
    moving: tuple[int, ...] | None = None
    mapped: tuple[int, ...] | None = None
    layouts: tuple[Layout, ...] = ()
    local: tuple[int, ...] | None = None
    dtypes: tuple[str, ...] = FLOATS
    oracle: Callable | None = None
    tolerance: Mapping[str, float] = field(default_factory=dict)
    special: bool = True
    thin: bool = False
    collectives: Callable | None = None
    fewer: Mapping[tuple[int, str, str], tuple[dict, dict]] = field(
        default_factory=dict
    )

    def tested(self) -> Callable:
        """The operation as a function of operands to a tuple of arrays."""
        return _tupled(self.fun, self.params)

    def expected(self) -> Callable:
        """The reference, likewise."""
        return _tupled(self.reference, self.params)

    def alike(self) -> Callable:
        """What the collectives are compared with."""
        return _tupled(self.collectives or self.reference, self.params)

    def operands(self, dtype: str) -> list[np.ndarray]:
        """The operands in a dtype; the same ones in each."""
        rng = np.random.default_rng(len(self.name))
        return [
            x.astype(jnp.dtype(dtype)) if _floating(x) else x
            for x in map(np.asarray, self.make(rng))
        ]

    def differentiated(self) -> tuple[int, ...]:
        if self.moving is not None:
            return self.moving
        return tuple(i for i, x in enumerate(self.operands("float32")) if _floating(x))

    def batched(self) -> tuple[int, ...]:
        if self.mapped is not None:
            return self.mapped
        return tuple(range(len(self.operands("float32"))))

    def close(self, dtype: str, factor: float) -> float:
        return factor * self.tolerance.get(dtype, TOLERANCE[dtype])


def _floating(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _tupled(fun: Callable, params: Mapping) -> Callable:
    def run(*operands):
        out = fun(*operands, **params)
        return tuple(out) if isinstance(out, tuple | list) else (out,)

    return run


def widened(tree):
    """The same values, floating ones in float64, as NumPy arrays."""
    return jax.tree.map(
        lambda x: np.asarray(x, np.float64) if _floating(x) else np.asarray(x), tree
    )


def compare(case: Case, got, want, dtype: str, factor: float = 1.0) -> None:
    """Assert that two trees of arrays agree to what the dtype can hold.

    Errors are measured against the largest magnitude in each array, since sums lose
    what their largest terms lose.
    """
    paths, structure = jax.tree.flatten_with_path(widened(got))
    expected, other = jax.tree.flatten(widened(want))
    assert structure == other, f"{case.name}: {structure} instead of {other}"
    close = case.close(dtype, factor)
    for (path, one), two in zip(paths, expected, strict=True):
        at = f"{case.name} {dtype} {jax.tree_util.keystr(path)}"
        assert one.shape == two.shape, f"{at}: shape {one.shape}, not {two.shape}"
        finite = np.abs(two[np.isfinite(two)]) if two.dtype.kind == "f" else two
        scale = max(1.0, float(np.max(np.abs(finite), initial=0)))
        np.testing.assert_allclose(
            one, two, rtol=close, atol=close * scale, err_msg=at, equal_nan=True
        )


def check_transform(
    case: Case,
    transform: Callable,
    dtype: str,
    want: Any,
    types: Any,
    factor: float = 1.0,
) -> None:
    """Assert that the operation under a transformation does as the reference.

    `transform(function, case)` is a function of the operands; values are compared with
    the reference's in float64, types with the reference's in the dtype under test.
    """
    operands = case.operands(dtype)
    with jax.enable_x64(dtype == "float64"):
        traced = jax.jit(transform(case.tested(), case)).trace(*operands)
        found, expected = map(_names, (traced.out_info, types))
        assert found == expected, (
            f"{case.name}: types {found} differ from the reference's, {expected}"
        )
        got = widened(traced.lower().compile()(*operands))
    compare(case, got, want, dtype, factor)


def _names(types: Any) -> list[tuple]:
    return [(x.shape, x.dtype.name) for x in jax.tree.leaves(types)]


@cache
def types_of(case: Case, dtype: str) -> tuple[jax.ShapeDtypeStruct, ...]:
    """What the reference returns in a dtype, without running anything."""
    with jax.enable_x64(dtype == "float64"):
        return jax.eval_shape(case.expected(), *case.operands(dtype))


def moving_types(case: Case, dtype: str, front: tuple[int, ...] = ()) -> tuple:
    """The types of gradients: those of the operands that move, and a shape in front."""
    operands = case.operands(dtype)
    return tuple(
        jax.ShapeDtypeStruct((*front, *operands[i].shape), operands[i].dtype)
        for i in case.differentiated()
    )


@cache
def _pulled(case: Case) -> Callable:
    fun, at = case.expected(), case.differentiated()

    def run(operands, weights):
        def loss(*moving):
            full = list(operands)
            for i, x in zip(at, moving, strict=True):
                full[i] = x
            outs = fun(*full)
            terms = zip(outs, weights, strict=True)
            return sum(jnp.sum(w * jnp.sin(x)) for x, w in terms if _floating(x)), outs

        if not at:
            return fun(*operands), ()
        moving = [operands[i] for i in at]
        grads, outs = jax.grad(loss, tuple(range(len(at))), has_aux=True)(*moving)
        return outs, grads

    return jax.jit(run)


def pulled(
    case: Case, operands: Sequence, weights: Sequence | None = None
) -> tuple[tuple, tuple]:
    """The reference's values in float64, and the gradients of `loss_of` them.

    It is compiled once for all checks of a case, in whatever dtype. `weights` are
    those of the loss, if not the ones that `loss_of` takes.
    """
    if weights is None:
        outs = types_of(case, "float64")
        weights = [weights_of(x.shape, at) for at, x in enumerate(outs)]
    with jax.enable_x64(True):
        return widened(_pulled(case)(widened(list(operands)), list(weights)))


def exactly(case: Case, transform: Callable, dtype: str) -> Any:
    """What the reference gives under a transformation, in float64."""
    with jax.enable_x64(True):
        expected = jax.jit(transform(case.expected(), case))
        return widened(expected(*widened(case.operands(dtype))))


def loss_of(fun: Callable, seed: int = 0) -> Callable:
    """A smooth scalar of the results, no two elements of which count the same.

    The sine makes cotangents depend on results, so a backward that forgets that its
    saved results move is caught in the second derivative.
    """

    def loss(*operands):
        total = 0.0
        for at, out in enumerate(fun(*operands)):
            if jnp.issubdtype(out.dtype, jnp.floating):
                weights = weights_of(out.shape, at + seed).astype(out.dtype)
                # a sum in a small dtype would drown the rest
                wide = jnp.promote_types(out.dtype, jnp.float32)
                total += jnp.sum((weights * jnp.sin(out)).astype(wide))
        return total

    return loss


def weights_of(shape, seed: int) -> np.ndarray:
    """Of each element of a result in a loss."""
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape)
