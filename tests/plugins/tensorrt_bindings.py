"""TensorRT's Python bindings on a machine without its builder.

The builder's library does not come from a package registry, the bindings and the lean runtime do. The lean runtime has
the plugin registry, which is what registration needs; what it lacks, three stand-ins supply: an empty ONNX parser, an
empty plugin library, and a builder that refuses to be made. Nothing of the product uses them.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = "tensorrt-cu13-bindings and tensorrt-lean-cu13-libs"

_STAND_INS = {
    "libnvinfer.so.11": """
        void* getPluginRegistry(void);
        void* createInferBuilder_INTERNAL(void* logger, int version) { return 0; }
        void* getBuilderPluginRegistry(int capability) { return getPluginRegistry(); }
    """,
    "libnvonnxparser.so.11": """
        void* createNvOnnxParser_INTERNAL(void* network, void* logger, int version) { return 0; }
        void* createNvOnnxParserRefitter_INTERNAL(void* refitter, void* logger, int version) { return 0; }
        int getNvOnnxParserVersion(void) { return 110400; }
    """,
    "libnvinfer_plugin.so.11": """
        _Bool initLibNvInferPlugins(void* logger, const char* library_namespace) { return 1; }
    """,
}


def import_tensorrt(folder: Path) -> None:
    """Make `import tensorrt` and `import tensorrt.plugin` work; stand-ins are compiled into the folder.

    A TensorRT that is installed whole is used as it is. Skips the test, and says which packages to install, where the
    bindings are missing.
    """
    if "tensorrt" in sys.modules or importlib.util.find_spec("tensorrt") is not None:
        return
    lean = importlib.util.find_spec("tensorrt_lean_libs")
    if lean is None or lean.origin is None or importlib.util.find_spec("tensorrt_bindings") is None:
        pytest.skip(f"TensorRT registration is NOT tested: install {PACKAGES} (extra `test`)")
    lean_library = Path(lean.origin).with_name("libnvinfer_lean.so.11")
    for name, source in _STAND_INS.items():
        libraries = [str(lean_library)] if name == "libnvinfer.so.11" else []
        _compile(folder / name, source, libraries)
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    sys.modules["tensorrt"] = importlib.import_module("tensorrt_bindings")


def _compile(library: Path, source: str, libraries: list[str]) -> None:
    """Build a shared object that is found under its own name once it is loaded."""
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", *libraries, f"-Wl,-soname,{library.name}"]
    search = [f"-Wl,-rpath,{Path(path).parent}" for path in libraries]
    subprocess.run([*command, *search, "-Wl,--no-as-needed", "-o", str(library)], input=source, text=True, check=True)
