"""Each case over several devices, in each of the three ways that JAX knows.

- Auto: XLA decides from the operands' shardings;
- Explicit: the types say it, and results' types must be the reference's;
- Manual: `shard_map`, where each device computes its part, with varying axes checked.

In each, values and gradients are the reference's, and so are the collectives in the
compiled module: a primitive that XLA cannot see through would be gathered. A case may
name its counts, since a declared backward can sum two things at once that the derived
one sums one after the other.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from tests.primitives.harness import Case, Layout, compare, loss_of
from tilejax.errors import ShardingError

COLLECTIVES = re.compile(
    r" (all-reduce|all-gather|collective-permute|reduce-scatter|all-to-all)"
    r"(?:-start)?\("
)


def mesh_of(devices: int, kind: AxisType) -> Mesh:
    """A mesh of 4 or 8 devices, over `x` and `y`, all of one kind."""
    return jax.make_mesh(
        (devices // 2, 2),
        ("x", "y"),
        axis_types=(kind,) * 2,
        devices=jax.devices()[:devices],
    )


def collectives(text: str | None) -> Counter:
    """How often each collective appears in the text of a compiled module."""
    assert text, "the compiled module has no text"
    return Counter(COLLECTIVES.findall(text))


def _with_gradient(fun: Callable, case: Case) -> Callable:
    at = case.differentiated()

    def run(*operands):
        found = {"value": fun(*operands)}
        if at:
            found["gradient"] = jax.grad(loss_of(fun), at)(*operands)
        return found

    return run


def placed(operands: Sequence, mesh: Mesh, layout: Layout) -> list:
    """The operands as a layout puts them on a mesh."""
    return [
        jax.device_put(x, NamedSharding(mesh, P(*spec)))
        for x, spec in zip(operands, layout, strict=True)
    ]


def forms(case: Case, wrap: Callable) -> list[tuple[str, Callable, Callable, Callable]]:
    """The value and the gradient apart: their collectives may hide each other's."""
    forms = [("value", *map(wrap, (case.tested(), case.expected(), case.alike())))]
    at = case.differentiated()
    if at:
        funs = (case.tested(), case.expected(), case.alike())
        grads = [jax.grad(loss_of(wrap(f)), at) for f in funs]
        forms.append(("gradient", *grads))
    return forms


def _same_programs(
    case: Case, wrap: Callable, operands: list, dtype: str, where: tuple
) -> None:
    """`where` is the layout and the kind of axes."""
    layout, kind = where
    for what, tested, expected, alike in forms(case, wrap):
        ours, theirs = (jax.jit(f).lower(*operands).compile() for f in (tested, alike))
        known = theirs if case.collectives is None else jax.jit(expected)
        compare(case, ours(*operands), known(*operands), dtype, factor=5)
        found, wanted = (dict(collectives(c.as_text())) for c in (ours, theirs))
        at = case.layouts.index(layout) if layout in case.layouts else None
        named = case.fewer.get((at, kind, what))  # type: ignore[arg-type]
        assert (found, wanted) == named if named else found == wanted, (
            f"{case.name} {what}: {found} in the compiled module, where the "
            f"reference has {wanted}" + f"; named are {named}" * bool(named)
        )


def _same_second(case: Case, wrap: Callable, operands: list, dtype: str) -> None:
    """Products with the Hessian of the loss, reverse over reverse."""
    at = case.differentiated()
    if not at or case.thin:
        return

    def product(fun):
        gradient = jax.grad(loss_of(wrap(fun)), at)

        def projected(*operands):
            found = zip(gradient(*operands), at, strict=True)
            return sum(jnp.sum(g * jnp.cos(operands[i])) for g, i in found)

        return jax.jit(jax.grad(projected, at))(*operands)

    try:
        want = product(case.expected())
    except Exception as refusal:
        # JAX's transposes of grouped convolutions cannot carry every sharding
        _must_refuse(case, lambda: product(case.tested()), refusal)
        return
    compare(case, product(case.tested()), want, dtype, factor=20)


def check_auto(case: Case, layout: Layout, devices: int, dtype: str) -> None:
    """Assert values and collectives where XLA partitions the program."""
    mesh = mesh_of(devices, AxisType.Auto)
    with jax.enable_x64(dtype == "float64"):
        operands = placed(case.operands(dtype), mesh, layout)
        _same_programs(case, lambda f: f, operands, dtype, (layout, "auto"))


