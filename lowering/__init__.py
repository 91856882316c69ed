"""Lowering rules and kernels, a folder a target."""

if __name__ != "tilejax.lowering":
    raise ImportError(
        f"this folder was imported as {__name__!r}; import it as 'tilejax.lowering', "
        "since under two names every rule would be registered twice"
    )
