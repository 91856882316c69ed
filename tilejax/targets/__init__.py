"""Target records, detection and the cost model."""

from tilejax.targets.assumed import Assumed as Assumed, assumed as assumed
from tilejax.targets.cost import Cost as Cost
from tilejax.targets.figures import dtype_key as dtype_key
from tilejax.targets.fit import Fit as Fit, fits as fits
from tilejax.targets.measure import with_bandwidth as with_bandwidth
from tilejax.targets.padding import (
    padding_efficiency as padding_efficiency,
    tiled_efficiency as tiled_efficiency,
)
from tilejax.targets.product import (
    matmul_cost as matmul_cost,
    matmul_seconds as matmul_seconds,
    matmul_tiling as matmul_tiling,
    product_work as product_work,
)
from tilejax.targets.records import (
    Limits as Limits,
    Memory as Memory,
    Target as Target,
    Unit as Unit,
)
from tilejax.targets.registry import (
    detect as detect,
    for_platform as for_platform,
    get as get,
    names as names,
    register as register,
)
from tilejax.targets.roofline import Estimate as Estimate, seconds as seconds
from tilejax.targets.tiling import (
    Tiling as Tiling,
    call_seconds as call_seconds,
    fastest as fastest,
    ranked as ranked,
)
from tilejax.targets.traffic import (
    Traffic as Traffic,
    matmul_levels as matmul_levels,
    matmul_traffic as matmul_traffic,
)