def check_explicit(case: Case, layout: Layout, devices: int, dtype: str) -> None:
    """Assert the results' types too; what the reference refuses must be refused."""
    mesh = mesh_of(devices, AxisType.Explicit)
    with jax.enable_x64(dtype == "float64"), jax.set_mesh(mesh):
        operands = placed(case.operands(dtype), mesh, layout)
        try:
            want = _types(case.expected(), case, operands)
        except Exception as refusal:
            tested = jax.jit(case.tested())
            _must_refuse(case, lambda: tested.trace(*operands), refusal)
            return
        got = _types(case.tested(), case, operands)
        assert got == want, f"{case.name}: types {got}, where the reference has {want}"
        eager = jax.tree.map(jax.typeof, case.tested()(*operands))
        assert list(map(str, jax.tree.leaves(eager))) == want["value"]
        _same_programs(case, lambda f: f, operands, dtype, (layout, "explicit"))
        if layout == case.layouts[0]:
            _same_second(case, lambda f: f, operands, dtype)


def _types(fun: Callable, case: Case, operands: list) -> dict[str, list[str]]:
    """The sharding types that tracing gives; gradients as their operands."""
    found = {}

    def note(*operands):
        outs = _with_gradient(fun, case)(*operands)
        found.update(jax.tree.map(lambda x: str(jax.typeof(x)), outs))
        return outs

    jax.jit(note).trace(*operands)
    return {key: list(jax.tree.leaves(value)) for key, value in found.items()}


def _must_refuse(case: Case, use: Callable, refusal: Exception) -> None:
    try:
        use()
    except ShardingError:
        return
    raise AssertionError(
        f"{case.name}: sharded operands were taken that the reference refuses, "
        f"saying {refusal}"
    )


def check_manual(case: Case, layout: Layout, devices: int, dtype: str) -> None:
    """Assert parts, their varying axes, and gradients inside and outside."""
    mesh = mesh_of(devices, AxisType.Auto)
    with jax.enable_x64(dtype == "float64"):
        operands = placed(case.operands(dtype), mesh, layout)
        varying = [
            _varying(f, case, operands, mesh, layout)
            for f in (case.tested(), case.expected())
        ]
        assert varying[0] == varying[1], (
            f"{case.name}: varies over {varying[0]}, the reference over {varying[1]}"
        )

        def parts(fun):
            return _parts(fun, mesh, layout)

        _same_programs(case, parts, operands, dtype, (layout, "manual"))
        if case.differentiated():
            got, want = (
                jax.jit(_gradients_inside(f, case, mesh, layout))(*operands)
                for f in (case.tested(), case.expected())
            )
            compare(case, got, want, dtype, factor=5)
        if layout == case.layouts[0]:
            _same_second(case, parts, operands, dtype)
        must_not_hide(case, operands, mesh, layout, varying[1]["value"])


def _mapped(body: Callable, mesh: Mesh, layout: Layout, out_specs) -> Any:
    return jax.shard_map(
        body,
        mesh=mesh,
        in_specs=tuple(P(*spec) for spec in layout),
        out_specs=out_specs,
        check_vma=True,
    )


def _stacked(tree):
    """Give each result an axis of devices in front, varying over all of them."""
    return jax.tree.map(lambda x: _over_all(x)[None], tree)


def _over_all(x):
    missing = tuple(
        a for a in ("x", "y") if a not in jax.typeof(x).manual_axis_type.varying
    )
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def _parts(fun: Callable, mesh: Mesh, layout: Layout) -> Callable:
    return _mapped(lambda *xs: _stacked(fun(*xs)), mesh, layout, P(("x", "y")))


def _gradients_inside(fun: Callable, case: Case, mesh, layout) -> Callable:
    def body(*parts):
        return _stacked(jax.grad(loss_of(fun), case.differentiated())(*parts))

    return _mapped(body, mesh, layout, P(("x", "y")))


def _varying(fun: Callable, case: Case, operands, mesh, layout) -> dict:
    found = {}

    def body(*parts):
        outs = _with_gradient(fun, case)(*parts)
        found.update(
            jax.tree.map(
                lambda x: tuple(sorted(jax.typeof(x).manual_axis_type.varying)), outs
            )
        )
        return _stacked(outs)

    jax.jit(_mapped(body, mesh, layout, P(("x", "y")))).trace(*operands)
    return found


def must_not_hide(case: Case, operands, mesh, layout, varying) -> None:
    """A result that differs between devices may not leave as if it did not."""
    if not any(varying):
        return
    hidden = _mapped(case.tested(), mesh, layout, P())
    try:
        jax.jit(hidden).trace(*operands)
    except ValueError:
        return
    raise AssertionError(f"{case.name}: out_specs=P() was taken for varying results")
