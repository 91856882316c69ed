"""The tile program: what a kernel does in one grid step, as every emitter reads it."""
