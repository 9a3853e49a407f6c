"""Pictures of runs, and reports as one HTML file.

Names load on first use, so that importing graphzoo is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphzoo.lazy import attach

if TYPE_CHECKING:
    from graphzoo.report.build import build_report as build_report
    from graphzoo.report.content import Options as Options
    from graphzoo.report.content import Report as Report
    from graphzoo.report.page import save_pictures as save_pictures
    from graphzoo.report.page import to_html as to_html
    from graphzoo.runs.find import find_records as find_records
    from graphzoo.runs.groups import group_records as group_records

__getattr__, __dir__, __all__ = attach(__name__)
