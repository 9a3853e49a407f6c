"""Fuzzing of the readers: good files of every kind, ways to damage them, and the allowed outcomes."""

from __future__ import annotations

import gzip
import io
import re
import resource
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
import yaml
from hypothesis import strategies as st

from benchmarks.time_limit import OutOfTime, time_limit
from graphzoo.errors import UsageError

LINES = 6
SECONDS = 20

_TRIPLES = b"anna\tknows\tbob\nbob\tknows\tcara\ncara\tlikes\tanna\nanna\tlikes\tcara\n"
_TRIPLES_CSV = b'head,relation,tail\nanna,knows,bob\n"bob, jr",knows,cara\ncara,likes,"an""na"\n'
_NODES = b"node,label,split,height,width\na,x,train,0.5,1\nb,y,valid,1e-3,2\nc,x,test,-4,3\nd,y,train,0,4\n"
_EDGES = b"source,target,weight\na,b,1\nb,c,2\nc,d,3\n"
_RING = [(i, (i + step) % 30) for i in range(30) for step in (1, 2, 3)]
_LINKS = b"# from\tto\n" + b"".join(b"%d\t%d\n" % pair for pair in _RING)
_LINKS_CSV = b"".join(b"n%d,n%d\n" % (i, (i * 7 + 1) % 25) for i in range(25))
_QUERIES = b"head\trelation\ttail\nanna\tknows\t?\n?\tlikes\tcara\nbob\tknows\t\n"
_NAMES = b"anna\nbob\n\ncara\n"
_CONFIG = b"""\
# graphzoo 0.1.0
seed_everything: 0
trainer: {max_epochs: 3, precision: null, callbacks: null}
model:
  class_path: graphzoo.tasks.KGCompletion
  init_args:
    lr: 0.005
    encoder: {class_path: graphzoo.encoders.KnowFormer, init_args: {num_layers: 1}}
data: {class_path: graphzoo.datamodules.KGDataModule, init_args: {name: umls, batch_size: 8}}
"""
_PRESET = b"# title: mine\n# task: kg-completion\n# models: knowformer\nmodel:\n  init_args: {lr: 0.1}\n"


def _npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _torch(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def _written(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder) / "file.npz")
        return (Path(folder) / "file.npz").read_bytes()


@cache
def _node_arrays() -> dict[str, np.ndarray]:
    y = np.arange(12) % 2
    ends = np.stack([np.arange(12), (np.arange(12) + 2) % 12])
    place = np.arange(12) % 3
    masks = {f"{part}_mask": place == number for number, part in enumerate(("train", "val", "test"))}
    x = np.linspace(0, 1, 36, dtype=np.float32).reshape(12, 3)
    return {"x": x, "edge_index": ends, "y": y, **masks}


def _kg_npz() -> bytes:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that the splits have the same triples
        for split in ("train", "valid", "test"):
            (Path(folder) / f"{split}.txt").write_bytes(_TRIPLES)
        return _written(_load("from_files", folder)[0].save)


def _load(name: str, *arguments: object, **options: object):
    import graphzoo.datasets as datasets

    return getattr(datasets, name)(*arguments, **options)


def _checkpoint() -> bytes:
    described = {
        "format": 1,
        "task": "graphzoo.tasks.KGCompletion",
        "encoder": {"class_path": "graphzoo.encoders.KnowFormer", "init_args": {"num_layers": 1}},
        "spec": {"num_nodes": 3, "num_relations": 2},
        "relations": ["knows", "likes"],
    }
    weights = {"encoder.weight": torch.arange(6.0), "decoder.bias": torch.zeros(2)}
    return _torch({"state_dict": weights, "graphzoo": described, "hyper_parameters": {"lr": 0.1}, "epoch": 1})


def _pickle() -> bytes:
    import pickle

    return pickle.dumps({"x": np.arange(6.0), "names": ["a", "b"]}, protocol=4)


# Readers take the path of a damaged file and write the files that they need beside it.


