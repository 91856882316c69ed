"""The table of an explanation can be read at any width."""

import jax
import jax.numpy as jnp
import pytest

from tilejax.report.explain import explain
from tilejax.report.explain_table import duration, number, render


@pytest.fixture(scope="module")
def found():
    q = jax.ShapeDtypeStruct((4, 512, 8, 64), jnp.bfloat16)

    def model(q, w):
        x = jax.nn.dot_product_attention(q, q, q, is_causal=True)
        return jax.nn.softmax((x.reshape(4, 512, 512) @ w).astype(jnp.float32))

    w = jax.ShapeDtypeStruct((512, 4096), jnp.bfloat16)
    return explain(
        jax.grad(lambda q, w: jnp.sum(model(q, w)[0]), (0, 1)), q, w, target="tpu:v5e"
    )


@pytest.mark.parametrize("width", [80, 100, 150, 200])
def test_the_table_fits_and_cuts_no_number(found, width):
    lines = render(found, width).splitlines()
    assert max(map(len, lines)) <= width
    start = lines.index("Heavy equations") + 4
    end = next(i for i, line in enumerate(lines) if line.startswith("Reasons"))
    for line in lines[start:end]:
        # what an ellipsis may cut: a config and types
        cells = [cell for cell in line.split("  ") if cell.strip()]
        assert sum("…" in cell for cell in cells) <= 2, line
        assert not any(c[0].isdigit() and "…" in c for c in map(str.strip, cells)), line


def test_a_wide_table_has_all_columns_and_a_narrow_one_the_chief_ones(found):
    wide, narrow = render(found, 200), render(found, 80)
    for title in ("operands", "op/B", "bound", "modelled", "source", "runs as"):
        assert title in wide
    for title in ("operation", "runs as", "ops", "modelled", "source"):
        assert title in narrow
    assert "operands" not in narrow


def test_reasons_stand_under_their_heading(found):
    text = render(found, 120)
    assert text.index("Reasons") < text.index("because") < text.index("modelled, ")


def test_equal_equations_share_a_row():
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)

    def fn(x):
        for _ in range(3):
            x = jnp.sin(x) @ jnp.cos(x)
        return x

    assert "matmul x3" in render(explain(fn, x))


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0"),
        (0.5, "0.5"),
        (999, "999"),
        (1000, "1k"),
        (999_999, "1M"),
        (268435456, "268M"),
        (1.5e15, "1.5P"),
        (2e21, "2000E"),
    ],
)
def test_numbers_have_a_decimal_prefix(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0 ns"),
        (1.5e-9, "1.5 ns"),
        (9.9999e-7, "1 us"),
        (1.5e-5, "15 us"),
        (0.0123, "12.3 ms"),
        (0.99999, "1 s"),
        (1234.0, "1230 s"),
    ],
)
def test_times_have_a_unit(value, text):
    assert duration(value) == text
