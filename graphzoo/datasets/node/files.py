"""The files of a graph with node labels: found, fetched one by one or in an archive, verified. No torch."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from graphzoo.datasets.errors import DataError
from graphzoo.datasets.fetch import RemoteFile, data_places, find_files, is_writable, provide_files
from graphzoo.datasets.files import write_atomically
from graphzoo.datasets.node.table import Archive, NodeFile, NodeSource, find_node_source
from graphzoo.datasets.verify import verify_sha256, verify_zip
from graphzoo.errors import UsageError

__all__ = ["check_hashes", "download_node_files", "provide_node_files"]

_log = logging.getLogger(__name__)


def download_node_files(name: str, *, root: str | os.PathLike[str] | None = None) -> Path:
    """Fetch every missing file of a data set; returns its folder.

    Raises:
        ValueError: unknown name, or data that a dependency brings along.
        DownloadError: a file can neither be found nor fetched.
    """
    source = find_node_source(name)
    if not source.files:
        raise UsageError(f"data {source.name} comes with {source.licence}: there is nothing to download")
    files = provide_node_files(source, root=root)
    path, found = next(iter(files.items()))
    # the folder of the data set may hold its files in folders of its own
    return found.parents[path.count("/")]


def provide_node_files(
    source: NodeSource, *, root: str | os.PathLike[str] | None = None, download: bool | None = None
) -> dict[str, Path]:
    """Where each file of a data set lies, by its path below the data set's folder; fetched if need be.

    Args:
        source: Row of the table.
        root: Data root, see `data_root`.
        download: Whether to fetch; None means yes unless GRAPHZOO_OFFLINE is set.

    Raises:
        DownloadError: with an address, the path for the file, and what went wrong.
    """
    wanted = []
    for file in source.files:
        sha256, num_bytes = source.facts(file)
        check = partial(verify_sha256, sha256=sha256)
        wanted.append(RemoteFile(file.path, file.urls, check, num_bytes, file.alternatives))
    if source.archive is not None:
        found = find_files(data_places(source.folder, root), wanted)
        if all(file.path in found or file.optional for file in source.files):
            return found
        return _provide_archive(source, source.archive, root, download)
    return provide_files(source.name, source.folder, wanted, root=root, download=download, note=source.note)


def check_hashes(source: NodeSource, files: Mapping[str, Path]) -> None:
    """Nothing is parsed, least of all a pickle, before its bytes are known to be right.

    Raises:
        DataError: for the first file whose content is not that of the table.
    """
    for file in source.files:
        sha256, _ = source.facts(file)
        if sha256 is None or file.path not in files:
            continue
        path = files[file.path]
        found = _content_sha256(path, file)
        if found != sha256:
            raise DataError(
                f"{path}: content differs from {source.name} (sha256 {found[:16]}..., expected "
                f"{sha256[:16]}...)\n  delete it to fetch it again"
            )


def _content_sha256(path: Path, file: NodeFile) -> str:
    is_packed = path.suffix == ".gz" and not file.path.endswith(".gz")
    try:
        with gzip.open(path) if is_packed else path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except (EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged or cut off ({error}); delete it to fetch it again") from error


def _provide_archive(
    source: NodeSource, archive: Archive, root: str | os.PathLike[str] | None, download: bool | None
) -> dict[str, Path]:
    """Unpack the files from the archive; if it does not lie there, it is fetched and dropped afterwards."""
    name = archive.url.rsplit("/", 1)[1]
    members = {file.path: archive.prefix + file.path for file in source.files}
    needed = [members[file.path] for file in source.files if not file.optional]
    wanted = RemoteFile(name, (archive.url,), partial(verify_zip, members=needed), archive.num_bytes)
    places = data_places(source.folder, root)
    was_there = bool(find_files(places, [wanted]))
    path = provide_files(source.name, source.folder, [wanted], root=root, download=download)[name]
    target = path.parent if is_writable(path.parent) else places[-1]
    found = {}
    try:
        with zipfile.ZipFile(path) as content:
            present = set(content.namelist())
            for file in source.files:
                if file.optional and members[file.path] not in present:
                    continue
                found[file.path] = target / file.path
                with content.open(members[file.path]) as member:

                    def copy(output: BinaryIO, member: IO[bytes] = member) -> None:
                        shutil.copyfileobj(member, output, 1 << 20)

                    write_atomically(found[file.path], copy)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise DataError(
            f"{path}: not the archive of {source.name} ({error}); delete it to fetch it again"
        ) from error
    if not was_there:
        path.unlink(missing_ok=True)
    _log.info("%s: unpacked into %s", source.name, target)
    return found