def _read_triples(path: Path) -> object:
    from graphzoo.datasets import read_triples

    return read_triples(path)


def _read_own_triples(path: Path) -> object:
    for split in ("valid", "test"):
        (path.parent / f"{split}.txt").write_bytes(_TRIPLES)
    return _load("from_files", path.parent)


def _read_labels(path: Path) -> object:
    (path.parent / "train.txt").write_bytes(_TRIPLES)
    (path.parent / "valid.txt").write_bytes(_TRIPLES)
    (path.parent / "test.txt").write_bytes(_TRIPLES)
    return _load("from_files", path.parent)


def _read_nodes(path: Path) -> object:
    for name, content in (("nodes.csv", _NODES), ("edges.csv", _EDGES)):
        if path.name != name:
            (path.parent / name).write_bytes(content)
    return _load("node_graph_from_files", path.parent, require_labels=False)


def _read_node_file(path: Path) -> object:
    return _load("node_graph_from_files", path)


def _read_links(path: Path) -> object:
    return _load("link_graph_from_files", path)


def _read_link_nodes(path: Path) -> object:
    for split, links in (("train", b"a\tb\nb\tc\n"), ("valid", b"a\td\n"), ("test", b"c\td\n")):
        (path.parent / f"{split}.txt").write_bytes(links)
    return _load("link_graph_from_files", path.parent)


@cache
def _vocabularies() -> tuple[object, object]:
    from graphzoo.inference.names import Vocabulary

    return Vocabulary("entity", ["anna", "bob", "cara"]), Vocabulary("relation", ["knows", "likes"])


def _read_queries(path: Path) -> object:
    from graphzoo.inference.queries import encode_queries, read_queries

    return encode_queries(read_queries(path), *_vocabularies())


def _read_names(path: Path) -> object:
    from graphzoo.inference.queries import read_names

    return read_names(path)


def _read_pairs(path: Path) -> object:
    from graphzoo.datasets.link.named_pairs import read_pairs

    return read_pairs(path)


def _read_checkpoint(path: Path) -> object:
    from graphzoo.inference.checkpoint import read_checkpoint

    return read_checkpoint(path)


def _read_stored(kind: str) -> Callable[[Path], object]:
    def read(path: Path) -> object:
        import graphzoo.datasets as datasets

        return getattr(datasets, kind).load(path)

    return read


def _read_pickle(path: Path) -> object:
    from graphzoo.datasets.node.unpickle import read_pickle

    return read_pickle(path)


def _read_torch_file(path: Path) -> object:
    from graphzoo.datasets.node.unpickle import read_torch_file

    return read_torch_file(path)


def _read_config(path: Path) -> object:
    from graphzoo.catalog.settings import read_settings
    from graphzoo.training.trust import plain_settings

    kept, _ = plain_settings(read_settings(path), str(path), fit=True)
    return yaml.safe_dump(kept)


def _read_preset(path: Path) -> object:
    from graphzoo.catalog.presets import read_header

    return read_header(path)


