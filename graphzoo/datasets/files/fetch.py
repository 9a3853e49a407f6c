"""Find the files of a data set, or download them.

A download can be resumed, is verified before the file gets its name, and runs only once per machine. This
module needs only the standard library and filelock, so that a login node can use it.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import math
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import Timeout

from graphzoo import __version__
from graphzoo.datasets.files.roots import cache_root, data_root, is_offline
from graphzoo.datasets.files.verify import Broken, Refused, verify_not_html
from graphzoo.errors import DownloadError
from graphzoo.system.progress import progress
from graphzoo.system.shown import tell
from graphzoo.system.waiting import TellingLock

_log = logging.getLogger(__name__)
_CHUNK = 1 << 18
# seconds without a byte, rounds over all addresses, seconds before the second round (doubled each time)
_TIMEOUT = 30.0
_ROUNDS = 4
_BACKOFF = 1.0
_LOCK_TIMEOUT = 3600.0


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set, its addresses and its check; see `DataFile`."""

    path: str
    urls: tuple[str, ...]
    verify: Callable[[Path], None]  # called before the file takes its name; raises `Refused` or `Broken`
    num_bytes: int = 0  # 0 if unknown
    alternatives: tuple[str, ...] = ()


def provide_files(
    name: str,
    folder: str,
    wanted: Sequence[RemoteFile],
    root: str | os.PathLike[str] | None = None,
    download: bool | None = None,
    *,
    note: str = "",
) -> dict[str, Path]:
    """Find the files of a data set, and download those that are missing.

    Files are looked for below the data root, then below the user's cache folder. They are downloaded to the
    root, or to the cache folder if the root is read-only. With GRAPHZOO_MIRROR=URL the address
    `URL/<folder>/<path>` is tried before all others.

    Args:
        name: Name of the data set, for messages.
        folder: Its folder below the data root.
        wanted: The files.
        root: Data root; None takes GRAPHZOO_DATA or the user's cache folder.
        download: Whether files may be downloaded; None means yes unless GRAPHZOO_OFFLINE is set.
        note: Where to get files that have no public address, for messages.

    Returns:
        The path of each file, by its `path` in `wanted`.

    Raises:
        DownloadError: if a file is missing and cannot be downloaded; the message says where to put it.
    """
    places = data_places(folder, root)
    paths = find_files(places, wanted)
    missing = [file for file in wanted if file.path not in paths]
    if not missing:
        return paths
    remedy = partial(_remedy, name, folder, places[0])
    urls = {file.path: _addresses(file, folder) for file in missing}
    if not all(urls.values()):
        raise DownloadError(remedy(missing, [], note or "no public file has this layout"))
    first = urls[missing[0].path]
    if is_offline() or download is False:
        reason = "GRAPHZOO_OFFLINE is set" if is_offline() else "downloads are switched off (download=False)"
        raise DownloadError(remedy(missing, first, reason))
    target = next(filter(is_writable, places), None)
    if target is None:
        raise DownloadError(remedy(missing, first, f"no folder is writable ({', '.join(map(str, places))})"))
    target.mkdir(parents=True, exist_ok=True)
    with locked(target / ".download.lock"):
        # another process may have fetched everything while this one waited
        paths = find_files(places, wanted)
        if missing := [file for file in wanted if file.path not in paths]:
            tell(f"graphzoo: fetching {name} ({_listed(missing)}{_total(missing)}) into {target}\n")
            sys.stderr.flush()
        for file in missing:
            path = target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                _fetch(urls[file.path], path, file.verify)
            except DownloadError as error:
                raise DownloadError(remedy([file], urls[file.path], str(error))) from error
            paths[file.path] = path
    return paths


def data_places(folder: str, root: str | os.PathLike[str] | None = None) -> list[Path]:
    """The folders where a data set may be: below the data root, and below the user's cache folder."""
    return list(dict.fromkeys([data_root(root) / folder, cache_root() / "data" / folder]))


def find_files(places: Sequence[Path], wanted: Sequence[RemoteFile]) -> dict[str, Path]:
    """The files that are in one of the folders, by their `path`; the first folder that has a file counts."""
    paths = {}
    for file in wanted:
        stem = file.path.removesuffix(Path(file.path).suffix)
        names = [file.path, *(stem + suffix for suffix in file.alternatives)]
        if present := [path for place in places for name in names if (path := place / name).is_file()]:
            paths[file.path] = present[0]
    return paths


def _addresses(file: RemoteFile, folder: str) -> list[str]:
    mirror = os.environ.get("GRAPHZOO_MIRROR", "").rstrip("/")
    return [*([f"{mirror}/{folder}/{file.path}"] if mirror else []), *file.urls]


