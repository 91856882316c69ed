"""Which packages to install; all else is declared in pyproject.toml.

`tilejax/lowering` and `tilejax/primitives` are links to the top-level folders. A copy
of the tree that has lost its links (an sdist, an archive unpacked on Windows) must
still install whole, so the two folders are searched by their real names too.
"""

from setuptools import find_packages, setup

LINKED = ("lowering", "primitives")

packages = set(find_packages(include=["tilejax", "tilejax.*"]))
for folder in LINKED:
    inner = find_packages(include=[folder, f"{folder}.*"])
    packages.update(f"tilejax.{name}" for name in inner)

setup(
    packages=sorted(packages),
    package_dir={f"tilejax.{folder}": folder for folder in LINKED},
)
