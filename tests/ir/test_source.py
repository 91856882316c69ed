import inspect
import sys

import equinox as eqx
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


def test_source_is_not_a_library_that_the_user_calls():
    linear = eqx.nn.Linear(2, 3, key=jax.random.key(0))

    def fn(x):
        return linear(x)

    found = {source(eqn) for eqn in trace(fn, jnp.ones(2))[0].eqns}
    assert [str(each) for each in found] == [
        f"{__file__}:{inspect.getsourcelines(fn)[1] + 1} ({fn.__qualname__})"
    ]


def test_source_is_the_innermost_line_where_all_are_libraries(monkeypatch):
    module = sys.modules["tilejax.ir.source"]  # the function hides it as an attribute
    found = [("/x/site-packages/a.py", 3, "f"), ("/x/dist-packages/b.py", 4, "g")]
    monkeypatch.setattr(module, "frames", lambda eqn: found)
    assert str(source(None)) == "/x/site-packages/a.py:3 (f)"
    monkeypatch.setattr(module, "frames", lambda eqn: [*found, ("/x/c.py", 5, "h")])
    assert str(source(None)) == "/x/c.py:5 (h)"
    monkeypatch.setattr(module, "frames", lambda eqn: [])
    assert source(None) is None
