"""Reading YAML that may come from anybody: plain values only, and none that grows without end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from graphzoo.errors import UsageError

__all__ = ["read_settings"]

# Far above any configuration of ours, far below what takes seconds or fills the memory.
_MOST_BYTES, _MOST_DEPTH, _MOST_VALUES = 1 << 20, 100, 100_000


def read_settings(path: Path) -> Any:
    """The plain values in a YAML file.

    Args:
        path: The file.

    Raises:
        UsageError: for a file that cannot be read, is no YAML, asks for Python objects, is nested too deeply,
            or whose anchors stand for more values than any configuration has.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise _refused(path, f"larger than {_MOST_BYTES:,} bytes")
        text = data.decode("utf-8-sig")
        # yaml takes quadratic time over brackets that are open, and recursion over what is nested.
        if _open_brackets(text) > _MOST_DEPTH:
            raise _refused(path, f"nested more than {_MOST_DEPTH} deep")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None and _size(node, path, {}, 0) > _MOST_VALUES:
            raise _refused(path, f"its anchors stand for more than {_MOST_VALUES:,} values")
        return yaml.safe_load(text)
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise UsageError(f"{path}, line {line}: no valid YAML ({error.problem})") from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError) as error:
        # dates that are none, characters that YAML forbids, keys that cannot be one
        text = str(error).partition("\n")[0][:200]
        raise UsageError(f"{path}: no valid YAML ({text})") from error


def _open_brackets(text: str) -> int:
    depth = most = 0
    for character in text:
        if character in "[{":
            depth += 1
            most = max(most, depth)
        elif character in "]}":
            depth -= 1
    return most


def _size(node: yaml.Node, path: Path, known: dict[int, int | None], depth: int) -> int:
    """How many values a node stands for, those behind aliases counted each time."""
    if depth > _MOST_DEPTH:
        raise _refused(path, f"nested more than {_MOST_DEPTH} deep")
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise _refused(path, "an anchor holds itself")
        return size
    known[id(node)] = None
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        children = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = list(node.value)
    size = 1 + sum(_size(child, path, known, depth + 1) for child in children)
    known[id(node)] = size
    return size


def _refused(path: Path, problem: str) -> UsageError:
    return UsageError(f"{path} is refused: {problem}\nNo configuration of graphzoo is like that")
