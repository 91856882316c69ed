"""How a Pallas kernel runs on a CPU without TileJAX: in its interpreter."""

from benchmarks.cpu import plain_kernels
from benchmarks.cpu.cases import Case
from benchmarks.cpu.compiled import Compiled


class Interpreted(Compiled):
    """The interpreter's side of a case."""

    def __init__(self, case: Case):
        super().__init__(case, plain_kernels.of_case(case.sizes, interpret=True))
