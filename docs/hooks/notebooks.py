"""Notebooks as pages of the site: their text, their code and what the code showed."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_LINK = re.compile(r"(\]\([\w/.-]*)\.ipynb\)")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add a page beside every notebook, which stays as a file to download."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        content = Path(str(notebook.abs_src_path)).read_text(encoding="utf-8")
        page = f"{notebook.src_uri.removesuffix('.ipynb')}.md"
        files.append(File.generated(config, page, content=as_markdown(json.loads(content), notebook.name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to notebooks to their pages."""
    return _LINK.sub(r"\1.md)", markdown)


def as_markdown(notebook: dict[str, Any], name: str) -> str:
    """The cells in order, each output below its code."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [_shown(output) for output in cell.get("outputs", ())]
    # The suffix in two parts: this link is not to lead to the page itself.
    parts.append(f'<a href="{name}.ipynb" download>Download this notebook</a>')
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> str:
    """An output as HTML: what a notebook shows, in the order of its preference."""
    data = output.get("data", {})
    if "text/html" in data:
        rich = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        # No empty lines: Markdown would end the block there.
        return '<div class="output">\n' + re.sub(r"\n\s*\n", "\n", rich.strip()) + "\n</div>"
    text = "".join(output["text"] if "text" in output else data["text/plain"])
    return f'<pre class="output">{html.escape(text.rstrip())}</pre>'.replace("\n\n", "\n&#8203;\n")
