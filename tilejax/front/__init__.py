"""What tracing starts from: `jit` and its relatives."""
