"""Type stubs of an engine library, written from what its bindings say of themselves.

`python -m tests.contracts.stubs NAME FOLDER` writes the stubs of one library into a folder for mypy's search path:
`engine_library`, all its classes and a class `Library` that stands for the module as dfc hands it around, and for full
TensorRT `tensorrt` with its package for plugins. A library's own process, because two bindings cannot share one.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

from mypy.stubgenc import DocstringSignatureGenerator, InspectionStubGenerator
from mypy.stubutil import FunctionContext, FunctionSig, SignatureGenerator

from tests.contracts.libraries import LIBRARIES, EngineLibrary
from tests.plugins.tensorrt_bindings import import_tensorrt

_CPP_SCOPE = re.compile(r"\bnv\w+::(?!safe)")
"""Where a binding was declared before its argument's type, the docstring spells that type as C++ does."""


_IMPLICIT_METHODS = {
    "Dims": "def __iter__(self) -> collections.abc.Iterator[int]: ...",
    "IHostMemory": "def __buffer__(self, flags: int, /) -> memoryview: ...",
}


class _CleanedDocstrings(DocstringSignatureGenerator):
    def get_function_sig(self, default_sig: FunctionSig, ctx: FunctionContext) -> list[FunctionSig] | None:
        if ctx.docstring is not None:
            ctx.docstring = _CPP_SCOPE.sub("", ctx.docstring)
        found = super().get_function_sig(default_sig, ctx)
        return None if found is None else [_with_python_defaults(signature) for signature in found]


def _with_python_defaults(signature: FunctionSig) -> FunctionSig:
    """Drop defaults that stand before an argument without one: a binding may have them, Python may not."""
    required = False
    for argument in reversed(signature.args):
        required = required or not (argument.default or argument.name.startswith("*"))
        argument.default = argument.default and not required
    return signature


class _BindingsStubs(InspectionStubGenerator):
    def get_sig_generators(self) -> list[SignatureGenerator]:
        return [_CleanedDocstrings()]


def write_stubs(library: EngineLibrary, folder: Path) -> None:
    """Write the stubs of one library.

    Raises:
        ImportError: the library is not installed, or in another version.
    """
    module = _import(library, folder / "stand-ins")
    if module.__version__ != library.version:
        raise ImportError(f"{library.name} is {module.__version__}, wanted {library.version}; run `make setup`")
    text = _stub(module, f"{module.__name__}.{library.extension}")
    package = folder / "stubs"
    if library.name == "tensorrt":
        _write(package / "tensorrt" / "__init__.pyi", text)
        _expose_plugins(package / "tensorrt" / "plugin")
        text = "from tensorrt import *\n"
    _write(package / "engine_library" / "bindings.pyi", text)
    classes = sorted(name for name, value in vars(module).items() if inspect.isclass(value))
    members = "".join(f"    {name}: type[bindings.{name}]\n" for name in classes)
    seam = f"class Library:\n    __version__: str\n{members}"
    imports = "from engine_library import bindings\nfrom engine_library.bindings import *\n"
    _write(package / "engine_library" / "__init__.pyi", f"{imports}\n{seam}")


def _expose_plugins(folder: Path) -> None:
    """Copy the sources of the plugin package, which is Python, and say what it exports: it does so by decorators."""
    plugins = importlib.import_module("tensorrt.plugin")
    for source in Path(str(plugins.__file__)).parent.glob("_[a-z]*.py"):
        # The decorator has no type, and would hide that of what it decorates; a tuple of one means any number.
        text = re.sub(r"^ *@public_api\(\)\n", "", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
        text = re.sub(r"Tuple\[(Union\[[^\]]*\])\]", r"Tuple[\1, ...]", text)
        # `from_tuple` makes several of what its annotation says.
        _write(folder / source.name, re.sub(r'(from_tuple\(.*\) -> "\w+Expr)":', r'\1s":', text))
    exported = {name: value for name, value in vars(plugins).items() if hasattr(value, "__module__") and name[0] != "_"}
    lines = [
        f"from tensorrt.plugin.{value.__module__.rpartition('.')[2]} import {name} as {name}\n"
        for name, value in sorted(exported.items())
        if ".plugin." in value.__module__
    ]
    _write(folder / "__init__.pyi", "".join(lines))


def _import(library: EngineLibrary, stand_ins: Path) -> ModuleType:
    if library.name == "tensorrt":
        stand_ins.mkdir(parents=True, exist_ok=True)
        import_tensorrt(stand_ins)
        return importlib.import_module("tensorrt")
    if library.bindings is not None:
        sys.path.insert(0, str(library.bindings))
    importlib.import_module("tensorrt_rtx_libs")
    return importlib.import_module("tensorrt_rtx_bindings")


def _stub(module: ModuleType, extension: str) -> str:
    generator = _BindingsStubs(extension, [extension])
    generator.generate_module()
    # The module has a `bool` of its own, a data type.
    text = re.sub(r"\bbool\b(?!: DataType)", "builtins.bool", generator.output())
    text = re.sub(r"ClassVar\[(dict|Callable)\]", r"ClassVar[Any]", text)
    # What Python finds without being told: rows by index, and the buffer protocol.
    for name, method in _IMPLICIT_METHODS.items():
        text = text.replace(f"class {name}:\n", f"class {name}:\n    {method}\n")
    # The one class whose name in Python is not that of C++.
    text = re.sub(r"\bIParserError\b", "ParserError", text)
    return f"import builtins\n{text}\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_stubs(LIBRARIES[sys.argv[1]], Path(sys.argv[2]))