# Reader: its function, and a good file for each file name.
READERS: dict[str, tuple[Callable[[Path], object], dict[str, Callable[[], bytes]]]] = {
    "triples": (
        _read_triples,
        {
            "t.txt": lambda: _TRIPLES,
            "t.csv": lambda: _TRIPLES_CSV,
            "t.tsv.gz": lambda: gzip.compress(_TRIPLES, mtime=0),
        },
    ),
    "own triples": (_read_own_triples, {"train.txt": lambda: _TRIPLES, "train.csv": lambda: _TRIPLES_CSV}),
    "labels": (_read_labels, {"entity2text.txt": lambda: b"anna\tthe first\nbob\tthe second\n"}),
    "node tables": (_read_nodes, {"nodes.csv": lambda: _NODES, "edges.csv": lambda: _EDGES}),
    "node files": (
        _read_node_file,
        {
            "graph.npz": lambda: _npz(**_node_arrays()),
            "graph.pt": lambda: _torch({k: torch.from_numpy(v) for k, v in _node_arrays().items()}),
        },
    ),
    "links": (
        _read_links,
        {
            "links.txt": lambda: _LINKS,
            "links.csv": lambda: _LINKS_CSV,
            "links.txt.gz": lambda: gzip.compress(_LINKS, mtime=0),
        },
    ),
    "link nodes": (_read_link_nodes, {"nodes.csv": lambda: _NODES}),
    "queries": (
        _read_queries,
        {"q.tsv": lambda: _QUERIES, "q.csv": lambda: _QUERIES.replace(b"\t", b",")},
    ),
    "names": (_read_names, {"names.txt": lambda: _NAMES}),
    "pairs": (_read_pairs, {"pairs.tsv": lambda: _LINKS, "pairs.csv": lambda: _LINKS_CSV}),
    "checkpoints": (_read_checkpoint, {"best.ckpt": _checkpoint}),
    "stored triples": (_read_stored("KnowledgeGraph"), {"knowledge_graph.npz": _kg_npz}),
    "stored nodes": (
        _read_stored("NodeGraph"),
        {"node_graph.npz": lambda: _written(_stored_nodes().save)},
    ),
    "stored links": (
        _read_stored("LinkGraph"),
        {"link_graph.npz": lambda: _written(_stored_links().save)},
    ),
    "pickles": (_read_pickle, {"ind.x": _pickle}),
    "old torch files": (_read_torch_file, {"train.pt": lambda: _torch({"edge": np.arange(6).reshape(3, 2)})}),
    "run configurations": (_read_config, {"config.yaml": lambda: _CONFIG}),
    "presets": (_read_preset, {"mine.yaml": lambda: _PRESET}),
}


def _stored_nodes():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.npz"
        np.savez(path, **_node_arrays())
        return _load("node_graph_from_files", path)


def _stored_links():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "links.txt"
        path.write_bytes(_LINKS)
        return _load("link_graph_from_files", path)


@cache
def good(reader: str, name: str) -> bytes:
    """The content of the good file with that name."""
    return READERS[reader][1][name]()


TOKENS = [
    b"\0",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\r",
    b"\n\n\n",
    b"\t",
    b",",
    b'"',
    b"'",
    b"?",
    b"#",
    b"%",
    b"; ",
    b" ",
    b"nan",
    b"inf",
    b"-1",
    b"1e400",
    b"9" * 25,
    b"9" * 5000,
    b"-0",
    b"0x10",
    b"1_000",
    b"\xff",
    b"\xe9",
    b"\xff\xfe",
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\xe2\x80\xa8",
    b"\xed\xa0\x80",
    b"\xf0\x9f\xa6\x86",
    b"\xc2\x85",
    b"\x0b\x0c\x1c",
    b"x" * 100_000,
    b"label",
    b"source,target",
    b"head\trelation\ttail",
    b"${oc.env:HOME}",
    b"!!python/object/apply:os.system ['true']",
    b"&a [*a]",
    b": ",
    b"- ",
    b"{",
    b"[" * 3000,
    b"2024-13-45",
    b"cposix\nsystem\n(S'true'\ntR.",
]
_HUGE = [b"0", b"-1", b"2147483648", b"9223372036854775808", b"1e999", b"9" * 12]
_NUMBER = re.compile(rb"\d+")


