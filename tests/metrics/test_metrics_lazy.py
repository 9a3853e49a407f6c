"""`import graphzoo.metrics` must not import torch."""

import subprocess
import sys


def test_names_load_on_first_use_without_torch():
    code = (
        "import sys, graphzoo.metrics as m; assert 'torch' not in sys.modules; dir(m); "
        "assert 'torch' not in sys.modules; assert all(getattr(m, name) for name in m.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
