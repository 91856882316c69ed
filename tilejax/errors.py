"""Every exception that a user's mistake can raise.

Each one is also the built-in class that its kind of mistake usually raises, so that
code which catches `ValueError` or `TypeError` keeps working.
"""


class TileJAXError(Exception):
    """Base of all errors raised on purpose by TileJAX."""


class ShapeError(TileJAXError, ValueError):
    """Operands whose ranks or sizes do not fit the operation."""


class DTypeError(TileJAXError, TypeError):
    """Operands or parameters of a dtype that the operation does not take."""


class ParameterError(TileJAXError, ValueError):
    """A parameter outside its range, unknown, or in conflict with another."""


class ShardingError(TileJAXError, ValueError):
    """Shardings that contradict each other or that an operation cannot keep."""


class DeclarationError(TileJAXError, ValueError):
    """A declaration of a primitive, kernel or target that cannot be accepted."""


class TargetError(TileJAXError, ValueError):
    """A target that is unknown or lacks what was asked of it."""


class PassError(TileJAXError, ValueError):
    """A pass that is unknown or that left an invalid program behind."""


class CheckpointError(TileJAXError, ValueError):
    """A checkpoint file that is truncated, corrupt or of another run."""


class ArgumentError(TileJAXError, TypeError):
    """An argument that cannot be traced, hashed or bound to the function."""


class UnsupportedKernel(TileJAXError, NotImplementedError):
    """A kernel that holds something for which a target's compiler has no code."""


class KernelFault(TileJAXError, RuntimeError):
    """A kernel that, checked, read or wrote what it must not."""


class BucketError(TileJAXError, ValueError):
    """A size that no bucket takes, or a program that cannot be padded to one."""


class StaticArgumentError(ArgumentError, ValueError):
    """A static argument that cannot be hashed."""
