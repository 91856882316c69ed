"""What `jax.checkpoint` keeps and computes again, by each of its policies."""

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

import tilejax
from tests.front.agreement import check_agreement

pytestmark = pytest.mark.usefixtures("quick_to_compile")

POLICIES = jax.checkpoint_policies
JITS = (tilejax.jit, jax.jit)
W = jnp.linspace(-1.0, 1.0, 12).reshape(3, 4)
X = jnp.linspace(0.0, 1.0, 10).reshape(2, 5)[:, :3]
BATCHED = jnp.linspace(0.0, 1.0, 24).reshape(2, 3, 4)


def layer(w, x):
    y = checkpoint_name(jnp.tanh(x @ w), "hidden")
    z = jax.nn.softmax(checkpoint_name(y @ w.T, "scores"))
    return jnp.sum(jnp.sin(z @ w) @ w.T)


def attention_like(w, x):
    scores = jnp.einsum("bij,bkj->bik", jnp.sin(BATCHED * x[0, 0]), BATCHED)
    return jnp.sum(jnp.tanh(jnp.cos(scores)) @ jnp.tanh(w))


CHOICES = {
    "all": None,
    "everything_saveable": POLICIES.everything_saveable,
    "nothing_saveable": POLICIES.nothing_saveable,
    "dots_saveable": POLICIES.dots_saveable,
    "dots_with_no_batch_dims_saveable": POLICIES.dots_with_no_batch_dims_saveable,
    "save_only_these_names": POLICIES.save_only_these_names("hidden"),
    "save_any_names_but_these": POLICIES.save_any_names_but_these("hidden"),
    "save_from_both_policies": POLICIES.save_from_both_policies(
        POLICIES.dots_saveable, POLICIES.save_only_these_names("hidden")
    ),
}


def saved(f, *args):
    """Return the types of what the backward pass of `f` is given, arguments apart."""
    _, pull = jax.vjp(f, *args)
    given = [id(a) for a in jax.tree.leaves(args)]
    kept = [x for x in jax.tree.leaves(pull) if id(x) not in given]
    return sorted(str(jax.typeof(x)) for x in kept)


def around(jit, model, name):
    return jax.checkpoint(jit(model), policy=CHOICES[name])


def inside(jit, model, name):
    return jit(jax.checkpoint(model, policy=CHOICES[name]))


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("model", [layer, attention_like])
def test_a_policy_saves_what_it_saves_under_jax_jit(model, name):
    for place in (around, inside):
        ours, theirs = (saved(place(jit, model, name), W, X) for jit in JITS)
        if name == "everything_saveable":  # there is less to save: softmax is one step
            assert set(ours) <= set(theirs)
            assert len(ours) <= len(theirs)
        else:
            assert ours == theirs, place


@pytest.mark.parametrize("name", CHOICES)
def test_derivatives_under_a_policy_agree(name):
    def case(jit):
        return jax.grad(around(jit, layer, name), (0, 1))(W, X)

    check_agreement(case, rtol=1e-5)


def test_the_check_above_tells_policies_apart():
    """The sets differ, so an agreement says something."""
    kept = {
        name: tuple(saved(jax.jit(jax.checkpoint(layer, policy=policy)), W, X))
        for name, policy in CHOICES.items()
    }
    assert len(set(kept.values())) >= 4, kept


def test_checkpointed_work_is_computed_again():
    def case(jit):
        f = jit(jax.checkpoint(lambda x: jnp.sin(jnp.sin(jnp.sin(x))).sum()))
        text = jax.jit(jax.grad(f)).lower(X).as_text()
        return text.count("stablehlo.cosine"), text.count("stablehlo.sine ")

    check_agreement(case)


def test_checkpoint_in_a_scan_agrees():
    def case(jit):
        @jax.checkpoint
        def step(c, x):
            return jnp.tanh(c @ W @ W.T + x), None

        f = jit(lambda c: jax.lax.scan(step, c, jnp.stack([X, X]))[0].sum())
        return jax.grad(f)(X), jit(jax.value_and_grad(f))(X)

    check_agreement(case, rtol=1e-5)


def test_static_arguments_of_checkpoint_agree():
    def case(jit):
        f = jax.checkpoint(lambda x, flag: x.sum() if flag else x, static_argnums=1)
        return jax.grad(jit(lambda x: f(jnp.sin(x), True)))(X)

    check_agreement(case)


def test_offloading_names_are_known_as_in_jax():
    policy = POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=["hidden"],
        names_which_can_be_offloaded=[],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def case(jit):
        return jax.grad(jit(jax.checkpoint(layer, policy=policy)))(W, X)

    check_agreement(case, rtol=1e-5)
