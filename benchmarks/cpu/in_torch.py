"""How one does it in PyTorch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]

from benchmarks.cpu.cases import Case
from benchmarks.cpu.operands import filled, operands, spread_out


def _matmul(case: Case, out: Any) -> Callable:
    return torch._int_mm if case.dtype == "int8" else torch.matmul


def _matvec(case: Case, out: Any) -> Callable:
    if case.dtype == "int8":
        return lambda w, x: torch._int_mm(w, x[:, None])[:, 0]
    return torch.mv


def _attention(case: Case, out: Any) -> Callable:
    causal = case.sizes["causal"]
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _softmax(case: Case, out: Any) -> Callable:
    return lambda x: torch.softmax(x, -1, out=out)


def _layer_norm(case: Case, out: Any) -> Callable:
    width = case.sizes["shape"][-1:]
    if out is None:
        return lambda x, scale, bias: F.layer_norm(x, width, scale, bias)
    statistics = [torch.empty(0, dtype=out.dtype) for _ in range(2)]
    into = torch.ops.aten.native_layer_norm.out
    return lambda x, scale, bias: into(
        *(x, width, scale, bias, 1e-5), out0=out, out1=statistics[0], out2=statistics[1]
    )[0]


def _rms_norm(case: Case, out: Any) -> Callable:
    width = case.sizes["shape"][-1:]
    return lambda x, scale: F.rms_norm(x, width, scale, 1e-6)


def _cross_entropy(case: Case, out: Any) -> Callable:
    return lambda logits, labels: F.cross_entropy(logits, labels, reduction="none")


def _embedding_bag(case: Case, out: Any) -> Callable:
    return lambda table, ids: F.embedding_bag(ids, table, mode="sum")


def _conv(case: Case, out: Any) -> Callable:
    run = F.conv1d if len(case.sizes["window"]) == 1 else F.conv2d
    groups = case.sizes["x"][-1]
    return lambda x, w: run(x, w, padding="same", groups=groups)


FUNCTIONS: dict[str, Callable[[Case, Any], Callable]] = {
    "matmul": _matmul,
    "matvec": _matvec,
    "attention": _attention,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "cross_entropy": _cross_entropy,
    "embedding_bag": _embedding_bag,
    "depthwise_conv": _conv,
}
"""Each takes the case and the array for the result, if it is to be reused."""


class InTorch:
    """PyTorch's side of a case; memory is reused where it takes an array for that."""

    def __init__(self, case: Case):
        torch.set_grad_enabled(False)
        first, *self.rest = _inputs(case)
        out = None if case.buffers == "fresh" else torch.empty_like(first)
        self.run = FUNCTIONS[case.family](case, out)
        self.firsts = [first, *[first.clone() for _ in range(case.cycle - 1)]]
        self.turn = 0
        result = self.run(first, *self.rest).float()
        if case.family == "depthwise_conv":
            result = result.movedim(1, -1)
        self.sample = spread_out(np.asarray(result.contiguous()).ravel())

    def __call__(self) -> None:
        """Run it once, to its end."""
        self.turn = (self.turn + 1) % len(self.firsts)
        self.run(self.firsts[self.turn], *self.rest)

    def description(self) -> dict:
        """Say what it gives; PyTorch does not tell what memory it takes on a CPU."""
        return {"temp_bytes": None, "sample": self.sample}


def _inputs(case: Case) -> list:
    """The inputs; an image keeps its features last, under PyTorch's order of axes."""
    arrays = [
        torch.from_numpy(x).to(getattr(torch, each.dtype))
        for x, each in zip(filled(case), operands(case), strict=True)
    ]
    if case.family == "cross_entropy":
        arrays[1] = arrays[1].long()
    if case.family == "depthwise_conv":
        x, w = arrays
        arrays = [x.movedim(-1, 1), w.movedim(-1, 0).movedim(-1, 1).contiguous()]
        if x.ndim == 3:  # a series has them first, since there is no other form
            arrays[0] = arrays[0].contiguous()
    return arrays
