"""Everything from JAX that is not public, in one folder.

JAX's versions differ in these places; the rest of TileJAX sees one neutral view.
"""
