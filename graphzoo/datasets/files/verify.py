"""Checks of a downloaded file before it gets its name; a wrong file is deleted, and so never resumed."""

from __future__ import annotations

import hashlib
import logging
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from graphzoo.system.memory import raise_if_not_the_file

log = logging.getLogger(__name__)


class Refused(Exception):
    """This address does not have the file: try the next one."""


class Broken(Exception):
    """The transfer stopped early or had wrong bytes: try the same address again."""


def verify_not_html(part: Path) -> None:
    """Refuse a file that begins like a web page."""
    with part.open("rb") as file:
        start = file.read(256)
    if start.lstrip()[:1] == b"<":
        part.unlink()
        raise Refused("the server answered with a web page instead of the file")


def verify_sha256(part: Path, sha256: str | None) -> None:
    """Refuse a file whose sha256 differs; None checks nothing."""
    if sha256 is None:
        return
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        part.unlink()
        raise Broken(f"wrong content (sha256 {digest[:16]}..., expected {sha256[:16]}...)")


def verify_zip(part: Path, members: Sequence[str]) -> None:
    """Refuse a damaged zip archive, or one without some of `members`."""
    try:
        with zipfile.ZipFile(part) as archive:
            missing = sorted(set(members) - set(archive.namelist()))
            damaged = None if missing else archive.testzip()
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError) as error:
        raise_if_not_the_file(error, part)
        part.unlink()
        raise Broken(f"not a complete zip archive ({error})") from error
    if missing or damaged:
        part.unlink()
        raise Broken(
            f"{missing[0]} is not in the archive" if missing else f"{damaged} is damaged in the archive"
        )
