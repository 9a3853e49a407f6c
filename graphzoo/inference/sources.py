"""What graphs of nodes and of links share at prediction time: read again where a run read them, or given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, TypeVar

from graphzoo.errors import UsageError
from graphzoo.system.json_file import read_json
from graphzoo.system.memory import raise_if_not_the_file

__all__ = ["Paths", "from_source", "stored"]

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


class _Fingerprinted(Protocol):
    @property
    def fingerprint(self) -> str: ...


_Graph = TypeVar("_Graph", bound=_Fingerprinted)


def stored(
    run: Path,
    load: Callable[[Path], _Graph],
    from_files: Callable[[dict[str, Any]], _Graph],
    by_name: Callable[[dict[str, Any], str | None], _Graph],
) -> _Graph:
    """The graph of a run: its copy, or for a large one the data set or the files it was read from.

    Args:
        run: The run directory.
        load: Reads the copy.
        from_files: Reads the files that meta.json names.
        by_name: Loads the data set that it names, from a data root or (None) the usual one.

    Raises:
        UsageError: if these are gone, or are not what they were.
    """
    folder = run / "graph"
    meta = _read_meta(folder / "meta.json")
    if meta["graph"] is not None:
        return load(folder / meta["graph"])
    place = ", ".join(meta["path"]) if meta["path"] is not None else f"data set {meta['name']}"
    try:
        if meta["path"] is not None:
            graph = from_files(meta)
        else:
            # A data root that is not there (any more) must not be made.
            root = meta.get("root")
            graph = by_name(meta, root if root is not None and Path(root).is_dir() else None)
    except (KeyError, TypeError) as error:
        raise _damaged(folder / "meta.json", f"no usable {error}") from error
    except UsageError as error:
        raise UsageError(
            f"{run}: its graph is large and was not copied; reading it again from {place} failed:\n{error}"
        ) from error
    if graph.fingerprint != meta["graph_fingerprint"]:
        raise UsageError(
            f"{run}: {place} is not the graph that the run was trained on (fingerprint "
            f"{graph.fingerprint[:12]}, there {meta['graph_fingerprint'][:12]})\n"
            "To predict on it all the same, give it as another graph: data= or --data.path"
        )
    return graph


def _read_meta(path: Path) -> dict[str, Any]:
    """What a run says of its graph; the file may come from anywhere."""
    try:
        meta = read_json(path)
    except (OSError, ValueError) as error:
        raise_if_not_the_file(error, path)
        raise _damaged(path, str(error)) from error
    if not isinstance(meta, dict):
        raise _damaged(path, "it holds no settings")
    paths = meta.get("path")
    checks = {
        # a copy lies beside it, and nowhere else
        "graph": meta.get("graph", "") in (None, "node_graph.npz", "link_graph.npz"),
        "path": paths is None or (isinstance(paths, list) and all(isinstance(part, str) for part in paths)),
        "root": isinstance(meta.get("root"), str | None),
        "name": isinstance(meta.get("name"), str | None),
        "graph_fingerprint": isinstance(meta.get("graph_fingerprint"), str),
    }
    for name, good in checks.items():
        if not good:
            raise _damaged(path, f"no usable {name!r}")
    return meta


def _damaged(path: Path, problem: str) -> UsageError:
    return UsageError(
        f"{path} is damaged ({problem[:200]})\n"
        "Give the graph itself: data= or --data.path, or copy the run again"
    )


def from_source(
    source: Paths, by_name: Callable[[str], _Graph], from_files: Callable[[list[str | PathLike[str]]], _Graph]
) -> _Graph:
    """The graph of a data set, if a source is a name and no path, or of files.

    Raises:
        UsageError: if there is nothing there.
    """
    paths = [source] if isinstance(source, str | PathLike) else list(source)
    if len(paths) == 1 and not Path(paths[0]).exists():
        try:
            return by_name(str(paths[0]))
        except ValueError as error:
            raise UsageError(
                f"{paths[0]}: neither a path nor a data set that can be loaded ({error})"
            ) from error
    return from_files(paths)
