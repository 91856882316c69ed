"""Tiled primitives: one declaration each."""

if __name__ != "tilejax.primitives":
    raise ImportError(
        f"this folder was imported as {__name__!r}; import it as 'tilejax.primitives', "
        "since under two names every primitive would be registered twice"
    )

from tilejax.primitives.attention import attention as attention
from tilejax.primitives.conv import (
    conv as conv,
    conv_general_dilated as conv_general_dilated,
)
from tilejax.primitives.conv_transpose import conv_transpose as conv_transpose
from tilejax.primitives.cross_entropy import (
    cross_entropy as cross_entropy,
    cross_entropy_with_lse as cross_entropy_with_lse,
)
from tilejax.primitives.embedding import embedding as embedding
from tilejax.primitives.embedding_bag import embedding_bag as embedding_bag
from tilejax.primitives.group_norm import group_norm as group_norm
from tilejax.primitives.matmul import dot_general as dot_general, matmul as matmul
from tilejax.primitives.norms import layer_norm as layer_norm, rms_norm as rms_norm
from tilejax.primitives.softmax import log_softmax as log_softmax, softmax as softmax