@st.composite
def spoiled(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A damaged copy of a good file, or random bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        data = _spoil(draw, data, seeds)
    return data


def _spoil(draw: st.DrawFn, data: bytes, seeds: list[bytes]) -> bytes:
    kinds = ["flip", "cut", "drop", "repeat", "splice", "token", "number", "whole", "line"]
    if data[:2] == b"PK" and draw(st.booleans()):
        return _spoil_member(draw, data, seeds)
    kind = draw(st.sampled_from(kinds))
    start = draw(st.integers(0, len(data)))
    end = min(len(data), start + draw(st.integers(0, 40)))
    if kind == "flip" and start < len(data):
        return data[:start] + bytes([data[start] ^ (1 << draw(st.integers(0, 7)))]) + data[start + 1 :]
    if kind == "cut":
        return data[:start]
    if kind == "drop":
        return data[:start] + data[end:]
    if kind == "repeat":
        return data[:end] + data[start:end] * draw(st.integers(1, 3)) + data[end:]
    if kind == "splice":
        other = draw(st.sampled_from(seeds))
        place = draw(st.integers(0, len(other)))
        return data[:start] + other[place : place + 60] + data[end:]
    if kind == "token":
        return data[:start] + draw(st.sampled_from(TOKENS)) + data[end if draw(st.booleans()) else start :]
    if kind == "number" and (found := list(_NUMBER.finditer(data))):
        place = draw(st.sampled_from(found))
        huge = draw(st.sampled_from(_HUGE))
        return data[: place.start()] + huge + data[place.end() :]
    if kind == "line" and b"\n" in data:
        lines = data.split(b"\n")
        number = draw(st.integers(0, len(lines) - 1))
        lines.insert(draw(st.integers(0, len(lines))), lines[number])
        return b"\n".join(lines)
    if kind == "whole":
        return draw(
            st.sampled_from(
                [
                    data.replace(b"\n", b"\r\n"),
                    data.replace(b"\n", b"\r"),
                    b"\xef\xbb\xbf" + data,
                    data.decode("latin-1").encode("utf-16"),
                    gzip.compress(data, mtime=0),
                    data * 2,
                    data.replace(b"\t", b","),
                    data.replace(b",", b"\t"),
                    data.swapcase(),
                ]
            )
        )
    return data


def _spoil_member(draw: st.DrawFn, data: bytes, seeds: list[bytes]) -> bytes:
    """Damage inside an archive, with correct checksums."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
    except Exception:  # the archive is damaged already
        return data
    if not members:
        return data
    name = draw(st.sampled_from(sorted(members)))
    way = draw(st.sampled_from(["spoil", "spoil", "drop", "rename", "swap", "packed"]))
    if way == "spoil":
        inner = members[name]
        members[name] = _spoil(draw, inner, [inner, *seeds])
    elif way == "drop":
        del members[name]
    elif way == "rename":
        other = draw(st.sampled_from(["../up", "meta.npy", "x.npy", name + "x", "/etc/x"]))
        members[other] = members.pop(name)
    elif way == "swap":
        members[name] = members[draw(st.sampled_from(sorted(members)))]
    buffer = io.BytesIO()
    packed = zipfile.ZIP_DEFLATED if way == "packed" else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", packed) as archive:
        for member, content in members.items():
            # ZipInfo without a time: the same draw must give the same file
            archive.writestr(zipfile.ZipInfo(member), content, packed)
    return buffer.getvalue()


def bound_memory(more: int) -> None:
    """Limit this process to `more` bytes beyond what it uses."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def check(reader: str, name: str, data: bytes, folder: Path, *, seconds: float = SECONDS) -> str:
    """Read a file and return "read" or "refused".

    Args:
        reader: Key of `READERS`.
        name: A file name of the reader.
        data: Its content.
        folder: An empty folder.
        seconds: Time limit.

    Raises:
        Exception: for any other outcome; a refusal has at most six lines and names the file.
    """
    path = folder / name
    path.write_bytes(data)
    try:
        with time_limit(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            READERS[reader][0](path)
    except UsageError as error:
        text = str(error)
        lines = text.splitlines()
        assert len(lines) <= LINES, f"a message of {len(lines)} lines: {text!r}"
        assert len(text) <= 2000, f"a message of {len(text)} characters: {text[:200]!r}"
        assert folder.name in text, f"the file is not named: {text!r}"
        return "refused"
    except OutOfTime as error:
        raise AssertionError(str(error)) from None
    return "read"
