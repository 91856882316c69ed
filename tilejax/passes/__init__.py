"""One pass a file; `pipeline` lists them in order."""

from tilejax.passes.pipeline import (
    PASSES as PASSES,
    run as run,
    without as without,
)
from tilejax.passes.record import PassRecord as PassRecord, note as note
