"""Write the tables of results in README.md and docs/ from benchmarks/results/rows, or another folder there.

    python -m benchmarks.results_tables [--check]

A table stands between two comments, the first with the options of `graphzoo results` that select its rows,
behind the name of a folder where it is not `rows`:

    <!-- results: --data cora,citeseer -->
    <!-- end of results -->

    <!-- results: ablations/galit-citeseer-attention -->
    <!-- end of results -->

`--check` writes nothing and names the pages that would change.
"""

import argparse
import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

from benchmarks.common import RESULTS
from graphzoo.cli.results import results_main

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"(?P<begin>^<!-- results: (?P<options>.*?) -->\n).*?(?P<end>^<!-- end of results -->$)", re.M | re.S
)


def table(options: str) -> str:
    """The table that `graphzoo results` prints for these options."""
    words = shlex.split(options)
    folder = words.pop(0) if words and not words[0].startswith("--") else "rows"
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        results_main([str(RESULTS / folder), "--format", "markdown", *words])
    return text.getvalue()


def renewed(text: str) -> str:
    """A page with its tables written anew."""
    return BLOCK.sub(lambda found: f"{found['begin']}\n{table(found['options'])}\n{found['end']}", text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    changed = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        before = page.read_text(encoding="utf-8")
        after = renewed(before)
        if after != before:
            changed.append(page.relative_to(ROOT).as_posix())
            if not check:
                page.write_text(after, encoding="utf-8")
    print("\n".join(changed) or "nothing to change")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
