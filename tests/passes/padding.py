"""Programs with padded axes, and running them with poison in the padding."""

import jax
import jax.numpy as jnp
import numpy as np

from tilejax.passes.padded.program import Cut, padded

SIZES = {"b": 5, "s": 3}
BUCKETS = {"b": 8, "s": 4}
POISON = {"f": np.nan, "i": 1_000_000, "b": True, "u": 77}


def poisoned(x, axes, buckets):
    """Pad an array with what must not be looked at."""
    x = np.asarray(x)
    widths = [
        (0, 0 if name is None else buckets[name] - size)
        for size, name in zip(x.shape, axes, strict=True)
    ]
    return np.pad(x, widths, constant_values=POISON[x.dtype.kind])


def real(out, buckets, sizes):
    """Cut all results to their real sizes."""
    return jax.tree.map(
        lambda cut: np.asarray(cut.real(buckets, sizes)),
        out,
        is_leaf=lambda x: isinstance(x, Cut),
    )


def compiled(fun, names, sizes, buckets, *, gated):
    """Return the function of (sizes, args), padded, compiled."""
    there = {name for axes in names for name in axes if name}
    bounds = {n: (sizes[n], buckets[n]) for n in sorted(there)}
    inner = padded(fun, gated=gated, bounds=bounds)
    return jax.jit(lambda sizes, args: inner(names, sizes, args, {}))


def check_values(fun, args, names, *, sizes=SIZES, buckets=BUCKETS, rtol=2e-5):
    """Compare the padded program with the function of the real arrays."""
    given = [poisoned(x, axes, buckets) for x, axes in zip(args, names, strict=True)]
    numbers = {n: np.int32(sizes[n]) for n in {n for a in names for n in a if n}}
    found = compiled(fun, names, sizes, buckets, gated=False)(numbers, given)
    wanted = jax.jit(fun)(*args)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5),
        real(found, buckets, sizes),
        wanted,
    )


def check_gradients(fun, args, names, *, sizes=SIZES, buckets=BUCKETS, rtol=1e-4):
    """Compare the gradients of every floating argument, padding and all."""
    given = [poisoned(x, axes, buckets) for x, axes in zip(args, names, strict=True)]
    numbers = {n: np.int32(sizes[n]) for n in {n for a in names for n in a if n}}
    at = [i for i, x in enumerate(args) if np.asarray(x).dtype.kind == "f"]
    run = compiled(fun, names, sizes, buckets, gated=True)

    def loss(of):
        def total(moving, rest):
            full = list(rest)
            for i, x in zip(at, moving, strict=True):
                full[i] = x
            outs = jax.tree.leaves(of(full))
            return sum(jnp.sum(jnp.sin(x)) for x in outs if x.dtype.kind == "f")

        return total

    def cut(full):
        outs = run(numbers, full)
        return [
            x.real(buckets, sizes)
            for x in jax.tree.leaves(outs, is_leaf=lambda x: isinstance(x, Cut))
        ]

    ours = jax.jit(jax.grad(loss(cut)))([given[i] for i in at], given)
    theirs = jax.jit(jax.grad(loss(lambda full: fun(*full))))(
        [args[i] for i in at], args
    )
    for i, a, b in zip(at, ours, theirs, strict=True):
        slices = tuple(
            slice(None) if name is None else slice(sizes[name]) for name in names[i]
        )
        np.testing.assert_allclose(a[slices], b, rtol=rtol, atol=2e-5)
