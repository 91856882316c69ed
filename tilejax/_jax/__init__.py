"""Everything from JAX that is not public, in one folder.

JAX's versions differ in these places; the rest of TileJAX sees one neutral view.
Import from the files: `primitives` (tables of rules, types), `jaxprs` (programs),
`partition` (splitting a kernel over devices), `naming` (names and lines).
"""

from pathlib import Path

from tilejax._jax.naming import hide_frames

hide_frames(Path(__file__).parent.parent)
