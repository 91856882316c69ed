import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tilejax._jax.jaxprs import trace, with_
from tilejax._jax.nested import nested, with_nested
from tilejax.errors import PassError
from tilejax.ir import verify


def _looped(x):
    return lax.scan(lambda c, a: (jnp.sin(c) + a, c), x[0], x)


def test_verify_takes_what_jax_traced():
    for fn in (jnp.sin, _looped, jax.jit(_looped), jax.grad(lambda x: _looped(x)[0])):
        verify(trace(fn, jnp.ones(3))[0], name="trace")


def test_verify_takes_the_body_of_a_shard_map(eight_devices):
    mesh = jax.sharding.Mesh(np.array(eight_devices), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    f = jax.shard_map(
        lambda x: lax.psum(x, "x") + x, mesh=mesh, in_specs=spec, out_specs=spec
    )
    verify(trace(f, jnp.ones(8))[0], name="trace")


def test_verify_names_the_pass_and_the_body_at_fault():
    program, _ = trace(_looped, jnp.ones(3))
    at = next(i for i, e in enumerate(program.eqns) if e.primitive.name == "scan")
    ((_, body),) = nested(program.eqns[at])
    broken = with_nested(program.eqns[at], [with_(body, eqns=body.eqns[1:])])
    eqns = [broken if i == at else e for i, e in enumerate(program.eqns)]
    with pytest.raises(PassError, match=rf"'mine'.*jaxpr of equation {at} \(scan\)"):
        verify(with_(program, eqns=eqns), name="mine")


def test_verify_sees_a_variable_defined_twice():
    program, _ = trace(jnp.sin, 1.0)
    with pytest.raises(PassError, match=r"'twice' defined .* twice"):
        verify(with_(program, eqns=program.eqns * 2), name="twice")


def test_verify_sees_a_wrong_type():
    program, _ = trace(lambda x: jnp.sin(x) + 1, jnp.ones(2))
    eqns = [e.replace(primitive=lax.is_finite_p, params={}) for e in program.eqns[:1]]
    with pytest.raises(PassError, match="'typed' left an ill-typed program"):
        verify(with_(program, eqns=[*eqns, *program.eqns[1:]]), name="typed")


def test_verify_sees_an_output_that_nothing_defines():
    program, _ = trace(jnp.sin, 1.0)
    with pytest.raises(PassError, match="the outputs"):
        verify(with_(program, eqns=[]), name="mine")
