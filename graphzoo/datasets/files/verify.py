"""Checks of a fetched file before it takes its name; what is wrong is deleted, never continued or used."""

from __future__ import annotations

import hashlib
import logging
import zipfile
from collections.abc import Sequence
from pathlib import Path

from graphzoo.system.memory import raise_if_not_the_file

log = logging.getLogger(__name__)


class Refused(Exception):
    """This address will not give the file; the next one may."""


class Broken(Exception):
    """The transfer broke off or carried wrong bytes; the same address may do better."""


def verify_not_html(part: Path) -> None:
    """No data file begins like a web page."""
    with part.open("rb") as file:
        start = file.read(256)
    if start.lstrip()[:1] == b"<":
        part.unlink()
        raise Refused("the server answered with a web page instead of the file")


def verify_sha256(part: Path, sha256: str | None) -> None:
    """The bytes are those of the table, if it knows them."""
    if sha256 is None:
        return
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        part.unlink()
        raise Broken(f"wrong content (sha256 {digest[:16]}..., expected {sha256[:16]}...)")


def verify_zip(part: Path, members: Sequence[str]) -> None:
    """A whole archive that holds `members`."""
    try:
        with zipfile.ZipFile(part) as archive:
            missing = sorted(set(members) - set(archive.namelist()))
            damaged = None if missing else archive.testzip()
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise_if_not_the_file(error, part)
        part.unlink()
        raise Broken(f"not a whole zip archive ({error})") from error
    if missing or damaged:
        part.unlink()
        raise Broken(
            f"{missing[0]} is not in the archive" if missing else f"{damaged} is damaged in the archive"
        )