def _remedy(
    name: str, folder: str, place: Path, files: Sequence[RemoteFile], urls: list[str], reason: str
) -> str:
    """At most six lines: what is missing, why, where to get it, where to put it."""
    suffix = "".join(f" (or {alternative})" for alternative in files[0].alternatives)
    lines = [
        f"{name}: {_listed(files)} is missing and cannot be downloaded: {reason}",
        f"  put it at: {place / files[0].path}{suffix}",
    ]
    if urls:
        lines.append(f"  from:      {urls[0]}")
    lines.append(f"  or set GRAPHZOO_DATA=DIR (or --data.root DIR) to a folder that holds {folder}/")
    if urls and ("OFFLINE" in reason or "switched off" in reason):
        lines.append(f"  or run `graphzoo download {name}` where there is a network")
    return "\n".join(lines)


def _listed(files: Sequence[RemoteFile]) -> str:
    names = [Path(file.path).name for file in files]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more files" if len(names) > 3 else "")


def _total(files: Sequence[RemoteFile]) -> str:
    num_bytes = sum(file.num_bytes for file in files)
    size = f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{math.ceil(num_bytes / 1e3)} kB"
    return f", about {size}" if num_bytes else ""


def is_writable(folder: Path) -> bool:
    """Whether files can be written to the folder, or the folder can be made."""
    nearest = next((place for place in (folder, *folder.parents) if place.exists()), None)
    return nearest is not None and nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that all processes of the machine respect."""
    try:
        lock = TellingLock(path, timeout=_LOCK_TIMEOUT).acquire()
    except Timeout as error:
        raise DownloadError(
            f"{path}: another process has held this lock for {_LOCK_TIMEOUT / 60:.0f} minutes; if none is "
            "fetching, delete it"
        ) from error
    with lock:
        yield


def _fetch(urls: list[str], path: Path, verify: Callable[[Path], None]) -> None:
    """Try all addresses for several rounds; a verified file is renamed to `path`."""
    failures: dict[str, str] = {}
    refused: set[str] = set()
    idle_rounds = 0
    while idle_rounds < _ROUNDS and len(refused) < len(urls):
        if idle_rounds:
            time.sleep(_BACKOFF * 2 ** (idle_rounds - 1))
        idle_rounds += 1
        for url in urls:
            if url in refused:
                continue
            # Mirrors may differ in line ends, so a partial file is only resumed from its own address.
            part = path.with_name(f".{path.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part")
            before = _size(part)
            try:
                _transfer(url, part)
                verify_not_html(part)
                verify(part)
            except Refused as error:
                refused.add(url)
                failures[url] = str(error)
            except (Broken, OSError, http.client.HTTPException) as error:
                failures[url] = str(error) or type(error).__name__
                _log.info("%s: %s", url, failures[url])
                if _size(part) > before:
                    # A connection that often breaks still makes progress.
                    idle_rounds = 0
            else:
                os.replace(part, path)
                _sync_folder(path.parent)
                for leftover in path.parent.glob(f".{path.name}.*.part"):
                    leftover.unlink(missing_ok=True)
                return
    url, why = next(iter(failures.items()))
    more = f" (and {len(failures) - 1} more addresses failed)" if len(failures) > 1 else ""
    raise DownloadError(f"{url}: {why}{more}")


def _transfer(url: str, part: Path) -> None:
    """Download the rest of `url` to the end of `part`."""
    have = _size(part)
    headers = {"User-Agent": f"graphzoo/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            # The partial file is longer than the file of the server.
            part.unlink(missing_ok=True)
            raise Broken("the partial file was not the beginning of this file and was deleted") from error
        kind = Broken if error.code in (408, 425, 429) or error.code >= 500 else Refused
        raise kind(f"HTTP {error.code} {error.reason}") from error
    except (urllib.error.URLError, TimeoutError) as error:
        raise Broken(f"no connection ({getattr(error, 'reason', error)})") from error
    with closing(response):
        if response.headers.get_content_type() == "text/html":
            raise Refused("the server answered with a web page instead of the file")
        resumed = response.status == 206
        if resumed and _range_start(response.headers.get("Content-Range")) != have:
            part.unlink(missing_ok=True)
            raise Broken("the server sent another part of the file than the one that was asked for")
        length = response.headers.get("Content-Length")
        received = 0
        total = None if length is None else int(length) + (have if resumed else 0)
        name = url.rpartition("/")[2]
        with part.open("ab" if resumed else "wb") as file, progress(name, total, unit="bytes") as advance:
            advance(have if resumed else 0)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                received += len(chunk)
                advance(len(chunk))
            file.flush()
            os.fsync(file.fileno())
        if length is not None and received != int(length):
            raise Broken(f"the connection ended after {received:,} of {int(length):,} bytes")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _range_start(value: str | None) -> int | None:
    """`bytes 100-199/200` starts at 100."""
    try:
        return int((value or "").removeprefix("bytes").strip().split("-")[0])
    except ValueError:
        return None


def _sync_folder(folder: Path) -> None:
    # A rename survives a crash only if the folder is synced too. Windows cannot open folders.
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
