import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tilejax._jax.jaxprs import trace
from tilejax.ir import as_text

FIRST = """\
(a:f32[2]; b:f32[2]) {
  c:f32[2] = mul a b
  d:bool[2] = gt c 0.1:f32[]
  e:bf16[2] = convert_element_type[new_dtype=bf16] a
  return c d e
}"""


def test_text_shows_types_constants_and_parameters():
    table = np.ones(2, np.float32)

    def f(x):
        y = x * table
        return y, y > np.float32(0.1), x.astype(jnp.bfloat16)

    assert as_text(trace(f, table)[0]) == FIRST


@pytest.mark.parametrize(
    "value, text",
    [
        (-0.0, "-0.0:f32[]"),
        (np.nan, " nan:f32[]"),
        (-np.inf, "-inf:f32[]"),
        (np.float32(0.1), "0.1:f32[]"),
        (np.int8(3), "3:i8[]"),
        (1e-30, "1e-30:f32[]"),
    ],
)
def test_text_shows_literals_exactly(value, text):
    kind = np.float32 if isinstance(value, float | np.floating) else np.int8
    assert text in as_text(trace(lambda x: x + value, kind(1))[0])


def test_text_is_the_same_from_trace_to_trace_and_free_of_addresses():
    def f(x):
        y = jax.nn.relu(jax.checkpoint(jnp.sin)(x))
        ref = jax.new_ref(y)
        ref[...] = ref[...] + 1
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), x.dtype), ref[...])

    one, two = (as_text(trace(f, jnp.float32(1))[0]) for _ in range(2))
    assert one == two
    assert not re.search(r"0x[0-9a-f]{4}|id=", one)


def test_text_shows_where_a_value_lies(eight_devices):
    kinds = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((8,), ("x",), axis_types=kinds)
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((8, 2)), jax.sharding.PartitionSpec("x"))
        assert "f32[8,2]@(x,)" in as_text(trace(jnp.sin, x)[0])
        spec = jax.sharding.PartitionSpec("x")
        mapped = jax.shard_map(jnp.sin, out_specs=spec)
        assert "f32[1,2]{x} = sin" in as_text(trace(mapped, x)[0])


def test_text_names_dropped_results_and_empty_programs():
    assert as_text(trace(lambda: ())[0]) == "() {\n  return\n}"
    assert "_" in as_text(trace(lambda x: jnp.frexp(x)[0], jnp.ones(2))[0])
