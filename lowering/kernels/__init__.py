"""Pallas kernels, a file a family: pure functions of arrays and a frozen config."""
