"""Checks the files of an installed graphzoo: `python check_installed.py REPOSITORY`, in another folder."""

import sys
from importlib.metadata import version
from pathlib import Path

import graphzoo

repository = Path(sys.argv[1]).resolve()
package = Path(graphzoo.__file__).resolve().parent

loaded = sorted({"torch", "lightning", "numpy", "pandas"} & set(sys.modules))
assert not loaded, f"`import graphzoo` imported {loaded}"
assert repository not in package.parents, f"graphzoo came from the source tree: {package}"
assert graphzoo.__version__ == version("graphzoo"), (graphzoo.__version__, version("graphzoo"))
assert (package / "py.typed").is_file(), "py.typed is missing"

source = repository / "configs"
presets = sorted(path.relative_to(source) for path in source.rglob("*.yaml"))
assert presets, f"no presets below {source}"
missing = [str(path) for path in presets if not (package / "configs" / path).is_file()]
assert not missing, f"presets not in the wheel: {missing}"
assert any((package / "data" / "umls").iterdir()), "the embedded UMLS triples are missing"
print(f"graphzoo {graphzoo.__version__} in {package}: {len(presets)} presets, UMLS, py.typed")
