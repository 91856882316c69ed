"""How fast programs on a CPU are, beside `jax.jit`, PyTorch and the machine itself.

    python -m benchmarks cpu [--against jax,torch] [--json FILE] [--only FAMILY,...]
                             [--quick | --tiny]

Each implementation runs in a process of its own, so that no thread pool stands in the
way of another, and the processes take turns: a round times every one of them once, and
the machine's own peak beside them. What is reported is the median of the rounds, and
ratios of times of the same round, with intervals that resampling the rounds gives.

- `cases` lists what is measured, `operands` makes its inputs;
- `ours`, `in_jax`, `in_torch`, `interpreted` say how each does it;
- `worker` is the process that runs one of them, `processes` how it is spoken to;
- `rounds` takes turns, `intervals` compares, `compile_times` times the compiler;
- `table` sums results up;
- `machine` and `peak_code` find out what the processor and memory can do at most.
"""
