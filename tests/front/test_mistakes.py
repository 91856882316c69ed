"""Wrong input to `tilejax.jit`: the kind of error, and what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tests.front.agreement import check_agreement, outcome
from tilejax import errors
from tilejax._jax.jaxprs import with_

X = jnp.ones(3)


def double(x):
    return x * 2


@pytest.mark.parametrize("what", [3, "text", [double], X])
def test_what_cannot_be_called_is_refused(what):
    with pytest.raises(
        errors.ArgumentError, match=f"tilejax.jit: .*{type(what).__name__}"
    ):
        tilejax.jit(what)


def test_a_generator_function_is_refused_as_in_jax():
    def generator(x):
        yield x

    check_agreement(lambda jit: outcome(jit, generator))
    with pytest.raises(TypeError, match="generator function"):
        tilejax.jit(generator)


def test_an_unknown_target_is_refused_with_those_that_there_are():
    with pytest.raises(errors.TargetError, match=r"gpu:q100(.|\n)*gpu:h100"):
        tilejax.jit(double, target="gpu:q100")


def test_an_unknown_pass_is_refused_with_those_that_there_are():
    for passes in ("magic", ["magic"], {"magic": False}):
        with pytest.raises(errors.PassError, match=r"magic(.|\n)*inline"):
            tilejax.jit(double, passes=passes)
    with pytest.raises(errors.PassError, match="passes=3"):
        tilejax.jit(double, passes=3)  # pyright: ignore[reportArgumentType]


def test_a_pass_that_breaks_the_program_is_refused():
    def breaking(program):
        return with_(program, outvars=[])

    with pytest.raises(errors.PassError, match="breaking"):
        tilejax.jit(double, passes=[breaking])(X)


def test_an_unknown_option_is_refused_by_name():
    with pytest.raises(TypeError, match="magic"):
        tilejax.jit(double, magic=True)
    with pytest.raises(errors.ParameterError, match=r"magic(.|\n)*fast_math"):
        with tilejax.options(magic=True):
            pass
    with pytest.raises(errors.ParameterError, match="always"):
        with tilejax.options(kernels="always"):
            pass


CALLS = {
    "too few arguments": ({}, ()),
    "too many arguments": ({}, (X, X, X)),
    "a static number out of range": ({"static_argnums": 5}, (X, 1)),
    "a static name that is none": ({"static_argnames": "z"}, (X, 1)),
    "a donated and static argument": (
        {"static_argnums": 0, "donate_argnums": 0},
        (1, X),
    ),
    "a huge integer": ({}, (2**70, 1)),
    "a deleted array": ({}, "deleted"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_mistake_is_the_error_that_it_is_in_jax(name):
    options, args = CALLS[name]

    def case(jit):
        given = args
        if given == "deleted":
            gone = X + 1
            gone.delete()
            given = (gone, 1)

        def f(x, y=1):
            return x, y

        try:
            return jax.tree.map(np.asarray, jit(f, **options)(*given))
        except Exception as error:
            return type(error).__name__, str(error).splitlines()[0][:60]

    ours = case(tilejax.jit)
    assert isinstance(ours[0], str), ours
    check_agreement(case)


def test_a_name_that_is_taken_twice_is_the_same_error():
    check_agreement(lambda jit: outcome(lambda: jit(double)(X, x=X)))
    check_agreement(lambda jit: outcome(lambda: jit(double)(y=X)))
