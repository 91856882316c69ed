"""Functions of float32 and float64 elements, scalar or vector, as polynomials."""
