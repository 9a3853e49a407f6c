"""`python -m benchmarks` runs all `bench_*` scripts, one after the other."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent


def main() -> int:
    failed = 0
    for script in sorted(ROOT.glob("**/bench_*.py")):
        module = ".".join(("benchmarks", *script.relative_to(ROOT).with_suffix("").parts))
        print(f"== {module}", flush=True)
        failed += subprocess.run([sys.executable, "-m", module], cwd=ROOT.parent, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
