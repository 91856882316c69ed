"""A tiling compiler for JAX: write once, run anywhere, at the speed of the machine."""
