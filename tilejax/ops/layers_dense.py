"""Layers of products: dense, embeddings, attention with its projections."""

from typing import Any

from tilejax.errors import ParameterError
from tilejax.ops import linear, sequences, shapes
from tilejax.ops.initialisers import Initialiser
from tilejax.ops.layers import Builder, add_activation, fixed, layer, positive


@layer(("f32[2,6]", {"units": 3}), ("f32[2,5,6]", {"units": 3, "activation": "relu"}))
def dense(
    build: Builder,
    x,
    units: int,
    *,
    use_bias: bool = True,
    activation: Any = None,
    kernel_init: Initialiser = "glorot_uniform",
    bias_init: Initialiser = "zeros",
    dtype: Any = None,
):
    """Multiply the last axis by a kernel (inputs, units), and add a bias (units,)."""
    units = positive("dense", "units", units)
    dtype = x.dtype if dtype is None else dtype
    shape = (fixed("dense", x, -1, "last axis"), units)
    kernel = build.parameter("kernel", shape, init=kernel_init, dtype=dtype)
    operands = [x, kernel]
    if use_bias:
        bias = build.parameter("bias", (units,), init=bias_init, dtype=dtype)
        operands.append(bias)
    return add_activation(build, activation, build.apply(linear.dense, *operands))


@layer(("i32[2,5]<7", {"vocabulary": 7, "features": 4}))
def embedding(
    build: Builder,
    ids,
    vocabulary: int,
    features: int,
    *,
    out_of_range: str = "fill",
    table_init: Initialiser = "normal",
    dtype: Any = "float32",
):
    """Look up a row of a table (vocabulary, features) for each index."""
    shape = tuple(
        positive("embedding", name, n)
        for name, n in {"vocabulary": vocabulary, "features": features}.items()
    )
    table = build.parameter("table", shape, init=table_init, dtype=dtype)
    return build.apply(sequences.embedding, table, ids, out_of_range=out_of_range)


@layer(("i32[2,5]<7", {"vocabulary": 7, "features": 4, "mode": "mean"}))
def embedding_bag(
    build: Builder,
    ids,
    vocabulary: int,
    features: int,
    *,
    mode: str = "sum",
    out_of_range: str = "fill",
    table_init: Initialiser = "normal",
    dtype: Any = "float32",
):
    """Add up the rows of a table (vocabulary, features) that the last axis names."""
    shape = tuple(
        positive("embedding_bag", name, n)
        for name, n in {"vocabulary": vocabulary, "features": features}.items()
    )
    table = build.parameter("table", shape, init=table_init, dtype=dtype)
    params = {"mode": mode, "out_of_range": out_of_range}
    return build.apply(sequences.embedding_bag, table, ids, **params)


@layer(
    ("f32[2,5,8]", {"heads": 2}),
    ("f32[2,5,8]", {"heads": 4, "kv_heads": 2, "causal": True, "use_bias": False}),
)
def multi_head_attention(
    build: Builder,
    x,
    context: Any = None,
    *,
    heads: int,
    kv_heads: int | None = None,
    features: int | None = None,
    mask: Any = None,
    causal: bool = False,
    use_bias: bool = True,
    kernel_init: Initialiser = "glorot_uniform",
    bias_init: Initialiser = "zeros",
):
    """Attend from x (batch, length, width) to itself or a context, over several heads.

    Kernels `query`, `key` and `value` are (width, heads * features), `out` is (heads *
    features, width); `features` of one head are width / heads by default.
    """
    name = "multi_head_attention"
    width, heads = fixed(name, x, -1, "last axis"), positive(name, "heads", heads)
    kv_heads = heads if kv_heads is None else positive(name, "kv_heads", kv_heads)
    if features is None:
        if width % heads:
            raise ParameterError(
                f"{name}: {heads} heads do not divide the width {width} of x; give "
                "features= of one head"
            )
        features = width // heads
    context = x if context is None else context

    def project(y, label: str, units: int):
        inputs = fixed(name, y, -1, "last axis")
        kernel = build.parameter(
            label, (inputs, units), init=kernel_init, dtype=x.dtype
        )
        if not use_bias:
            return build.apply(linear.dense, y, kernel)
        bias = build.parameter(f"{label}_bias", (units,), init=bias_init, dtype=x.dtype)
        return build.apply(linear.dense, y, kernel, bias)

    def by_head(y, label: str, count: int):
        flat = project(y, label, count * features)
        return build.apply(shapes.reshape, flat, (*y.shape[:-1], count, features))

    q = by_head(x, "query", heads)
    k = by_head(context, "key", kv_heads)
    v = by_head(context, "value", kv_heads)
    params = {"mask": mask, "causal": causal, "layout": "bshd"}
    o = build.apply(sequences.attention, q, k, v, **params)
    flat = build.apply(shapes.reshape, o, (*x.shape[:-1], heads * features))
    return project(flat, "out", width)
