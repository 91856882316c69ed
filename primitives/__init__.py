"""Tiled primitives: one declaration each."""
