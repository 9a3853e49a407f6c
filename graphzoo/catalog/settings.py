"""Read YAML of unknown origin safely: only plain values, with limits on size and expansion."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from graphzoo.errors import UsageError
from graphzoo.system.regular_files import open_regular

# Limits that no real configuration reaches, and that keep reading fast and small.
_MOST_BYTES, _MOST_DEPTH, _MOST_VALUES = 1 << 18, 100, 100_000
# Limit on the growth of texts by expanding `${...}`: the product of the numbers of these per text.
_MOST_GROWTH = 10_000


class _Loader(yaml.SafeLoader):
    """A safe loader that limits nested brackets, because yaml takes quadratic time for them."""

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803 (the name in yaml)
        if self.flow_level >= _MOST_DEPTH:
            raise _Refused(f"nested more than {_MOST_DEPTH} deep")
        super().fetch_flow_collection_start(TokenClass)


class _Refused(Exception):
    """The reason why a file is refused."""


def read_settings(path: Path) -> Any:
    """Read the plain values in a YAML file.

    Raises:
        UsageError: if the file cannot be read, is not YAML, has Python objects, is nested too deeply, or
            expands too much by anchors or `${...}`.
    """
    try:
        with open_regular(path) as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise _Refused(f"larger than {_MOST_BYTES:,} bytes")
        loader = _Loader(data.decode("utf-8-sig"))
        node = loader.get_single_node()
        if node is None:
            return None
        size, growth = _size(node, {}, 0)
        if size > _MOST_VALUES:
            raise _Refused(f"it expands to more than {_MOST_VALUES:,} values")
        if growth > math.log(_MOST_GROWTH):
            raise _Refused("its ${...} may expand to thousands of times their length")
        return loader.construct_document(node)
    except _Refused as error:
        raise UsageError(f"{path} is refused: {error}\nNo configuration of graphzoo needs that") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise UsageError(f"{path}, line {line}: not valid YAML ({error.problem})") from error
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError) as error:
        # impossible dates, characters that YAML forbids, unhashable keys
        text = str(error).partition("\n")[0][:200]
        raise UsageError(f"{path}: not valid YAML ({text})") from error


def texts_in(value: Any) -> Iterator[str]:
    """All texts among plain values, also inside lists and dictionaries."""
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_in(item)


def _size(node: yaml.Node, known: dict[int, tuple[int, float] | None], depth: int) -> tuple[int, float]:
    """The number of values of a node, counting aliases each time, and the logarithm of their growth."""
    if depth > _MOST_DEPTH:
        raise _Refused(f"nested more than {_MOST_DEPTH} deep")
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise _Refused("an anchor contains itself")
        return size
    known[id(node)] = None
    children: list[yaml.Node] = []
    growth = 0.0
    if isinstance(node, yaml.MappingNode):
        children = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = list(node.value)
    elif isinstance(node, yaml.ScalarNode):
        growth = math.log(max(1, node.value.count("${")))
    sizes = [_size(child, known, depth + 1) for child in children]
    known[id(node)] = total = 1 + sum(size for size, _ in sizes), growth + sum(more for _, more in sizes)
    return total


def word_of(value: Any) -> str:
    """A plain value as it is written on a command line and in YAML.

    >>> word_of(None), word_of(True), word_of(0.5), word_of([1, 2])
    ('null', 'true', '0.5', '[1, 2]')
    """
    return value if isinstance(value, str) else json.dumps(value)


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to names such as `model.encoder.num_layers`, without `init_args`.

    >>> flatten({"model": {"init_args": {"lr": 0.1}}})
    {'model.lr': 0.1}
    """
    if not isinstance(config, dict):
        return {prefix: config}
    flat: dict[str, Any] = {}
    for name, value in config.items():
        inner = prefix if name == "init_args" else f"{prefix}.{name}" if prefix else str(name)
        flat |= flatten(value, inner) if isinstance(value, dict) and value else {inner: value}
    return flat


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Options as words of a command line.

    >>> words_of({"model.lr": 0.1, "data.path": None})
    ['--model.lr=0.1', '--data.path=null']
    """
    return [f"--{name}={word_of(value)}" for name, value in options.items()]


class _WordLoader(yaml.SafeLoader):
    """A safe loader that takes no text for a date, as the parser of `fit`."""

    yaml_implicit_resolvers = {
        first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def value_of_word(word: str) -> Any:
    """The value of a word of a command line, read as YAML; the word itself if it is not valid YAML.

    >>> value_of_word("0.5"), value_of_word("[1, 2]"), value_of_word("[my] data"), value_of_word("2024-01-15")
    (0.5, [1, 2], '[my] data', '2024-01-15')
    """
    try:
        return yaml.load(word, _WordLoader)
    except (yaml.YAMLError, ValueError):
        return word


def merge(old: Any, new: Any) -> Any:
    """Merge two nested settings; the values of `new` win.

    >>> merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return old | {key: merge(old.get(key), value) for key, value in new.items()}
