"""Tiled primitives: one declaration each."""

if __name__ != "tilejax.primitives":
    raise ImportError(
        f"this folder was imported as {__name__!r}; import it as 'tilejax.primitives', "
        "since under two names every primitive would be registered twice"
    )
