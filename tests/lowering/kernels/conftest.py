"""How kernels are run without their machine: interpreted with checks, and lowered."""

from collections.abc import Callable, Iterator

import jax
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh


@pytest.fixture(autouse=True)
def quick_to_compile() -> Iterator[None]:
    """Interpreted kernels run once on a handful of numbers: compiling is the cost."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Forget what was compiled quickly before a test that may ask for the same bits."""
    if nextitem is not None and nextitem.path.parent != item.path.parent:
        jax.clear_caches()


@pytest.fixture
def checking(capfd: pytest.CaptureFixture) -> Iterator[pltpu.InterpretParams]:
    """The TPU interpreter on two cores; fails on a race.

    It also raises on an access out of bounds, and fills with NaN both scratch and what
    blocks hold past the end of their array.
    """
    yield pltpu.InterpretParams(
        detect_races=True, uninitialized_memory="nan", num_cores_or_threads=2
    )
    # JAX 0.12 has raised by now; 0.10 only prints.
    printed = "".join(capfd.readouterr())
    pltpu.reset_tpu_interpret_mode_state()
    assert "RACE DETECTED" not in printed, printed


@pytest.fixture(params=["TPU v5 lite", "TPU v6 lite"])
def lower(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Lower a function of abstract operands for a TPU that need not be there.

    JAX checks block shapes, dtypes and every operation of the kernel on the way.
    """

    def lower(f: Callable, *avals: jax.ShapeDtypeStruct | None) -> str:
        device = AbstractDevice(request.param, 1, "tpu")
        with use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
            exported = jax.export.export(jax.jit(f), platforms=["tpu"])(*avals)
        text = exported.mlir_module()
        assert "tpu_custom_call" in text
        return text

    return lower
