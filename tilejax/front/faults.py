"""What a checked kernel has found, brought from XLA's errors to the user."""

import re

import jax

from tilejax._jax.jaxprs import is_tracer
from tilejax.errors import KernelFault
from tilejax.lowering.cpu.checked_text import MARK
from tilejax.options import current

_TEXT = re.compile(rf"kernel .*{re.escape(MARK)}", re.DOTALL)


def fault_of(error: Exception) -> KernelFault | None:
    """Return the fault that an error of XLA tells of; None if it is about another.

    Which class the error has depends on whether JAX waited for the program.
    """
    found = _TEXT.search(str(error))
    return KernelFault(found[0]) if found else None


def is_checked() -> bool:
    """Tell whether kernels that are lowered now check what they do."""
    return current().checked == "full"


def awaited(results):
    """Return a call's results when they are there."""
    leaves = jax.tree.leaves(results)
    arrays = [x for x in leaves if isinstance(x, jax.Array) and not is_tracer(x)]
    jax.block_until_ready(arrays)
    return results
