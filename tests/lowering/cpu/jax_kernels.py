"""JAX's own Pallas kernels, called as they are, interpreted or compiled."""

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

OPS = "jax.experimental.pallas.ops"


@dataclass(frozen=True)
class Case:
    """A call of a kernel.

    **Arguments:**

    - `run`: from the keyword `interpret` and the arguments to the results.
    - `arguments`: makes the arguments from random numbers.
    - `tolerance`: how far results may be apart, in parts of the largest one.
    - `required`: whether the call must compile; others are only reported.
    """

    run: Callable
    arguments: Callable
    tolerance: float = 1e-5
    required: bool = True


CASES: dict[str, Case] = {}


def _case(*shapes, tolerance=1e-5, required=True, dtype: Any = np.float32) -> Callable:
    """Add a call whose arguments are normal numbers of these shapes, or as given."""

    def add(run: Callable) -> Callable:
        def arguments(rng: np.random.Generator) -> list:
            return [
                jnp.asarray(rng.standard_normal(s), dtype)
                if isinstance(s, tuple)
                else jnp.asarray(s)
                for s in shapes
            ]

        name = run.__name__.strip("_")
        CASES[name] = Case(run, arguments, tolerance, required)
        return run

    return add


def _module(name: str):
    with warnings.catch_warnings():  # newer JAX means to move them to another package
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"{OPS}.{name}")


def _without_argument(f: Callable) -> Callable:
    """Call a kernel that has no `interpret=` with one for `pallas_call`."""

    def run(*args, interpret):
        own = pl.pallas_call
        pl.pallas_call = partial(own, interpret=interpret)
        try:
            return getattr(f, "__wrapped__", f)(*args)
        finally:
            pl.pallas_call = own

    return run


def _gradient(f: Callable, count: int) -> Callable:
    """The gradients of the sum of the squares of a result."""

    def loss(*args):
        return (f(*args).astype(jnp.float32) ** 2).sum()

    return jax.grad(loss, tuple(range(count)))


# For GPUs

_HEADS = (1, 128, 2, 32)


def _mha(q, k, v, segments=None, *, causal=False, interpret):
    gpu = _module("gpu.attention")
    names = ("block_q", "block_k", "block_q_dkv", "block_kv_dkv")
    names = (*names, "block_q_dq", "block_kv_dq")
    sizes = gpu.BlockSizes(**dict.fromkeys(names, 64))
    return gpu.mha(q, k, v, segments, 0.2, causal, sizes, interpret=interpret)


@_case(_HEADS, _HEADS, _HEADS)
def _gpu_attention(q, k, v, interpret):
    return _mha(q, k, v, interpret=interpret)


@_case(_HEADS, _HEADS, _HEADS, dtype=jnp.bfloat16, tolerance=2e-2)
def _gpu_attention_causal_bfloat16(q, k, v, interpret):
    return _mha(q, k, v, causal=True, interpret=interpret)


