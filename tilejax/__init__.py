"""A tiling compiler for JAX: write once, run anywhere, at the speed of the machine."""

from tilejax import errors as errors, ops as ops
from tilejax.front.checked import checked as checked
from tilejax.front.filter_jit import filter_jit as filter_jit
from tilejax.front.graph.graph import GraphBuilder as GraphBuilder
from tilejax.front.jit import jit as jit
from tilejax.front.native_pallas import native_pallas as native_pallas
from tilejax.front.register import register_op as register_op
from tilejax.options import Options as Options, options as options
from tilejax.report.explain import (
    Explanation as Explanation,
    KernelRecord as KernelRecord,
    explain as explain,
)
