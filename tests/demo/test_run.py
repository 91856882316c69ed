"""The demo trains, agrees with plain JAX, and goes on where it was interrupted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.demo.conftest import SMALL
from tilejax.demo import checkpoint, run, text, train
from tilejax.demo.model import PLAIN, TILED, Transformer
from tilejax.errors import CheckpointError, ParameterError
from tilejax.ir import walk

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def model():
    return Transformer(50, SMALL(), jax.random.key(0))


REPORT = run._report
PIECES = jax.random.randint(jax.random.key(1), (2, 17), 0, 50)


def test_the_first_step_agrees_with_plain_jax(model):
    ours, theirs, apart = train.agreement(model, PIECES)
    assert abs(ours - theirs) < 1e-5 and apart < 1e-5
    assert abs(ours - np.log(50)) < 1


def test_some_steps_agree_with_plain_jax(model):
    optimiser = train.optimizer(5)

    def losses(ops):
        step, now, found = train.make_step(optimiser, ops, donate="none"), model, []
        state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
        for _ in range(5):
            now, state, value = step(now, state, PIECES)
            found.append(float(value))
        return found

    ours, theirs = losses(TILED), losses(PLAIN)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert ours[-1] < ours[0]


def test_the_models_step_runs_on_tiled_operations(model):
    optimiser = train.optimizer(5)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    made = train.make_step(optimiser).tile(model, state, PIECES)
    found = {v.eqn.primitive.name for v in walk(made.after)}
    for name in ("matmul", "attention", "rms_norm", "cross_entropy", "embedding"):
        assert f"tiled_{name}" in found
    assert "dot_general" not in found


def test_a_sample_is_the_same_each_time_and_past_the_models_length(model):
    start = np.zeros(40, np.uint8)
    one, two = (train.sample(model, start, 20, seed=0) for _ in range(2))
    assert one.shape == (20,) and np.array_equal(one, two)
    assert ((one >= 0) & (one < 50)).all()


@pytest.mark.parametrize("steps", [1, 2, 20, 600])
def test_the_rate_warms_up_and_ends_at_nothing(steps):
    optimiser = train.optimizer(steps)
    state = optimiser.init(jnp.ones(3))
    updates, _ = optimiser.update(jnp.ones(3), state, jnp.ones(3))
    assert jnp.isfinite(jnp.asarray(updates)).all()


def test_a_run_says_all_that_it_should_and_leaves_a_checkpoint(whole_demo, capsys):
    assert whole_demo(3) == 0
    out = " ".join(capsys.readouterr().out.split())
    for part in (
        "characters of English to learn from",
        "first step: loss",
        "plain jax.jit",
        "gradients differ by at most",
        "training",
        "at the start",
        "held-out loss:",
        "a sampled line:",
        "Heavy equations",
        "cross_entropy backward",
        "together",
    ):
        assert part in out
    assert len(whole_demo.losses()) == 3


def interrupt_at(monkeypatch, step: int) -> None:
    """Press Ctrl-C while a step is under way."""

    def batch(part, at, *rest):
        if at == step:
            monkeypatch.setattr(text, "batch", real)
            signal.raise_signal(signal.SIGINT)
        return real(part, at, *rest)

    real = text.batch
    monkeypatch.setattr(text, "batch", batch)


def test_a_resumed_run_has_the_losses_of_a_whole_one(demo, monkeypatch, capsys):
    interrupt_at(monkeypatch, 2)
    assert demo(6) == 130
    assert "interrupted after step 3; saved to" in " ".join(
        capsys.readouterr().out.split()
    )
    assert len(demo.losses()) == 3
    assert demo(6) == 0
    assert "going on after step 3" in capsys.readouterr().out
    whole = demo.path.with_name("whole")
    assert demo(6, path=whole) == 0
    assert demo.losses() == demo.losses(whole)
    (_, ours), (_, theirs) = (checkpoint.read_head(p) for p in (demo.path, whole))
    assert ours == theirs


def test_a_second_interrupt_does_not_wait(demo, monkeypatch):
    def batch(part, at, *rest):
        if at == 1:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return real(part, at, *rest)

    real = text.batch
    monkeypatch.setattr(text, "batch", batch)
    with pytest.raises(KeyboardInterrupt):
        demo(6)
    assert not demo.path.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_unfinished_run_of_other_settings_is_not_overwritten(demo, monkeypatch):
    interrupt_at(monkeypatch, 1)
    assert demo(6) == 130
    before = demo.path.read_bytes()
    with pytest.raises(CheckpointError, match=r"unfinished run.*--fresh"):
        demo(7)
    assert demo.path.read_bytes() == before
    assert demo(2, fresh=True) == 0
    assert len(demo.losses()) == 2


def test_a_finished_run_starts_anew(demo):
    assert demo(1) == 0
    assert demo(2) == 0
    assert len(demo.losses()) == 2


def test_a_damaged_checkpoint_stops_the_run_and_stays(demo):
    demo.path.parent.mkdir()
    demo.path.write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError):
        demo(2)
    assert demo.path.read_bytes() == b"not a checkpoint"


def test_no_steps_are_refused(demo):
    with pytest.raises(ParameterError, match="--steps 0"):
        demo(0)


@pytest.mark.parametrize("goal, status", [(0.5, 1), (9.0, 0)])
def test_a_full_run_must_reach_its_goal(goal, status, demo, monkeypatch, capsys):
    monkeypatch.setattr(run, "FULL", 2)
    monkeypatch.setattr(run, "GOAL", goal)
    monkeypatch.setattr(run, "_report", REPORT)
    monkeypatch.setattr(run, "explain", lambda *given: "")
    monkeypatch.setattr(run, "render", lambda *given: "")
    monkeypatch.setattr(train, "sample", lambda *given: [])
    assert demo(2) == status
    said = "not reached" if status else "reached"
    assert f"below {goal}: {said}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_is_interrupted_by_ctrl_c_and_goes_on(tmp_path):
    """From start to end as a user sees it, with the model of the demo."""
    path = tmp_path / "run"
    words = [sys.executable, "-u", "-m", "tilejax.cli", "demo"]
    words += ["--steps", "60", "--checkpoint", str(path)]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    with subprocess.Popen(
        words, cwd=tmp_path, env=settings, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("first step"):
                break
        time.sleep(1)  # into the compilation of the step, or the first ones
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    assert "interrupted after step" in rest and str(path) in rest
    about, _ = checkpoint.read_head(path)
    assert 1 <= len(about["losses"]) < 60
