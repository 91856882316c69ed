"""Packing: operands brought into the order in which units read them."""

from dataclasses import dataclass

from tilejax.lowering.cpu.dot.operand import Operand, lanes_mask
from tilejax.lowering.cpu.dot.transpose import interleave, join, split, transpose
from tilejax.lowering.cpu.elementwise_convert import convert
from tilejax.lowering.cpu.module import Function
from tilejax.lowering.cpu.nest import Index, Nest
from tilejax.lowering.cpu.types import TYPES, Elt, itemsize


@dataclass(frozen=True)
class Form:
    """How a packed operand lies in memory.

    Element (row, k) is at `(k // group * pitch + row) * group + k % group`; k is padded
    to whole groups with zeros.

    **Arguments:**

    - `dtype`: of the elements.
    - `group`: neighbours along k that are neighbours in memory.
    - `pitch`: rows from one group of k to the next, a multiple of the vector's lanes.
    - `panel`: bytes from one panel of `pitch` rows to the next.
    - `word`: lanes of a vector of groups, the size of square transpositions.
    - `flip`: whether the top bit of each byte is inverted.
    """

    dtype: str
    group: int
    pitch: int
    word: int
    flip: bool = False
    panel: int = 0

    @property
    def word_type(self) -> str:
        """The type of a group as one lane."""
        if self.group == 1:
            return TYPES[self.dtype]
        return f"i{8 * self.group * itemsize(self.dtype)}"


def pack_rows(
    f: Function, form: Form, x: Operand, dest: str, row: Index, width: int, k0: Index, k
) -> None:
    """Pack `width` rows, from `row` on, and `k` elements of each, from `k0` on.

    Rows are padded with zeros to whole vectors. `width` is small: its code is unrolled.
    """
    if packs_along_rows(form, x, k):
        _along_rows(f, form, x, dest, row, width, k0, k)
    else:
        _along_k(f, form, x, dest, row, width, k0, k)


def packs_along_rows(form: Form, x: Operand, k: int) -> bool:
    """Tell whether vectors of rows are read, rather than vectors along k."""
    return x.row_is_free() or not x.k_is_free() or k < form.group * 2


def _along_rows(f, form: Form, x: Operand, dest, row, width, k0, k) -> None:
    """Vectors of rows are what is stored, once those of a group are interleaved."""
    whole, rest = divmod(k, form.group)
    spans = [(whole, form.group, 0)] if whole else []
    if rest:
        spans.append((1, rest, whole))
    for count, there, first in spans:
        n = Nest(f, [count])
        index = n.add_index(n.index[0] if count > 1 else 0, first)
        at_k = n.add_index(n.mul_index(index, form.group), k0)
        for start in range(0, width, n.lanes):
            tail = lanes_mask(n.lanes, width - start)
            parts = ["zeroinitializer"] * form.group
            for j in range(there):
                place = n.add_index(at_k, j)
                at_row = n.add_index(row, start)
                e = x.at(n, (at_row, True), (place, False), tail)
                parts[j] = _wanted(n, form, e)
            vector = interleave(n, parts, TYPES[form.dtype], n.lanes)
            _put(n, form, dest, index, start, vector, n.lanes)
        n.flush()


