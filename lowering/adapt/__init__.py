"""Bringing an operation's operands to the form that its kernel takes, a file a family.

Each file has a `KERNELS`: records of an operation, a part of it, what runs it, and its
configs, ready for `lowering.rules.register_kernel` on any target that compiles Pallas.
"""
