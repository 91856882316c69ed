"""Target records, detection and the cost model."""

from tilejax.targets.records import (
    Limits as Limits,
    Memory as Memory,
    Target as Target,
    Unit as Unit,
)
from tilejax.targets.registry import (
    detect as detect,
    get as get,
    names as names,
    register as register,
)
