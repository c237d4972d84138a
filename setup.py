"""Maps the top-level folders to `dfc.*` packages, which pyproject.toml cannot do for folders found by search."""

from setuptools import find_packages, setup

FOLDERS = ("artifacts", "compiler", "plugins", "runtime")

setup(
    package_dir={f"dfc.{folder}": folder for folder in FOLDERS},
    packages=[
        package
        for folder in FOLDERS
        for package in (f"dfc.{folder}", *(f"dfc.{folder}.{name}" for name in find_packages(folder)))
    ],
    package_data={"": ["*.cu", "*.cuh", "*.json", "py.typed"]},
)
