"""From a tile program to LLVM IR, and from that to a handler that XLA calls."""
