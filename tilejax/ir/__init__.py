"""What passes share: walking, verifying, printing and tracing back programs."""

from tilejax.ir.source import Source as Source, source as source
from tilejax.ir.text import as_text as as_text, type_text as type_text
from tilejax.ir.verify import verify as verify, verify_scopes as verify_scopes
from tilejax.ir.walk import (
    Step as Step,
    Total as Total,
    Visit as Visit,
    count as count,
    rewrite as rewrite,
    total as total,
    walk as walk,
)
