import inspect

import jax
import jax.numpy as jnp

from tilejax._jax.jaxprs import evaluate, trace
from tilejax.ir import source


def test_source_is_the_users_line():
    def f(x):
        return jnp.sin(x)

    found = source(trace(f, 1.0)[0].eqns[0])
    assert found is not None
    assert found.file == __file__ and found.function.endswith("f")
    assert found.line == inspect.getsourcelines(f)[1] + 1
    assert str(found).startswith(f"{__file__}:{found.line}")


def test_source_survives_an_evaluation_and_a_transformation():
    def f(x):
        return jnp.sin(x) * x

    program, _ = trace(f, 1.0)
    again, _ = trace(jax.grad(lambda x: evaluate(program, x)[0]), 1.0)
    lines = {found.line for eqn in again.eqns if (found := source(eqn))}
    assert inspect.getsourcelines(f)[1] + 1 in lines


def test_source_is_none_without_a_traceback():
    eqn = trace(jnp.sin, 1.0)[0].eqns[0]
    bare = eqn.source_info.replace()
    bare.traceback = None
    assert source(eqn.replace(source_info=bare)) is None
