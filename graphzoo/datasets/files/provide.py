"""Find the files of a data set of a table, download and unpack them, and verify them. Imports no torch."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from graphzoo.datasets.files.fetch import (
    RemoteFile,
    data_places,
    find_files,
    is_writable,
    locked,
    provide_files,
)
from graphzoo.datasets.files.roots import is_offline
from graphzoo.datasets.files.sources import Archive, DataFile, FileSource
from graphzoo.datasets.files.verify import verify_sha256, verify_zip
from graphzoo.errors import DataError, reason
from graphzoo.system.files import write_atomically

_log = logging.getLogger(__name__)


def provide_source_files(
    source: FileSource, *, root: str | os.PathLike[str] | None = None, download: bool | None = None
) -> dict[str, Path]:
    """The place of each file of a data set, by its path; missing files are fetched (see `provide_files`)."""
    wanted = []
    for file in source.files:
        sha256, num_bytes = source.facts(file)
        check = partial(verify_sha256, sha256=sha256)
        wanted.append(RemoteFile(file.path, file.urls, check, num_bytes, file.alternatives))
    if source.archive is not None:
        return _provide_archive(source, source.archive, wanted, root, download)
    return provide_files(source.name, source.folder, wanted, root=root, download=download, note=source.note)


def check_hashes(source: FileSource, files: Mapping[str, Path]) -> None:
    """Check the sha256 of all files that have one, before any of them, such as a pickle, is parsed.

    Raises:
        DataError: if the content of a file differs, or a packed file is damaged.
    """
    for file in source.files:
        sha256, _ = source.facts(file)
        if sha256 is None or file.path not in files:
            continue
        path = files[file.path]
        digest = _content_sha256(path, file)
        if digest != sha256:
            raise DataError(
                f"{path}: content differs from {source.name} (sha256 {digest[:16]}..., expected "
                f"{sha256[:16]}...)\n  delete it to fetch it again"
            )


def _content_sha256(path: Path, file: DataFile) -> str:
    is_packed = path.suffix == ".gz" and not file.path.endswith(".gz")
    try:
        with gzip.open(path) if is_packed else path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: damaged or cut off ({reason(error)}); delete it to fetch it again"
        ) from error


def _provide_archive(
    source: FileSource,
    archive: Archive,
    files: Sequence[RemoteFile],
    root: str | os.PathLike[str] | None,
    download: bool | None,
) -> dict[str, Path]:
    """Unpack the files from the archive. An archive that had to be fetched is deleted afterwards."""
    places = data_places(source.folder, root)
    needed = {file.path for file in source.files if not file.optional}
    paths = find_files(places, files)
    if needed <= paths.keys():
        return paths
    name = archive.url.rsplit("/", 1)[1]
    check = partial(verify_zip, members=[archive.prefix + path for path in sorted(needed)])
    wanted = RemoteFile(name, (archive.url,), check, archive.num_bytes)
    provide_archive = partial(provide_files, source.name, source.folder, [wanted], root, download)
    was_there = bool(find_files(places, [wanted]))
    target = next(filter(is_writable, places), None)
    if target is None or (not was_there and (is_offline() or download is False)):
        # This raises the error that says what is missing, before a folder is made.
        path = provide_archive()[name]
        raise DataError(
            f"{path}: cannot be unpacked; make one of these folders writable: {', '.join(map(str, places))}"
        )
    target.mkdir(parents=True, exist_ok=True)
    with locked(target / ".unpack.lock"):
        # Another process may have unpacked everything while this one waited.
        paths = find_files(places, files)
        if not needed <= paths.keys():
            path = provide_archive()[name]
            paths = _unpack(source, archive, path, target)
            if not was_there:
                path.unlink(missing_ok=True)
    return paths


def _unpack(source: FileSource, archive: Archive, path: Path, target: Path) -> dict[str, Path]:
    paths = {}
    try:
        with zipfile.ZipFile(path) as content:
            present = set(content.namelist())
            for file in source.files:
                member = archive.prefix + file.path
                if file.optional and member not in present:
                    continue
                paths[file.path] = target / file.path
                with content.open(member) as stream:
                    write_atomically(paths[file.path], partial(shutil.copyfileobj, stream))
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise DataError(
            f"{path}: not the archive of {source.name} ({reason(error)}); delete it to fetch it again"
        ) from error
    _log.info("%s: unpacked into %s", source.name, target)
    return paths
