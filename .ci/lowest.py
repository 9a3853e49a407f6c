"""Prints the lowest version of each dependency that pyproject.toml allows, one requirement per line.

torch is left out, since not every version has a CPU build to install.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
for requirement in project["dependencies"]:
    name, lowest = re.fullmatch(r"([\w.,\[\]-]+)>=([\d.]+).*", requirement).groups()
    if name != "torch":
        print(f"{name}=={lowest}")
