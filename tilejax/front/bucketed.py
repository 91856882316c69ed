"""`tilejax.jit(bucket=...)`: one program for many sizes."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tilejax._jax.jaxprs import is_tracer
from tilejax.errors import ParameterError, ShapeError
from tilejax.front.buckets import (
    bucket_of,
    check_axes,
    check_rules,
    least_of,
    names_of,
    resize,
)
from tilejax.front.stages import Lowered
from tilejax.front.tile import Tiled
from tilejax.passes.padded.program import Cut, padded

_REFUSED = ("in_shardings", "out_shardings", "static_argnums", "donate_argnums")


class Bucketed:
    """A function compiled once for each bucket of sizes; made by `tilejax.jit`.

    **Arguments:**

    - `fun`: of arrays of any size.
    - `bucket`, `axes`, `options`: as `tilejax.jit` takes them.
    - `jit`: compiles a function for sizes that are known.
    """

    def __init__(
        self, fun: Callable, bucket: Any, axes: Any, jit: Callable, options: Mapping
    ):
        refused = [name for name in _REFUSED if name in options]
        if refused:
            raise ParameterError(
                f"tilejax.jit(bucket=...) takes no {refused[0]}; the program is one of "
                "padded arguments (static_argnames and donate_argnames are taken)"
            )
        functools.update_wrapper(self, fun, updated=())
        self._fun = fun
        self._bucket = check_rules(bucket)
        self._axes = check_axes(axes, self._bucket, fun)
        self._labels = list(inspect.signature(fun).parameters)
        self._plain = jit(fun, **options)
        self._made: dict[Any, Any] = {}
        self._jit, self._options = jit, dict(options)

    def __call__(self, /, *args, **kwargs):
        """Pad the arguments, run, and cut the results to their real sizes."""
        run, (args, kwargs), buckets, sizes = self._padded(args, kwargs)
        if run is self._plain:
            return run(*args, **kwargs)
        numbers = {name: np.int32(n) for name, n in sizes.items()}
        outs = run(*args, **kwargs, bucket_sizes=numbers)

        def real(cut: Cut) -> Any:
            return _cut(cut, buckets, sizes)

        return jax.tree.map(real, outs, is_leaf=lambda x: isinstance(x, Cut))

    def lower(self, /, *args, **kwargs) -> Lowered:
        """Lower for the buckets of arguments such as these; see `tilejax.jit`."""
        return self._on_buckets("lower", args, kwargs)

    def tile(self, /, *args, **kwargs) -> Tiled:
        """Return the programs before and after the passes, for padded arguments."""
        return self._on_buckets("tile", args, kwargs)

    def eval_shape(self, /, *args, **kwargs):
        """Return the types of the results, at their real sizes."""
        return self._plain.eval_shape(*args, **kwargs)

    def __get__(self, instance, owner=None):
        """Bind a method, as a function does."""
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<tilejax.jit of {self.__wrapped__!r} for buckets {self._bucket}>"  # pyright: ignore

    def _on_buckets(self, what: str, args: tuple, kwargs: dict) -> Any:
        run, (args, kwargs), _, sizes = self._padded(args, kwargs)
        if run is self._plain:
            return getattr(run, what)(*args, **kwargs)
        numbers = {name: np.int32(n) for name, n in sizes.items()}
        return getattr(run, what)(*args, **kwargs, bucket_sizes=numbers)

    def _padded(self, args: tuple, kwargs: dict) -> tuple:
        """Return what to call, the padded arguments, the buckets and real sizes."""
        leaves, tree = jax.tree.flatten((args, kwargs))
        names = self._names(args, kwargs)
        sizes: dict[str, int] = {}
        for x, axes in zip(leaves, names, strict=True):
            for size, name in zip(getattr(x, "shape", ()), axes, strict=bool(axes)):
                if name is not None and sizes.setdefault(name, int(size)) != size:
                    raise ShapeError(
                        f"{name} is {sizes[name]} in one argument and {size} in "
                        f"another, of shape {x.shape}"
                    )
        is_off = jax.config.jax_disable_jit  # pyright: ignore
        if 0 in sizes.values() or not sizes or is_off:
            return self._plain, (args, kwargs), sizes, sizes
        buckets = {n: bucket_of(n, self._bucket[n], size) for n, size in sizes.items()}
        resized = [
            resize(x, axes, buckets) if any(axes) else x
            for x, axes in zip(leaves, names, strict=True)
        ]
        is_inside = any(map(is_tracer, leaves))
        bounds = {n: (least_of(self._bucket[n], b), b) for n, b in buckets.items()}
        if all(low == high for low, high in bounds.values()):
            return self._plain, (args, kwargs), sizes, sizes
        run = self._compiled(tuple(names), bounds, is_inside)
        return run, jax.tree.unflatten(tree, resized), buckets, sizes

    def _names(self, args: tuple, kwargs: dict) -> list[tuple]:
        """Name the axes of each leaf of the arguments."""
        labels = [
            self._labels[at] if at < len(self._labels) else ""
            for at in range(len(args))
        ]

        def named(label: str, value: Any) -> list[tuple]:
            spec = self._axes.get(label)
            return [
                ()
                if spec is None
                else names_of(label, spec, jnp.shape(x), self._bucket)
                for x in jax.tree.leaves(value)
            ]

        found = []
        for label, value in zip(labels, args, strict=True):
            found += named(label, value)
        for label in sorted(kwargs):
            found += named(label, kwargs[label])
        return found

    def _compiled(self, names: tuple, bounds: dict, gated: bool) -> Any:
        """Return the program for names of axes; with `gated` it is differentiable."""
        key = (names, tuple(bounds.items()), gated)
        if key not in self._made:
            inner = padded(self._fun, gated=gated, bounds=bounds)

            def function(*args, bucket_sizes, **kwargs):
                return inner(names, bucket_sizes, args, kwargs)

            function.__name__ = getattr(self._fun, "__name__", "function")
            own = inspect.signature(self._fun)
            extra = inspect.Parameter("bucket_sizes", inspect.Parameter.KEYWORD_ONLY)
            parameters = list(own.parameters.values())
            end = len(parameters) - any(p.kind is p.VAR_KEYWORD for p in parameters)
            parameters.insert(end, extra)
            function.__signature__ = own.replace(parameters=parameters)  # pyright: ignore
            self._made[key] = self._jit(function, **self._options)
        return self._made[key]


def _cut(cut: Cut, buckets: Mapping[str, int], sizes: Mapping[str, int]) -> Any:
    if not cut.axes or buckets == sizes:
        return cut.x
    x = cut.x
    is_key = jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended)
    if is_tracer(x) or is_key or x.committed or not _is_on_cpu(x):
        return cut.real(buckets, sizes)
    # in place, by NumPy: a slice of JAX's is compiled anew for each size
    return jax.device_put(Cut(np.asarray(x), cut.axes).real(buckets, sizes))


def _is_on_cpu(x: Any) -> bool:
    return all(device.platform == "cpu" for device in x.devices())
