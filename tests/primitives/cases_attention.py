"""Cases of attention, each option in some of them."""

import jax.numpy as jnp
import numpy as np

from tests.primitives.harness import Case
from tilejax.primitives.attention import attention


def _make(b, hq, hk, s, t, d, dv=None, bias=None, mask=None, segments=False):
    """q, k, v and then those of bias, mask and both segments that there are."""

    def make(rng):
        found = [
            rng.normal(size=(b, hq, s, d)),
            rng.normal(size=(b, hk, t, d)),
            rng.normal(size=(b, hk, t, dv or d)),
        ]
        if bias is not None:
            found.append(rng.normal(size=(*bias, s, t)))
        if mask is not None:
            seen = rng.random(size=(*mask, s, t)) < 0.6
            seen[..., 1, :] = False  # a query that sees nothing
            found.append(seen)
        if segments:
            found += [
                np.sort(rng.integers(0, 3, (b, n)), -1).astype(np.int32) for n in (s, t)
            ]
        return found

    return make


def _named(fun, names):
    """`fun` with the operands after q, k and v as the keywords of `names`."""

    def run(q, k, v, *more, **params):
        return fun(q, k, v, **dict(zip(names, more, strict=True)), **params)

    return run


def _repeated(x, group):
    """Each head `group` times, in a way that keeps the sharding of the heads."""
    b, heads, *rest = x.shape
    wide = jnp.stack([x] * group, axis=2)
    return wide.reshape(b, heads * group, *rest)


def _reference(
    q,
    k,
    v,
    bias=None,
    mask=None,
    q_segments=None,
    kv_segments=None,
    scale=None,
    causal=False,
    window=None,
    soft_cap=None,
    masked_rows="zeros",
    layout="bhsd",
):
    """The textbook's equations: each head of keys repeated, one softmax with a mask."""
    if layout == "bshd":
        q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    wide = jnp.promote_types(q.dtype, jnp.float32)
    group = q.shape[1] // k.shape[1]
    if group > 1:
        k, v = (_repeated(x, group) for x in (k, v))
    scores = jnp.einsum("bhsd,bhtd->bhst", q.astype(wide), k.astype(wide))
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if soft_cap is not None:
        scores = soft_cap * jnp.tanh(scores / soft_cap)
    if bias is not None:
        scores = scores + bias.astype(wide)
    i, j = jnp.arange(q.shape[2])[:, None], jnp.arange(k.shape[2])
    seen = jnp.ones(scores.shape, bool)
    if causal:
        seen &= j <= i
    if window is not None:
        seen &= (j >= i - window[0]) & (j <= i + window[1])
    if mask is not None:
        seen &= mask
    if q_segments is not None and kv_segments is not None:
        seen &= (q_segments[:, :, None] == kv_segments[:, None])[:, None]
    some = seen.any(-1, keepdims=True)
    # rows without a key see all, and are set right at the end
    shown = jnp.where(seen | ~some, jnp.where(some, scores, 0), -jnp.inf)
    top = jnp.max(shown, -1, keepdims=True, initial=-jnp.inf)
    raised = jnp.exp(shown - jnp.where(top == -jnp.inf, 0.0, top))
    p = raised / raised.sum(-1, keepdims=True)
    if masked_rows == "zeros":
        p = jnp.where(some, p, 0)
    o = jnp.einsum("bhst,bhtd->bhsd", p, v.astype(wide)).astype(q.dtype)
    return jnp.swapaxes(o, 1, 2) if layout == "bshd" else o


def _oracle(q, k, v, **_):
    """Plain attention, one query of one head at a time."""
    o = np.zeros((*q.shape[:3], v.shape[3]))
    for b, h, i in np.ndindex(*q.shape[:3]):
        scores = k[b, h] @ q[b, h, i] / np.sqrt(q.shape[3])
        p = np.exp(scores - scores.max())
        o[b, h, i] = p / p.sum() @ v[b, h]
    return o


def _case(name, make, names=(), **more):
    fun, reference = _named(attention, names), _named(_reference, names)
    return Case(f"attention {name}", fun, reference, make, **more)


_BATCH = ("x", None, None, None)
_HEADS = (None, "y", None, None)
_BOTH = ("x", "y", None, None)
_ROWS = (None, None, "y", None)
_ALL = (None,) * 4

CASES = [
    _case(
        "plain",
        _make(4, 2, 2, 4, 5, 3),
        oracle=_oracle,
        layouts=((_BATCH,) * 3, (_BOTH,) * 3, (_ROWS, _ALL, _ALL)),
    ),
    _case(
        "causal grouped",
        _make(2, 4, 2, 5, 5, 3, dv=2),
        params={"causal": True, "scale": 0.5},
        layouts=((_HEADS,) * 3,),
        special=False,
    ),
    _case(
        "bias and mask",
        _make(4, 2, 1, 3, 4, 2, bias=(1, 2), mask=(4, 1)),
        ("bias", "mask"),
        layouts=((_BATCH, _BATCH, _BATCH, _ALL, _BATCH),),
        special=False,
    ),
    _case(
        "soft cap and segments",
        _make(2, 2, 2, 5, 4, 3, bias=(2, 1), segments=True),
        ("bias", "q_segments", "kv_segments"),
        params={"soft_cap": 2.0},
        special=False,
    ),
    _case(
        "window uniform rows",
        _make(2, 2, 2, 7, 4, 3, mask=(1, 2)),
        ("mask",),
        params={"window": (2, 1), "masked_rows": "uniform", "layout": "bhsd"},
        special=False,
    ),
    _case(
        "length before heads",
        lambda rng: [
            rng.normal(size=s) for s in ((2, 3, 4, 2), (2, 5, 2, 2), (2, 5, 2, 2))
        ],
        params={"layout": "bshd"},
        thin=True,
    ),
    _case("of one key", _make(1, 1, 1, 1, 1, 1), thin=True),
    _case("of no queries", _make(2, 1, 1, 0, 3, 2), thin=True),
    _case("of no keys", _make(1, 2, 2, 3, 0, 2), thin=True),
    _case("of no batch", _make(0, 2, 1, 3, 2, 2), params={"causal": True}, thin=True),
    _case(
        "of no depth", _make(1, 2, 2, 2, 3, 0, dv=2), params={"scale": 1.0}, thin=True
    ),
]
