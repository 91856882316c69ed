"""`tilejax demo`: train, show, and say how it went."""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from tilejax.demo import checkpoint, text as text_of, train
from tilejax.demo.interrupt import AtOnce, held_back
from tilejax.demo.model import TILED, Size, Transformer
from tilejax.errors import CheckpointError, ParameterError
from tilejax.report.explain import explain
from tilejax.report.explain_table import render

ROWS = 8
SEED = 0
SAVE_EVERY = 100
HELD_OUT_BATCHES = 4
# Where a full run ends, in nats a character: the mean loss of its last steps. A model
# that knows nothing has about the logarithm of the alphabet's size, 4.5.
GOAL = 2.0
FULL = 600


@dataclass
class Run:
    """A run in progress."""

    model: Transformer
    state: Any
    losses: list[float]


def run(arguments: argparse.Namespace) -> int:
    """Run the demo.

    **Returns:** 0; 1 if a full run did not reach its goal; 130 if it was interrupted.

    **Raises:** `CheckpointError` for a checkpoint that cannot be used or written,
    `ParameterError` for a number of steps below 1.
    """
    steps: int = arguments.steps
    if steps < 1:
        raise ParameterError(f"--steps {steps}: at least one step is needed")
    path = Path(arguments.checkpoint)
    console = Console()
    text, size = text_of.load(), Size()
    optimiser = train.optimizer(steps)
    settings = {**asdict(size), "alphabet": text.alphabet, "steps": steps, "seed": SEED}
    started = _start(text, size, optimiser)
    console.print(
        f"{len(text.train):,} characters of English to learn from, "
        f"{len(text.held_out):,} held out; {_count(started.model):,} parameters"
    )
    _compare(console, started.model, text)
    current = _resumed(console, path, started, settings, arguments.fresh)
    step = train.make_step(optimiser)
    try:
        _train(console, current, step, text, steps, path, settings)
    except AtOnce:
        raise
    except KeyboardInterrupt:
        checkpoint.save(path, (current.model, current.state), _about(current, settings))
        console.print(
            f"\ninterrupted after step {len(current.losses)}; saved to {path}: the "
            "same command goes on from there"
        )
        return 130
    return _report(console, current, step, text, steps)


def _start(text, size: Size, optimiser) -> Run:
    model = Transformer(len(text.alphabet), size, jax.random.key(SEED))
    return Run(model, optimiser.init(eqx.filter(model, eqx.is_inexact_array)), [])


def _count(model: Transformer) -> int:
    return sum(x.size for x in jax.tree.leaves(eqx.filter(model, eqx.is_array)))


def _about(current: Run, settings: dict) -> dict:
    return {"settings": settings, "losses": current.losses}


def _compare(console: Console, model: Transformer, text) -> None:
    ours, theirs, apart = train.agreement(model, _pieces(text.train, 0))
    console.print(
        f"first step: loss {ours:.6f}, plain jax.jit {theirs:.6f}; gradients differ by "
        f"at most {apart:.1e} of the largest"
    )


def _pieces(part: np.ndarray, step: int) -> jax.Array:
    return text_of.batch(part, step, ROWS, Size().length, SEED)


def _resumed(console, path: Path, started: Run, settings: dict, fresh: bool) -> Run:
    if fresh or not path.exists():
        return started
    about, data = checkpoint.read_head(path)
    if len(about["losses"]) >= about["settings"]["steps"]:
        return started
    if about["settings"] != settings:
        raise CheckpointError(
            f"{path} holds an unfinished run of other settings, {about['settings']}; "
            f"these are {settings}. Finish it, delete it or start with --fresh"
        )
    like = (started.model, started.state)
    model, state = checkpoint.restore(path, data, like)
    console.print(f"going on after step {len(about['losses'])} from {path}")
    return Run(model, state, about["losses"])


def _train(console, current: Run, step, text, steps: int, path: Path, settings) -> None:
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    shown = Progress(*columns, console=console, refresh_per_second=4)
    with shown as progress, held_back() as check_interrupt:
        done = len(current.losses)
        bar = progress.add_task(
            "", total=steps, completed=done, loss=current.losses[-1] if done else 0.0
        )
        for at in range(done, steps):
            model, state, value = step(
                current.model, current.state, _pieces(text.train, at)
            )
            value = float(value)
            current.model, current.state = model, state
            current.losses.append(value)
            progress.update(bar, advance=1, loss=value)
            if not console.is_terminal and (at + 1) % SAVE_EVERY == 0:
                console.print(f"step {at + 1}: loss {value:.3f}")
            if (at + 1) % SAVE_EVERY == 0 or at + 1 == steps:
                checkpoint.save(path, (model, state), _about(current, settings))
            check_interrupt()


def _report(console: Console, current: Run, step, text, steps: int) -> int:
    losses = current.losses
    end = float(np.mean(losses[-20:]))
    console.print(f"loss: {losses[0]:.3f} at the start, {end:.3f} at the end")
    held = [
        float(train.tiled_loss(current.model, _pieces(text.held_out, i), TILED))
        for i in range(HELD_OUT_BATCHES)
    ]
    console.print(f"held-out loss: {np.mean(held):.3f}")
    start = text.held_out[:200]
    line = text.decode(train.sample(current.model, start, 120, SEED))
    console.print("a sampled line:", " ".join(line.split()), markup=False)
    why = explain(step, current.model, current.state, _pieces(text.train, 0))
    console.print(render(why, console.width), markup=False, highlight=False)
    if steps < FULL:
        return 0
    console.print(
        f"goal: a loss below {GOAL}: {'reached' if end < GOAL else 'not reached'}"
    )
    return 0 if end < GOAL else 1
