"""Packages that import their names on first use."""

import ast
import py_compile
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import graphzoo

PACKAGE = Path(graphzoo.__file__).parent
LAZY = sorted(
    ".".join(("graphzoo", *path.parent.relative_to(PACKAGE).parts))
    for path in PACKAGE.rglob("__init__.py")
    if "= attach(" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", LAZY)
def test_public_names_can_be_imported_and_no_others(name):
    package = import_module(name)
    tree = ast.parse(Path(package.__file__).read_text("utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))  # if TYPE_CHECKING
    listed = [name.asname for found in checked.body for name in found.names]
    assert sorted({*package.__all__} - {"__version__"}) == sorted(listed) != []
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, public) is not None for public in package.__all__)
    with pytest.raises(AttributeError, match=f"^module '{name}' has no attribute 'nonsense'$"):
        _ = package.nonsense


def test_a_package_without_its_source_cannot_be_imported(tmp_path):
    """The list of names is read from the source of `__init__.py`."""
    (tmp_path / "bare").mkdir()
    source = tmp_path / "bare" / "__init__.py"
    source.write_text("from graphzoo.lazy import attach\n\nattach(__name__)\n")
    py_compile.compile(str(source), cfile=str(source.with_suffix(".pyc")))
    source.unlink()
    done = subprocess.run([sys.executable, "-c", "import bare"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "ImportError: bare lists its names in __init__.py" in done.stderr


def test_importing_the_packages_does_not_import_torch():
    code = "import sys; from importlib import import_module\n"
    code += f"for name in {LAZY}: dir(import_module(name))\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_subpackages_are_imported_on_use():
    code = "import graphzoo; graphzoo.encoders.KnowFormer; graphzoo.ops.RelationalGraph"
    code += "; graphzoo.layers.SparseLinear; graphzoo.heuristics.katz; graphzoo.callbacks.NanGuard"
    code += "; graphzoo.analysis.Evaluation; graphzoo.inference.KGModel; graphzoo.types.PairBatch"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
