"""Errors and programs point at the user's lines, and at none of TileJAX's."""

import re
import traceback
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import tilejax
from tests.front.agreement import check_agreement

PACKAGE = str(Path(tilejax.__file__).parent)
X = jnp.ones((2, 3))


def wrong(x):
    y = jnp.sin(x)
    return y @ x  # the shapes do not fit


def undecided(x, other):
    return 1 if other["k"] > 0 else x


def frames_of(fn, *args):
    """Return file and function of the frames that JAX leaves in the traceback."""
    with pytest.raises(Exception) as error:
        fn(*args)
    frames = traceback.extract_tb(error.value.__traceback__)
    return [(frame.filename, frame.name) for frame in frames]


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda jit: jit(wrong),
        lambda jit: jax.grad(lambda x: jit(wrong)(x).sum()),
        lambda jit: jax.vmap(jit(wrong)),
        lambda jit: jit(lambda x: jax.lax.map(jit(wrong), x)),
    ],
)
def test_an_error_leaves_the_frames_that_jax_leaves(wrapped):
    x = jnp.ones((4, 2, 3))

    def case(jit):
        return frames_of(wrapped(jit), x)

    check_agreement(case)
    found = case(tilejax.jit)
    assert (__file__, "wrong") in found
    assert not any(name.startswith(PACKAGE) for name, _ in found)


def test_an_error_names_the_function_its_line_and_the_argument():
    def case(jit):
        with pytest.raises(jax.errors.TracerBoolConversionError) as error:
            jit(undecided)(1.0, {"k": 2.0})
        return str(error.value)

    check_agreement(case)
    line = undecided.__code__.co_firstlineno
    text = case(tilejax.jit)
    assert f"undecided at {__file__}:{line} for jit" in text
    assert "argument other['k']" in text


def test_an_error_about_a_result_names_its_place():
    def case(jit):
        with pytest.raises(TypeError) as error:
            jit(lambda x: {"good": x, "bad": [x, "text"]})(1.0)
        return str(error.value)

    check_agreement(case)
    assert "['bad'][1]" in case(tilejax.jit)


def heavy(x):
    y = jnp.tanh(x @ x.T)
    return jax.nn.softmax(y)


def heavy_gradient(x):
    return jax.grad(lambda x: heavy(x)[0, 0])(x)


def heavy_batch(x):
    return jax.vmap(heavy)(x[None])


@pytest.mark.parametrize("f", [heavy, heavy_gradient, heavy_batch])
def test_the_lowered_text_names_the_lines_of_the_user_alone(f):
    text = tilejax.jit(f).lower(X).as_text(debug_info=True)
    files = set(re.findall(r'loc\("([^"]+\.py)"', text))
    assert __file__ in files
    assert not any(name.startswith(PACKAGE) for name in files), files


def test_each_operation_of_a_product_keeps_its_line():
    text = tilejax.jit(heavy).lower(X).as_text(debug_info=True)
    line = heavy.__code__.co_firstlineno + 1
    assert f'"{__file__}":{line}:' in text


def test_the_users_code_is_not_hidden():
    """Only the machinery is."""

    def shown():
        raise KeyError("mine")

    names = [name for _, name in frames_of(tilejax.jit(lambda: shown()))]
    assert names[-2:] == ["<lambda>", "shown"]