def _along_k(f, form: Form, x: Operand, dest, row, width, k0, k) -> None:
    """Vectors along k are transposed, a group as one lane."""
    lanes = f.module.host.lanes
    block = lanes * form.group
    whole, rest = divmod(k, block)
    spans = [(whole, block, 0)] if whole else []
    if rest:
        spans.append((1, rest, whole * block))
    for count, there, first in spans:
        n = Nest(f, [count])
        step = n.mul_index(n.index[0] if count > 1 else 0, block)
        at_k = n.add_index(step, first)
        for start in range(0, width, form.word):
            rows = [
                _words(n, form, x, n.add_index(row, start + r), at_k, k0, there)
                if start + r < width
                else ["zeroinitializer"] * (lanes // form.word)
                for r in range(form.word)
            ]
            group_at = n.div_index(at_k, form.group)
            for piece in range(lanes // form.word):
                columns = transpose(n, [r[piece] for r in rows], form.word_type)
                for q, column in enumerate(columns):
                    at = piece * form.word + q
                    if at * form.group >= there:
                        break
                    _put(n, form, dest, n.add_index(group_at, at), start, column, None)
        n.flush()


def _words(n: Nest, form: Form, x: Operand, row, at_k, k0, there: int) -> list[str]:
    """One row's next vectors along k, as vectors of groups."""
    parts = []
    for j in range(form.group):
        left = there - j * n.lanes
        if left <= 0:
            parts.append("zeroinitializer")
            continue
        place = n.add_index(n.add_index(at_k, k0), j * n.lanes)
        e = x.at(n, (row, False), (place, True), lanes_mask(n.lanes, left))
        parts.append(_wanted(n, form, e))
    vector = join(n, parts, TYPES[form.dtype], n.lanes)
    if form.group > 1:
        before = f"<{n.lanes * form.group} x {TYPES[form.dtype]}>"
        right = f"bitcast {before} {vector} to <{n.lanes} x {form.word_type}>"
        vector = n.emit(right, vector)
    return split(n, vector, form.word_type, n.lanes, form.word)


def _wanted(n: Nest, form: Form, e: Elt) -> str:
    """A vector in the wanted dtype, flipped if wanted."""
    vector = n.vector(convert(n, e, form.dtype))
    if not form.flip:
        return vector
    return n.emit(f"xor <{n.lanes} x i8> {vector}, splat (i8 -128)", vector)


def _put(n: Nest, form: Form, dest, group: Index, row: int, vector, lanes) -> None:
    """Store a vector of rows of one group; `lanes` None: as words."""
    element = form.word_type if lanes is None else TYPES[form.dtype]
    count = form.word if lanes is None else lanes * form.group
    size = form.group * itemsize(form.dtype)
    panel, row = divmod(row, form.pitch)
    start = panel * form.panel + row * size
    place = n.add_index(n.mul_index(group, form.pitch * size), start)
    address = n.emit(f"getelementptr i8, ptr {dest}, i64 {place}", dest, place)
    align = min(64, size * (form.word if lanes is None else lanes))
    n.do(f"store <{count} x {element}> {vector}, ptr {address}, align {align}")


UNROLLED = 8
"""Vectors that one turn of a loop copies."""


def copy_rows(
    f: Function, form: Form, x: Operand, dest: str, pitch: int,
    row: Index, rows: int, k0: int, length: int,
) -> None:  # fmt: skip
    """Copy rows, `length` elements of each from `k0` on, to rows `pitch` apart.

    Rows are padded with zeros to whole vectors: `pitch` leaves the room.
    """
    lanes = f.module.host.lanes
    whole, rest = divmod(length, lanes)
    unrolled = min(whole, UNROLLED)
    spans = [(whole // unrolled, unrolled, 0)] if whole else []
    if whole and whole % unrolled:
        spans.append((1, whole % unrolled, whole // unrolled * unrolled))
    for count, vectors, first in spans:
        n = Nest(f, [rows, count])
        at = n.mul_index(n.index[1] if count > 1 else 0, vectors)
        for v in range(vectors):
            k = n.mul_index(n.add_index(at, first + v), lanes)
            _copy(n, form, x, dest, pitch, row, k, k0, None)
        n.flush()
    if rest:
        n = Nest(f, [rows])
        mask = lanes_mask(lanes, rest)
        _copy(n, form, x, dest, pitch, row, whole * lanes, k0, mask)
        n.flush()


def _copy(n: Nest, form: Form, x: Operand, dest, pitch, row: Index, k: Index, k0, mask):
    r = n.index[0]
    e = x.at(n, (n.add_index(r, row), False), (n.add_index(k, k0), True), mask)
    vector = _wanted(n, form, e)
    place = n.add_index(n.mul_index(r, pitch), k)
    ty, size = TYPES[form.dtype], itemsize(form.dtype)
    address = n.emit(f"getelementptr {ty}, ptr {dest}, i64 {place}", dest, place)
    n.do(f"store <{n.lanes} x {ty}> {vector}, ptr {address}, align {size}")
