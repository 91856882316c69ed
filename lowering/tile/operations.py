"""What the operations of a tile program are, and how each one is spelled.

Element-wise operations keep the names and parameters of JAX's primitives.
"""

ELEMENTWISE = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bitcast_convert_type
    cbrt ceil clamp clz convert_element_type copy copy_p cos cosh div eq erf erf_inv
    erfc exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt max
    min mul ne neg nextafter not or population_count pow reduce_precision rem round
    rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh
    sqrt square stop_gradient sub tan tanh xor
    eq_to le_to log2 lt_to mulhi one_minus_square
    """.split()
)
"""One element of the result depends on the elements at the same place."""

SHAPED = {
    "broadcast": "dims: the result's dimension of each dimension of the operand",
    "transpose": "permutation",
    "reshape": "the elements in row-major order, in another shape",
    "iota": "dimension: along which the elements count",
    "constant": "value: a NumPy array",
    "slice": "starts, strides",
    "reinterpret": "the bytes in row-major order, in another shape and type",
    "pad": "low, high, interior; inputs: operand, filling",
    "concatenate": "dimension",
    "reverse": "dimensions",
    "dynamic_slice": "inputs: operand, a start a dimension (clamped)",
    "dynamic_update_slice": "inputs: operand, update, a start a dimension (clamped)",
}
"""The result's elements are elements of the operands."""

REDUCING = {
    "reduce": "op: sum, prod, max, min, and, or, xor; axes",
    "arg_reduce": "op: argmax, argmin; axis",
    "cumulate": "op: sum, prod, max, min, logsumexp; axis; reverse",
    "dot": "dims: ((contracted), (batch)) of both operands; precision",
    "pick": "index; inputs: a value to read from, mask, other",
    "put": "index, op; inputs: a value to write into a copy of, update, mask",
    "sort": "dimension, keys; results: the operands sorted together",
}

MEMORY = {
    "view": "index, or bitcast, reshape, transpose: a reference to part of another",
    "allocate": "a reference that lives until the end of the body",
    "load": "index; inputs: reference, mask, other; masks may be missing (None); "
    "partial: some of what is read may have no value yet",
    "store": "index; inputs: reference, value, mask",
    "atomic": "op, index; inputs: reference, value, mask; gives the old value",
    "compare_exchange": "index; inputs: reference, expected, value; gives the old one",
    "transfer": "inputs: from, to; both references of one shape",
    "signal": "a semaphore is raised; inputs: semaphore, amount",
    "wait": "a semaphore is lowered; inputs: semaphore, amount",
    "semaphore_read": "inputs: semaphore",
}

CONTROL = {
    "program_id": "axis, of the whole grid",
    "num_programs": "axis, of the whole grid",
    "for": "length, reverse; inputs: carries; the body's: counter, carries",
    "while": "inputs: carries; bodies: condition, step; both take the carries",
    "switch": "inputs: the number of the body to run; the last if it is too large",
    "print": "format, and a name, or None, for each of the inputs, which are values",
    "check": "message; inputs: a boolean that must be true",
}

KINDS = ELEMENTWISE | SHAPED.keys() | REDUCING.keys() | MEMORY.keys() | CONTROL.keys()
