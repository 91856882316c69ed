import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tilejax._jax.jaxprs import trace, with_
from tilejax.errors import PassError
from tilejax.ir import as_text, count
from tilejax.passes import PASSES, note, run, without

NAMES = [name for name, _ in PASSES]


def _layer(x):
    y = jax.jit(lambda v: jnp.tanh(v) * 1.0 + jnp.sqrt(4.0))(x)
    jnp.exp(y)
    return y + jax.jit(lambda v: jnp.tanh(v))(x)


def test_the_pipeline_does_all_of_it(golden):
    def f(x):
        return jax.lax.scan(lambda c, _: (_layer(c), None), _layer(x), length=3)[0]

    program, records = run(trace(f, jnp.ones(2))[0])
    golden("pipeline", as_text(program))
    assert [r.name for r in records if r.round == 1] == NAMES


def test_records_say_what_was_done():
    before, _ = trace(_layer, jnp.ones(2))
    program, records = run(before)
    assert records[0].before == count(before)
    assert records[-1].after == count(program)
    for one, next_one in itertools.pairwise(records):
        assert one.after == next_one.before
    assert all(r.seconds >= 0 for r in records)
    assert records[0].notes == {"inlined jit": 2}
    assert "inlined jit: 2" in str(records[0])


def test_a_second_run_changes_nothing():
    program, _ = run(trace(_layer, jnp.ones(2))[0])
    again, records = run(program)
    assert again is program
    assert [r.name for r in records] == NAMES
    assert not any(r.before != r.after for r in records)


def test_passes_may_be_named_left_out_or_none():
    before, _ = trace(_layer, jnp.ones(2))
    assert run(before, ())[0] is before
    assert [r.name for r in run(before, ["dce"])[1]] == ["dce"]
    assert [r.name for r in run(before, "cse")[1]] == ["cse"]
    left_out = run(before, without("fold", "cse"))[1]
    assert {r.name for r in left_out} == set(NAMES) - {"fold", "cse"}
    assert run(before, {"inline": True})[1][0].name == "inline"


@pytest.mark.parametrize("passes", [["fould"], "fould", {"fould": False}])
def test_an_unknown_pass_is_an_error_that_lists_the_known(passes):
    with pytest.raises(PassError, match=r"no pass 'fould'.*inline, fold"):
        run(trace(jnp.sin, 1.0)[0], passes)
    with pytest.raises(PassError, match="fould"):
        without("fould")


def test_a_users_pass_runs_once_in_its_place():
    turns = []

    def mine(program):
        turns.append(count(program))
        note("mine")
        return with_(program, eqns=program.eqns)

    _, records = run(trace(_layer, jnp.ones(2))[0], ["inline", mine, "cse", "dce"])
    assert len(turns) == 1
    assert [r.name for r in records][:4] == ["inline", "mine", "cse", "dce"]
    assert records[1].notes == {"mine": 1}


def _drops_an_equation(program):
    return with_(program, eqns=program.eqns[1:])


def _defines_twice(program):
    return with_(program, eqns=[*program.eqns, program.eqns[-1]])


def _changes_an_output(program):
    return with_(program, outvars=[])


def _lies_about_types(program):
    first, *rest = program.eqns
    wrong = {**first.params, "new_dtype": np.dtype("int32")}
    return with_(program, eqns=[first.replace(params=wrong), *rest])


@pytest.mark.parametrize(
    "broken, words",
    [
        (_drops_an_equation, "not defined"),
        (_defines_twice, "twice"),
        (_changes_an_output, "outvars"),
        (_lies_about_types, "ill-typed"),
        (lambda program: None, "must return a program"),
    ],
)
def test_a_users_pass_that_breaks_the_program_is_named(broken, words):
    program, _ = trace(lambda x: jnp.sin(x.astype(jnp.float32)), jnp.int32(1))
    name = broken.__name__
    with pytest.raises(PassError, match=words) as caught:
        run(program, [broken])
    assert repr(name) in str(caught.value)


def test_fast_math_is_off_unless_asked_for():
    program, _ = trace(lambda x: x * 0.0, 1.0)
    assert run(program)[0] is program
    assert run(program, fast_math=True)[0].eqns == []


def test_a_select_of_equals_that_only_a_merge_shows_is_found():
    def f(x):
        return jnp.where(x > 0, jnp.sin(x), jnp.sin(x))

    program, records = run(trace(f, jnp.ones(2))[0])
    assert [eqn.primitive.name for eqn in program.eqns] == ["sin"]
    assert max(r.round for r in records) == 2


def test_an_empty_program_stays():
    program, _ = trace(lambda: ())
    assert run(program)[0] is program