@_case(_HEADS, _HEADS, _HEADS, np.arange(128, dtype=np.int32)[None] // 50)
def _gpu_attention_segments(q, k, v, segments, interpret):
    return _mha(q, k, v, segments, interpret=interpret)


@_case(_HEADS, _HEADS, _HEADS, tolerance=1e-4)
def _gpu_attention_backward(q, k, v, interpret):
    return _gradient(partial(_mha, causal=True, interpret=interpret), 3)(q, k, v)


@_case((2, 16, 32), (2, 256, 32), (2, 256, 32))
def _gpu_decode_attention(q, k, v, interpret):
    return _module("gpu.decode_attention").mqa(q, k, v, interpret=interpret)


@_case((2, 16, 32), (2, 256, 4, 32), (2, 256, 4, 32))
def _gpu_decode_attention_of_groups(q, k, v, interpret):
    return _module("gpu.decode_attention").gqa(q, k, v, interpret=interpret)


@_case(
    *((2, 16, 32), (4, 32, 16, 32), (4, 32, 16, 32)),
    *(np.arange(32, dtype=np.int32).reshape(2, 16), np.array([150, 256], np.int32)),
)
def _gpu_paged_attention(q, k, v, tables, lengths, interpret):
    paged = _module("gpu.paged_attention").paged_attention
    return paged(q, k, v, tables, lengths, interpret=interpret)


def _norm(name: str) -> Callable:
    return getattr(_module(f"gpu.{name}"), name)


@_case((2, 8, 200), (200,), (200,))
def _gpu_layer_norm(x, w, b, interpret):
    return _norm("layer_norm")(x, w, b, interpret=interpret)


@_case((2, 8, 200), (200,), (200,), tolerance=1e-4)
def _gpu_layer_norm_backward(x, w, b, interpret):
    return _gradient(partial(_norm("layer_norm"), interpret=interpret), 3)(x, w, b)


@_case((2, 8, 200), (200,), (200,))
def _gpu_rms_norm(x, w, b, interpret):
    return _norm("rms_norm")(x, w, b, interpret=interpret)


@_case((2, 8, 200), (200,), (200,), tolerance=1e-4)
def _gpu_rms_norm_backward(x, w, b, interpret):
    return _gradient(partial(_norm("rms_norm"), interpret=interpret), 3)(x, w, b)


@_case((8, 300))
def _gpu_softmax(x, interpret):
    return _module("gpu.softmax").softmax(x, interpret=interpret)


# For TPUs


@_case((256, 256), (256, 256))
def _tpu_matmul(a, b, interpret):
    multiply = _module("tpu.matmul").matmul.__wrapped__
    multiply = partial(multiply, block_shape=(128, 128), block_k=128)
    return _without_argument(multiply)(a, b, interpret=interpret)


_ROWS = (1, 2, 128, 128)


def _flash(q, k, v, bias=None):
    flash = _module("tpu.flash_attention").flash_attention.__wrapped__
    return flash(q, k, v, bias, causal=True, sm_scale=0.1)


@_case(_ROWS, _ROWS, _ROWS)
def _tpu_flash_attention(q, k, v, interpret):
    return _without_argument(_flash)(q, k, v, interpret=interpret)


@_case(_ROWS, _ROWS, _ROWS, (1, 2, 128, 128))
def _tpu_flash_attention_bias(q, k, v, bias, interpret):
    return _without_argument(_flash)(q, k, v, bias, interpret=interpret)


@_case(_ROWS, _ROWS, _ROWS, tolerance=1e-4)
def _tpu_flash_attention_backward(q, k, v, interpret):
    return _without_argument(_gradient(_flash, 3))(q, k, v, interpret=interpret)


_GROUPS = np.array([50, 64, 100, 42], np.int32)


@_case((256, 128), (4, 128, 128), _GROUPS)
def _tpu_megablox(a, b, sizes, interpret):
    gmm = _module("tpu.megablox.gmm").gmm
    return gmm(a, b, sizes, interpret=interpret)


@_case((128, 256), (256, 128), _GROUPS)
def _tpu_megablox_transposed(a, b, sizes, interpret):
    tgmm = _module("tpu.megablox.gmm").tgmm
    return tgmm(a, b, sizes, interpret=interpret)


def _splash(interpret):
    kernel = _module("tpu.splash_attention.splash_attention_kernel")
    masks = _module("tpu.splash_attention.splash_attention_mask")
    mask = masks.MultiHeadMask([masks.CausalMask((256, 256)) for _ in range(2)])
    return kernel.make_splash_mha_single_device(mask, interpret=interpret)


_LONG = (2, 256, 128)


@_case(_LONG, _LONG, _LONG, required=False)
def _tpu_splash_attention(q, k, v, interpret):
    return _splash(interpret)(q, k, v)


@_case(_LONG, _LONG, _LONG, tolerance=1e-4, required=False)
def _tpu_splash_attention_backward(q, k, v, interpret):
    return _gradient(_splash(interpret), 3)(q, k, v)


_PAGES = np.arange(32, dtype=np.int32).reshape(2, 16)


@_case(
    *((2, 16, 128), (8, 64, 16, 128), (8, 64, 16, 128)),
    *(np.array([100, 200], np.int32), _PAGES),
    required=False,
)
def _tpu_paged_attention(q, k, v, lengths, pages, interpret):
    paged = _module("tpu.paged_attention.paged_attention_kernel").paged_attention
    call = partial(paged.__wrapped__, pages_per_compute_block=4)
    return _without_argument(call)(q, k, v, lengths, pages, interpret=interpret)


@_case(
    *((64, 8, 128), (32, 16, 4, 128), np.array([40, 200], np.int32), _PAGES),
    *(np.array([0, 20, 64], np.int32), np.array([2], np.int32)),
    required=False,
)
def _tpu_ragged_paged_attention(q, pages, lengths, tables, starts, count, interpret):
    kernel = _module("tpu.ragged_paged_attention.kernel")
    arguments = (q, pages, lengths, tables, starts, count)
    if interpret:  # the interpreter refuses this one, so the plain form is asked
        with jax.disable_jit():
            return kernel.ref_ragged_paged_attention(*arguments)
    call = kernel.ragged_paged_attention.__wrapped__
    call = partial(call, num_kv_pages_per_block=4, num_queries_per_block=32)
    return _without_argument(call)(*arguments, interpret=False)


def error_of(name: str, rng: np.random.Generator) -> float:
    """Run a case both ways; return how far the results are apart.

    **Returns:** the largest difference in parts of the largest number, infinite where
    one result is finite and the other is not.
    """
    case = CASES[name]
    arguments = case.arguments(rng)
    interpreted, compiled = (
        jax.tree.leaves(case.run(*arguments, interpret=mode)) for mode in (True, False)
    )
    worst = 0.0
    for one, other in zip(interpreted, compiled, strict=True):
        want, got = np.asarray(one, np.float64), np.asarray(other, np.float64)
        finite = np.isfinite(want)
        if not np.array_equal(want[~finite], got[~finite], equal_nan=True):
            return np.inf
        scale = max(1.0, np.abs(want[finite]).max(initial=0))
        worst = max(worst, np.abs(want - got)[finite].max(initial=0) / scale)
    return worst
