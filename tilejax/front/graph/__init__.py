"""`tilejax.GraphBuilder`: programs from calls, without writing a function."""
