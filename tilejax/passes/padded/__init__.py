"""Programs traced for symbolic sizes, run on arrays padded to a bucket.

A symbolic program says for every axis how its size follows from those that have names.
Arrays come padded; the real sizes are traced numbers. Going through the equations, it
is known for each axis which elements are real. Where an equation would mix in others
(a reduction, a contraction, a window), they are first replaced by what does not count;
where a size itself is a value (the divisor of a mean), the real one is used. What an
equation does with elements that are not real is never looked at; what has no rule here
is refused.
"""
