"""Arguments that cannot be traced or hashed, and builtins: errors that name them."""

import traceback
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilejax
from tests.front.agreement import check_agreement, check_same
from tilejax import errors

X = jnp.ones(3)
PACKAGE = str(Path(tilejax.__file__).parent)
STRINGS, OBJECTS = np.array(["a"]), np.array([object()])


def f(x, y=1, *rest, k=None):
    return x


CALLS = {
    "static by number": (
        {"static_argnums": 1},
        (X, [1]),
        {},
        r"y .*\[1\] of type list",
    ),
    "static by name": ({"static_argnames": "y"}, (X, [1]), {}, "y .*type list"),
    "static from the end": ({"static_argnums": -1}, (X, {}), {}, "y .*type dict"),
    "by keyword": ({"static_argnums": 1}, (X,), {"y": [1]}, "y .*type list"),
    "keyword only": ({"static_argnames": ("k",)}, (X,), {"k": {1}}, "k .*type set"),
    "one of several": ({"static_argnums": (2, 3)}, (X, 1, 2, []), {}, r"args\[3\]"),
    "a static array": ({"static_argnums": 0}, (X,), {}, "x .*to have it traced"),
    "strings": ({}, (STRINGS,), {}, "argument x .*dtype <U1.*numbers"),
    "objects": ({}, (X, OBJECTS), {}, "argument y .*dtype object"),
    "deep": ({}, ({"a": [X, STRINGS]},), {}, r"argument x\['a'\]\[1\] .*<U1"),
    "more": ({}, (X, 1, STRINGS), {}, r"args\[2\] .*<U1"),
    "keyword": ({}, (X,), {"k": STRINGS}, "argument k .*<U1"),
    "a string": ({}, ("text",), {}, "x is 'text' of type str.*static_argnums"),
    "any object": ({}, (object(),), {}, "type object"),
    "a function": ({}, (f,), {}, "type function"),
    "beside a static one": ({"static_argnums": 0}, ("s", OBJECTS), {}, "argument y"),
}


@pytest.mark.parametrize("stage", ["a call", "trace", "lower", "tile"])
@pytest.mark.parametrize("name", CALLS)
def test_the_argument_is_named_and_the_error_is_also_the_one_of_jax(name, stage):
    options, args, kwargs, match = CALLS[name]
    method = "__call__" if stage == "a call" else stage
    with pytest.raises((TypeError, ValueError)) as theirs:
        jax.jit(f, **options)(*args, **kwargs)
    with pytest.raises(errors.ArgumentError, match=f"jit of f: .*{match}") as ours:
        getattr(tilejax.jit(f, **options), method)(*args, **kwargs)
    assert isinstance(ours.value, theirs.type)


@pytest.mark.parametrize(
    ("args", "match"),
    [
        ((STRINGS,), "argument x .*dtype <U1"),
        ((X, {"k": (1, OBJECTS)}), r"argument y\['k'\]\[1\] .*dtype object"),
        ((X, [1, {2}]), r"argument y\[1\] .*\{2\} of type set.*frozenset"),
    ],
)
def test_filter_jit_names_the_argument_too(args, match):
    with pytest.raises((TypeError, ValueError)) as theirs:
        eqx.filter_jit(f)(*args)
    for method in ("__call__", "lower"):
        with pytest.raises(errors.ArgumentError, match=f"_jit of f: .*{match}") as ours:
            getattr(tilejax.filter_jit(f), method)(*args)
        assert isinstance(ours.value, theirs.type)


def test_filter_jit_names_what_is_wrong_in_a_module():
    class Module(eqx.Module):
        w: jax.Array
        labels: set

        def __call__(self, x):
            return x

    with pytest.raises(errors.StaticArgumentError, match=r"function itself\.labels"):
        tilejax.filter_jit(Module(X, {1}))(X)


def test_nothing_runs_before_an_argument_is_refused():
    calls = []
    g = tilejax.jit(lambda *args: calls.append(args), static_argnums=1)
    for args in ((X, []), (STRINGS, 1)):
        with pytest.raises(errors.ArgumentError):
            g(*args)
    assert not calls


def inner_static(x):
    return jax.jit(lambda x, k: x, static_argnums=1)(x, [])


def inner_strings(x):
    return jax.jit(f)(STRINGS)


def imitating(x):
    raise ValueError("Non-hashable static arguments are what this is not about")


@pytest.mark.parametrize("wrong", [inner_static, inner_strings, imitating])
@pytest.mark.parametrize("jit", [tilejax.jit, tilejax.filter_jit])
def test_an_error_of_the_function_itself_passes_as_it_is(wrong, jit):
    with pytest.raises((TypeError, ValueError)) as theirs:
        jax.jit(wrong)(X)
    with pytest.raises((TypeError, ValueError)) as ours:
        jit(wrong)(X)
    assert (ours.type, str(ours.value)) == (theirs.type, str(theirs.value))
    frames = traceback.extract_tb(ours.value.__traceback__)
    assert (__file__, wrong.__name__) in [(x.filename, x.name) for x in frames]


@pytest.mark.parametrize("jit", [tilejax.jit, tilejax.filter_jit])
def test_the_error_points_at_the_call_and_at_no_line_of_tilejax(jit):
    with pytest.raises(errors.ArgumentError) as error:
        jit(f)(STRINGS)
    frames = traceback.extract_tb(error.value.__traceback__)
    assert [x.filename for x in frames] == [__file__]
    assert error.value.__suppress_context__


def test_builtins_without_a_signature_are_compiled_and_explained():
    check_agreement(lambda jit: (jit(len)(X), jit(sum)(X)))
    check_same(tilejax.filter_jit(sum)(X), jax.jit(sum)(X))
    check_same(tilejax.filter_jit(max)(2, 3), 3)
    assert tilejax.explain(sum, X).name == "sum"
    for run in (
        tilejax.jit(max),
        tilejax.filter_jit(max),
        tilejax.filter_jit(max).tile,
    ):
        with pytest.raises(jax.errors.TracerBoolConversionError, match="function max"):
            run(X)
    with pytest.raises(jax.errors.TracerBoolConversionError, match="function max"):
        tilejax.explain(max, X)
