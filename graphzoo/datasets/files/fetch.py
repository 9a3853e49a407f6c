"""Find the files of a data set, or fetch them: resumable, verified before they take their name, once per
machine.

Standard library and filelock only, so that a login node can fetch without the rest.
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
    """A file of a data set and how to get it; see `DataFile`."""

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
    """Find the files of a data set, or fetch those that are missing.

    Looks below the data root, then below the user's cache folder, which also takes the files when the root is
    read-only. With GRAPHZOO_MIRROR=URL the address `URL/<folder>/<path>` is tried before all others. `note`
    says where to get files that have no public address.

    Returns:
        Where each file lies, by its `path`.
    """
    places = data_places(folder, root)
    paths = find_files(places, wanted)
    missing = [file for file in wanted if file.path not in paths]
    if not missing:
        return paths
    remedy = partial(_remedy, name, folder, places[0])
    urls = {file.path: _addresses(file, folder) for file in missing}
    if not all(urls.values()):
        raise DownloadError(remedy(missing, [], note or "there is no public file of this layout"))
    first = urls[missing[0].path]
    if is_offline() or download is False:
        reason = "GRAPHZOO_OFFLINE is set" if is_offline() else "downloads are switched off (download=False)"
        raise DownloadError(remedy(missing, first, reason))
    target = next(filter(is_writable, places), None)
    if target is None:
        raise DownloadError(remedy(missing, first, "neither folder is writable"))
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
    """Where a data set may lie: below the data root, below the user's cache folder."""
    return list(dict.fromkeys([data_root(root) / folder, cache_root() / "data" / folder]))


def find_files(places: Sequence[Path], wanted: Sequence[RemoteFile]) -> dict[str, Path]:
    """Those of the files that lie in one of the folders, the first one that has them; by their `path`."""
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
        f"{name}: {_listed(files)} cannot be had: {reason}",
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
    """Whether files can be put there, the folder made if need be."""
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
    """Try all addresses, several rounds; a verified file takes the name `path` at once."""
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
            # mirrors may differ in line ends, so a half file is only continued from its own address
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
                    # a slow line that breaks often still gets there
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
    """Append to `part` what is missing of `url`."""
    have = _size(part)
    headers = {"User-Agent": f"graphzoo/{__version__}", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:
            # the half file is longer than the file: it belongs to something else
            part.unlink(missing_ok=True)
            raise Broken("the partial file did not fit, started again") from error
        kind = Broken if error.code in (408, 425, 429) or error.code >= 500 else Refused
        raise kind(f"HTTP {error.code} {error.reason}") from error
    except (urllib.error.URLError, TimeoutError) as error:
        raise Broken(f"no connection ({getattr(error, 'reason', error)})") from error
    with closing(response):
        if response.headers.get_content_type() == "text/html":
            raise Refused("the server answered with a web page instead of the file")
        resumed = response.status == 206 and _range_start(response.headers.get("Content-Range")) == have
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
    # a rename is durable only when the folder is; Windows cannot open folders
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
