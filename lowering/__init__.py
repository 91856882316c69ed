"""Lowering rules and kernels, a folder a target."""
