"""The tile program: what a kernel does in one grid step, in a form any emitter reads."""
