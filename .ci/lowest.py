"""Prints the lowest version that pyproject.toml allows of every dependency but torch, one requirement a line.

Only a torch that is at hand as a CPU build can be installed here.
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
