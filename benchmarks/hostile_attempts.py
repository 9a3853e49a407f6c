"""The attempts of `benchmarks.hostile_campaign`: hostile files, and a command or call that reads them.

Every kind is a function of a random generator and the folder of good files. It writes files into the current
folder, which is empty, and returns a command, or a call of the library.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pwd
import random
import shutil
import signal
import socket
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

__all__ = ["KINDS", "MARKS", "Attempt", "make_bases"]

# Control a terminal, reverse the direction of text, end a C string.
MARKS = ("\x1b]0;owned\x07", "\x1b[2J", "\x9b2J", "\u202e", "\u2066", "\x00")
NAMES = [
    *(f"a{mark}b" for mark in MARKS),
    "",
    " ",
    "a b",
    "?",
    "=1+2",
    "@SUM(A1)",
    "[bold]x[/]",
    "<script>",
    "$x^$",
    "../../victim",
    "C:\\run\\con",
    "nul",
    "\ufeffa1",
    "a1\u200b",
    "a" * 5000,
    "\ud800",
    "e\u0301",
    "A1",
    "é" * 300,
]
NUMBERS = [
    "0",
    "-1",
    "1",
    "7",
    "1e400",
    "9" * 5000,
    "nan",
    "inf",
    "-inf",
    "1e-320",
    "2147483648",
    "0x10",
    "1_0",
]
PATHS = [
    "victim",
    "../victim",
    "../victim/letters.txt",
    "/dev/full",
    "/dev/null",
    "/proc/self/mem",
    "x/" * 300 + "y",
    "y" * 300,
    "C:\\data\\run",
    "..\\victim",
    "con",
    "aux.csv",
    "a:b",
    "~",
    "$HOME",
    "-",
    "--",
    "\x1b[2J",
    "\udc80",
    "https://example.org/x",
    "s3://bucket/x",
    "file:///etc/passwd",
    ".",
    "/",
    "out/..",
    "out/\x00",
]
KG_FIT = ["fit", "--model", "knowformer", "--data", "kg", "--data.path", "data", "--trainer.max_epochs=1"]
KG_FIT += ["--model.encoder.num_layers=1", "--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu"]
NODE_FIT = [
    "fit",
    "--model",
    "nodeformer",
    "--data",
    "nodes",
    "--data.path",
    "data",
    "--trainer.max_epochs=1",
]
NODE_FIT += ["--model.encoder.hidden_channels=8", "--trainer.accelerator=cpu"]
FIT = {"kg": KG_FIT, "nodes": NODE_FIT}
SMALL = ["--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--model.encoder.hidden_channels=8"]
SEARCH = ["search", "knowformer", "kg", "--data.path", "data", *SMALL, "--trials", "1", "--out", "out"]
REPRODUCE = [
    "reproduce",
    "knowformer",
    "kg",
    "--data.path",
    "data",
    *SMALL,
    "--in-process",
    "--seeds",
    "0",
    "--out",
    "out",
]


@dataclass
class Attempt:
    """A command or call, after the files are written.

    Attributes:
        todo: Words of the command line, or a function.
        writes: Paths below the current folder that may change.
        memory: Whether running out of memory is allowed, because the command may ask for too much.
        around: Functions that are called first and change streams, users, the clock and the like.
    """

    todo: list[str] | Callable[[], object]
    writes: tuple[str, ...] = ()
    memory: bool = False
    around: list[Callable[[], object]] = field(default_factory=list)


Kind = Callable[[random.Random, Path], Attempt]


# ---- good files ----------------------------------------------------------------------------------------


def write_data(kind: str, folder: Path) -> None:
    """Write small good data of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    if kind == "kg":
        parents = [f"{a}{i}\tparent\t{b}{i}\n" for i in range(8) for a, b in ("ab", "bc")]
        asked = [f"a{i}\tgrandparent\tc{i}\n" for i in range(8)]
        for name, lines in (("train", parents + asked[:4]), ("valid", asked[4:6]), ("test", asked[6:])):
            (folder / f"{name}.txt").write_text("".join(lines))
    elif kind == "nodes":
        rows = [
            f"n{i},{'ab'[i % 2]},{('train', 'valid', 'test')[i % 3]},{draw.random():.3f},{i % 5}\n"
            for i in range(12)
        ]
        (folder / "nodes.csv").write_text("node,label,split,x,y\n" + "".join(rows))
        edges = [f"n{i},n{(i + step) % 12}\n" for i in range(12) for step in (1, 2)]
        (folder / "edges.csv").write_text("source,target\n" + "".join(edges))
    else:
        edges = [f"n{i},n{(i + step) % 24}\n" for i in range(24) for step in (1, 2)]
        draw.shuffle(edges)
        splits = {"valid": edges[:6], "test": edges[6:12], "train": edges[12:]}
        splits |= {"valid_neg": ["n0,n9\n", "n1,n12\n"], "test_neg": ["n2,n9\n", "n3,n15\n"]}
        for name, lines in splits.items():
            (folder / f"{name}.csv").write_text("".join(lines))
        rows = [f"n{i},{i % 3},{i / 24:.3f}\n" for i in range(24)]
        (folder / "nodes.csv").write_text("node,f0,f1\n" + "".join(rows))


def make_bases(base: Path) -> None:
    """Train the small runs whose copies the attempts damage; the current folder must be `base`."""
    from graphzoo.cli import main

    for kind in ("kg", "nodes", "links"):
        write_data(kind, base / kind / "data")
    for kind, words in FIT.items():
        with contextlib.chdir(base / kind):
            if status := main([*words, "--quiet", "--run_dir", "run"]):
                raise RuntimeError(f"the good run of {kind} ended with status {status}")
    Path("queries.tsv").write_text("a1\tgrandparent\t?\n?\tparent\tb2\n")


# ---- ways to damage ------------------------------------------------------------------------------------


def spoil_bytes(draw: random.Random, content: bytes) -> bytes:
    """Change bytes at one to three positions."""
    data = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 3])):
        place = draw.randrange(len(data) + 1)
        match draw.randrange(8):
            case 0 if data:
                data[place % len(data)] ^= 1 << draw.randrange(8)
            case 1:
                del data[place:]
            case 2:
                del data[place : place + draw.choice([1, 10, 1000])]
            case 3:
                data[place:place] = draw.randbytes(draw.choice([1, 4, 100]))
            case 4:
                data[place:place] = data[: draw.choice([10, 1000])]
            case 5:
                data[place : place + 4] = draw.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4)])
            case 6:
                other = draw.randrange(len(data) + 1)
                data[place : place + 8], data[other : other + 8] = (
                    data[other : other + 8],
                    data[place : place + 8],
                )
            case 7:
                data += draw.choice([b"PK\x05\x06" + bytes(18), b"\x80\x02.", bytes(1000)])
    return bytes(data)


def spoil_text(draw: random.Random, content: bytes) -> bytes:
    """Change a text at one to three positions: bytes, encodings, quotes, names, numbers, lines."""
    for _ in range(draw.choice([1, 1, 2, 3])):
        lines = content.split(b"\n")
        at = draw.randrange(len(lines))
        cells = lines[at].replace(b"\t", b",").split(b",")
        spot = draw.randrange(len(cells))
        word = draw.choice([*NAMES, *NUMBERS]).encode("utf-8", "surrogatepass")
        separator = b"\t" if b"\t" in lines[at] else b","
        match draw.randrange(16):
            case 0:
                content = spoil_bytes(draw, content)
            case 1 | 2 | 3 | 4:
                cells[spot] = word
                lines[at] = separator.join(cells)
                content = b"\n".join(lines)
            case 5:
                cells.insert(spot, word)
                lines[at] = separator.join(cells)
                content = b"\n".join(lines)
            case 6:
                del cells[spot]
                lines[at] = separator.join(cells)
                content = b"\n".join(lines)
            case 7:
                content = b"\n".join(lines[:at] + [lines[at]] * draw.choice([2, 100]) + lines[at:])
            case 8:
                content = draw.choice([b"", b"\n", b"\n" * 1000, lines[0], b"\x00" * 100, b"\xff\xfe"])
            case 9:
                code = draw.choice(["utf-16", "utf-32", "utf-8-sig", "utf-16-le"])
                content = content.decode("latin-1").encode(code)
            case 10:
                lines[at] = b'"' + lines[at]
                content = b"\n".join(lines)
            case 11:
                lines[at] += draw.choice(
                    [b"\r", b'"', b"\\", b"#", b"\x00", b"\xc3", b"\xef\xbb\xbf", b"\x1a"]
                )
                content = b"\n".join(lines)
            case 12:
                lines[at] = ((lines[at] + separator) * draw.choice([100, 20_000]))[: 1 << 22]  # a huge line
                content = b"\n".join(lines)
            case 13:
                content = content.replace(
                    b"\n", draw.choice([b"\r", b"\r\n", b"\n\n", b"\x0b", b"\xe2\x80\xa8"])
                )
            case 14:
                draw.shuffle(lines)
                content = b"\n".join(lines)
            case 15:
                content = draw.choice(
                    [b"[" * 50_000, b'{"a":' * 9000, b"&a [*a, *a]", b"!!python/object:os.system x"]
                )
    return content


def hostile_value(draw: random.Random, *, plain: bool) -> Any:
    """An unexpected value; with `plain`, JSON and YAML can hold it."""
    deep: Any = "end"
    for _ in range(draw.choice([50, 5000])):
        deep = [deep]
    wide: Any = ["a"]
    for _ in range(60):
        wide = [wide, wide]
    many = [
        None,
        True,
        -1,
        0,
        1,
        10**8,
        10**20,
        -(10**20),
        10**400,
        float("nan"),
        float("inf"),
        1e-320,
        0.5,
        "x",
        *NAMES,
        *PATHS,
        [],
        {},
        [1],
        {"a": 1},
        [[]],
        {"class_path": "os.system", "init_args": {"command": "touch OWNED"}},
        {"class_path": "graphzoo.encoders.KnowFormer"},
        "os.system",
        "torch.load",
        list(range(1000)),
    ]
    if plain:
        return draw.choice([*many, deep])
    itself: list[Any] = []
    itself.append(itself)
    odd = [deep, wide, itself, b"x", (1, 2), {1, 2}, 1j, range(10**12), torch.float64, torch.Size([2])]
    return draw.choice(
        [*many, *odd, *odd, hostile_tensor(draw, torch.zeros(2, 3)), hostile_tensor(draw, torch.ones(4))]
    )


def hostile_tensor(draw: random.Random, like: torch.Tensor) -> object:
    """A tensor with another shape, dtype, values or memory layout, in place of `like`."""
    flat = like.reshape(-1)
    choices: list[Callable[[], object]] = [
        lambda: torch.zeros(1).expand(like.shape or (3,)),
        lambda: torch.zeros(1).expand(10**6, 10**6),
        lambda: torch.full_like(like, float("nan")) if like.is_floating_point() else like - 5,
        lambda: torch.full_like(like, float("inf")) if like.is_floating_point() else like + 10**6,
        lambda: like.to(
            draw.choice([torch.int64, torch.float64, torch.float16, torch.bool, torch.complex64, torch.int8])
        ),
        lambda: like[..., :1] if like.dim() else like[None],
        lambda: like.mT if like.dim() > 1 else flat[None],
        lambda: like.to("meta"),
        lambda: torch.empty(0),
        lambda: like.to_sparse() if like.dim() else like,
        lambda: torch.nn.Parameter(like.clone()) if like.is_floating_point() else like,
        lambda: torch.as_strided(flat.clone(), like.shape, [0] * like.dim()),
        lambda: like.numpy(),
        lambda: like.tolist(),
        lambda: flat.repeat(3)[: flat.numel()][1:],
        lambda: torch.quantize_per_tensor(like.float(), 0.1, 0, torch.qint8),
        lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        lambda: like * 1e30,
    ]
    try:
        return draw.choice(choices)()
    except (RuntimeError, TypeError, NotImplementedError):  # not possible for every tensor
        return torch.empty(0)


def places(tree: Any, most: int = 20_000) -> list[tuple[Any, Any]]:
    """All (container, key) below a value."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting and len(found) < most:
        value = waiting.pop()
        keys = (
            list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        )
        for key in keys:
            found.append((value, key))
            waiting.append(value[key])
    return found


def spoil_tree(draw: random.Random, tree: Any, *, plain: bool) -> None:
    """Change one to three places of nested dictionaries and lists."""
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        found = places(tree)
        if not found:
            return
        branch = draw.choice(list(tree)) if isinstance(tree, dict) and tree else None
        near = [pair for pair in found if pair[1] == branch] + places(
            tree.get(branch) if branch is not None else None
        )
        holder, key = draw.choice(near if near and draw.random() < 0.6 else found)
        value = holder[key]
        match draw.randrange(8):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, dict):
                new = draw.choice([*NAMES, 5, None, True]) if not plain else draw.choice(NAMES)
                holder[new] = holder.pop(key)
            case 2 if isinstance(holder, dict):
                holder[draw.choice(NAMES)] = hostile_value(draw, plain=plain)
            case 3 if isinstance(holder, list):
                holder += [value] * draw.choice([1, 1000])
            case _:
                if isinstance(value, torch.Tensor) and draw.random() < 0.8:
                    holder[key] = hostile_tensor(draw, value)
                else:
                    holder[key] = hostile_value(draw, plain=plain)


def put_odd(draw: random.Random, path: Path) -> None:
    """Replace a file by a pipe, folder, link, sparse file or socket, or remove it."""
    if any(os.path.lexists(folder) and not folder.is_dir() for folder in path.parents):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    match draw.randrange(9):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            target = draw.choice(
                ["/dev/zero", "/dev/full", "/proc/self/mem", "/dev/tty", "/proc/kmsg", "/etc/shadow"]
            )
            path.symlink_to(target)
        case 3:
            path.symlink_to(path.name)
        case 4:
            path.symlink_to(Path("../victim/letters.txt").absolute())
        case 5:
            path.symlink_to(Path("../victim").absolute())
        case 6:
            with path.open("wb") as file:
                file.truncate(20 << 30)
        case 7:
            with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)
        case 8:
            pass  # the file is removed


# ---- commands that read a run --------------------------------------------------------------------------


def ask(draw: random.Random, kind: str) -> Attempt:
    """A command or call that reads the run."""
    words = draw.choices(
        ["load", "predict", "export", "results", "plot", "test", "resume", "program"],
        [12, 5, 3, 6, 0.4, 0.3, 0.6, 0.05],
    )[0]
    if words == "load":
        return Attempt(load_run)
    if words == "predict":
        asked = ["--queries", "queries.tsv"] if kind == "kg" else []
        out = draw.choice([[], [], ["--out", "out.csv"], ["--out", "out.jsonl"]])
        return Attempt(["predict", "--ckpt_path", "run", *asked, *out], ("out.csv", "out.jsonl"))
    if words == "results":
        return Attempt(["results", "run", f"--format={draw.choice(['table', 'csv', 'markdown'])}"])
    if words == "plot":
        return Attempt(["plot", "run", "--no-model", "--out", "out.html"], ("out.html",))
    if words == "test":
        return Attempt(["test", "--ckpt_path", "run", "--run_dir", "out"], ("out",))
    if words == "resume":
        return Attempt(["fit", "--ckpt_path", "run", "--trainer.max_epochs=2"], ("run",))
    to = [] if words == "export" else ["--to", "torch.export"]
    return Attempt(["export", "run", "--out", "out", *to], ("out",))


def load_run() -> None:
    """Load the run, as in a notebook."""
    import graphzoo

    with torch.no_grad():
        graphzoo.load("run")


def read_data(kind: str) -> Callable[[], object]:
    """Read the data with a data module."""

    def read() -> None:
        import graphzoo.datamodules as modules

        name = {"kg": "KGDataModule", "nodes": "NodeDataModule", "links": "LinkDataModule"}[kind]
        module = getattr(modules, name)(path="data")
        module.prepare_data()
        module.setup("fit")

    return read


def lay_run(draw: random.Random, base: Path) -> str:
    """Copy a good run with its data and queries; return its kind."""
    kind = draw.choice(["kg", "kg", "nodes"])
    shutil.copytree(base / kind / "run", "run")
    shutil.copytree(base / kind / "data", "data")
    shutil.copy(base / "queries.tsv", "queries.tsv")
    return kind


def which_checkpoint(draw: random.Random, attempt: Attempt) -> Path:
    """The checkpoint that the attempt reads, or rarely the other one."""
    is_resume = isinstance(attempt.todo, list) and attempt.todo[:1] == ["fit"]
    name = "last" if is_resume == (draw.random() < 0.95) else "best"
    return Path(f"run/checkpoints/{name}.ckpt")


def checkpoint_values(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    attempt = ask(draw, kind)
    path = which_checkpoint(draw, attempt)
    content = torch.load(path, weights_only=False)
    spoil_tree(draw, content, plain=False)
    with contextlib.suppress(Exception):  # torch cannot save every value
        buffer = io.BytesIO()
        torch.save(content, buffer)
        path.write_bytes(buffer.getvalue())
    return attempt


class Runs:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch OWNED",)


def checkpoint_bytes(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    attempt = ask(draw, kind)
    path = which_checkpoint(draw, attempt)
    how = draw.randrange(4)
    if how == 0:
        path.write_bytes(spoil_bytes(draw, path.read_bytes()))
    elif how == 1:
        content = torch.load(path, weights_only=False)
        holder, key = draw.choice(places(content))
        holder[key] = Runs()
        torch.save(content, path, _use_new_zipfile_serialization=draw.random() < 0.7)
    else:  # with correct checksums of the archive
        with zipfile.ZipFile(path) as archive:
            parts = [(name, archive.read(name)) for name in archive.namelist()]
        at = (
            draw.randrange(len(parts))
            if draw.random() < 0.5
            else next(number for number, (name, _) in enumerate(parts) if name.endswith("data.pkl"))
        )
        name, content = parts[at]
        other = draw.randrange(len(parts))
        match draw.randrange(6):
            case 0:
                parts[at], parts[other] = (name, parts[other][1]), (parts[other][0], content)
            case 1:
                del parts[at]
            case 2:
                parts.append((draw.choice([name, *PATHS[:3], "archive/../../x"]), content))
            case _:
                parts[at] = (name, spoil_bytes(draw, content))
        with zipfile.ZipFile(path, "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
            for name, content in parts:
                archive.writestr(name.replace("\x00", ""), content)
    return attempt


def run_folder(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    attempt = ask(draw, kind)
    files = sorted(
        path for path in Path("run").rglob("*") if path.is_file() and "tensorboard" not in path.parts
    )
    texts = [path for path in files if path.suffix in (".json", ".yaml", ".csv")]
    for _ in range(draw.choice([1, 1, 2])):
        path = draw.choice(
            [
                *files,
                *texts,
                *texts,
                *(
                    Path("run") / name
                    for name in ("graph", "checkpoints", "run.lock", "evaluation", "command.json")
                ),
            ]
        )
        how = draw.randrange(3)
        if how == 0 or not path.is_file() or path.is_symlink():
            put_odd(draw, path)
        elif how == 1 and path.suffix in (".json", ".yaml"):
            with contextlib.suppress(ValueError, RecursionError, TypeError):
                spoil_structured(draw, path)
        else:
            spoil = spoil_text if path in texts else spoil_bytes
            path.write_bytes(spoil(draw, path.read_bytes()))
    return attempt


def spoil_structured(draw: random.Random, path: Path) -> None:
    """Change values in a JSON or YAML file, which stays valid."""
    text = path.read_text(encoding="utf-8")
    content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    spoil_tree(draw, content, plain=True)
    new = (
        json.dumps(content)
        if path.suffix == ".json"
        else yaml.safe_dump(content, allow_unicode=draw.random() < 0.5)
    )
    path.write_bytes(new.encode("utf-8", "surrogatepass"))


def data(kind: str) -> Kind:
    """Damaged data files of a kind, which a data module, a training or a prediction reads."""

    def attempt(draw: random.Random, base: Path) -> Attempt:
        shutil.copytree(base / kind / "data", "data")
        files = sorted(Path("data").iterdir())
        for _ in range(draw.choice([1, 1, 2])):
            path = draw.choice(files)
            if draw.random() < 0.15 or not path.is_file() or path.is_symlink():
                put_odd(draw, path)
            elif draw.random() < 0.1:
                files.append(
                    path.rename(
                        path.with_suffix(draw.choice([".tsv", ".csv", ".txt", ".CSV", ".csv.gz", ""]))
                    )
                )
            else:
                path.write_bytes(spoil_text(draw, path.read_bytes()))
        chance = draw.random()
        if chance < 0.72 or kind == "links":
            return Attempt(read_data(kind))
        if chance < 0.76:
            return Attempt([*FIT[kind], "--run_dir", "out", "--quiet"], ("out",))
        shutil.copytree(base / kind / "run", "run")
        shutil.copy(base / "queries.tsv", "queries.tsv")
        asked = ["--queries", "queries.tsv"] if kind == "kg" else []
        return Attempt(["predict", "--ckpt_path", "run", "--data.path", "data", *asked])

    return attempt


def options(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    commands: list[list[str]] = [
        [*FIT[kind], "--run_dir", "out"],
        ["test", "--ckpt_path", "run", "--run_dir", "out"],
        ["list", "models"],
        ["predict", "--ckpt_path", "run", "--queries", "queries.tsv"],
        ["export", "run", "--out", "out"],
        ["results", "run"],
        ["plot", "run", "--no-model", "--out", "out.html"],
        ["doctor"],
        ["download", "umls"],
        ["completion", "bash"],
        ["dashboard", "--project", "p", "--out", "out"],
        [*SEARCH, "--sweep", "out"],
        REPRODUCE,
        ["_complete", "3", "fit", "--model", "k"],
    ]
    names = [
        "--model.lr",
        "--model.encoder.num_layers",
        "--model.encoder.hidden_channels",
        "--data.batch_size",
        "--seed",
        "--trainer.max_epochs",
        "--trainer.devices",
        "--trainer.precision",
        "--trainer.callbacks",
        "--config",
        "--run_dir",
        "--ckpt_path",
        "--recipe",
        "--trainer",
        "--logger",
        "--model",
        "--data",
        "--data.path",
        "--out",
        "--format",
        "--queries",
        "--top-k",
        "--device",
        "--explain",
        "--candidates",
        "--batch-size",
        "--score",
        "--data.root",
        "--data.cache",
        "--trainer.default_root_dir",
        "--model.encoder",
        "--trials",
        "--to",
        "--debug",
        "--trainer.logger",
        "--trainer.strategy",
        "--data.num_workers",
        "--trainer.max_time",
        "--help",
        "-h",
        "--",
    ]
    words = list(draw.choice(commands))
    for _ in range(draw.choice([1, 1, 2, 3])):
        value = draw.choice(
            [
                *NAMES,
                *NUMBERS,
                *PATHS,
                "[1",
                "{a: [1}",
                "!!python/object:os.system x",
                "os.system",
                "[]",
                "{}",
                "null",
            ]
        )
        value = value.replace("\x00", "")  # not possible in a command line
        match draw.randrange(5):
            case 0:
                words.insert(draw.randrange(1, len(words) + 1), value)
            case 1 if len(words) > 1:
                words[draw.randrange(1, len(words))] = value
            case 2 if len(words) > 2 and words != REPRODUCE:  # without --in-process, it starts processes
                del words[draw.randrange(1, len(words))]
            case _:
                name = draw.choice(names)
                words += draw.choice([[name, value], [f"{name}={value}"]])
    if "fit" in words[:1]:
        words += ["--trainer.max_steps=1"]
    # folders in the command line may be written
    return Attempt(
        words,
        tuple(word.partition("=")[2] or word for word in words)
        + ("out", "runs", "out.html", "report.html", "search"),
        memory=True,
    )


def configuration(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    path = Path("run/config.yaml").rename("mine.yaml")
    shutil.rmtree("run")
    if draw.random() < 0.5:
        with contextlib.suppress(ValueError, RecursionError, TypeError, yaml.YAMLError):
            spoil_structured(draw, path)
    elif draw.random() < 0.15:
        put_odd(draw, path)
    else:
        path.write_bytes(spoil_text(draw, path.read_bytes()))
    if draw.random() < 0.6:
        return Attempt(["fit", "--config", "mine.yaml", "--print_config"])
    if draw.random() < 0.5:
        return Attempt([*FIT[kind], "--config", "mine.yaml", "--run_dir", "out"], ("out",), memory=True)
    return Attempt(
        ["fit", "--config", "mine.yaml", "--data.path", "data", "--run_dir", "out"], ("out",), memory=True
    )


def queries(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    name = draw.choice(["queries.tsv", "queries.csv", "queries.txt", "queries.tsv.gz"])
    path = Path(name)
    path.write_bytes(Path("queries.tsv").read_bytes() if kind == "kg" else b"n1\nn2\n")
    if draw.random() < 0.15:
        put_odd(draw, path)
    else:
        path.write_bytes(spoil_text(draw, path.read_bytes()))
    asked = draw.choice(["--queries", "--queries", "--score", "--candidates"]) if kind == "kg" else "--nodes"
    words = ["predict", "--ckpt_path", "run", asked, name]
    if asked == "--candidates":
        words += ["--queries", "queries.tsv"]
    out = draw.choice(
        ["", "", "out.csv", "out.parquet", "out.jsonl", "out.tsv", name, "odd.csv", *PATHS]
    ).replace("\x00", "")
    if out == "odd.csv":
        put_odd(draw, Path(out))
    words += ["--out", out] if out else []
    words += draw.choice([[], [], ["--overwrite"], ["--spreadsheet"], ["--explain"], ["--top-k", "1000000"]])
    # the given --out may be written, but not the queries
    typed = (out,) if out and out != name else ()
    return Attempt(words, ("out", *typed))


def streams(draw: random.Random, base: Path) -> Attempt:
    kind = lay_run(draw, base)
    attempt = draw.choice(
        [
            ask(draw, kind),
            Attempt(["list", "data"]),
            Attempt(["results", "run"]),
            Attempt(["doctor"]),
            Attempt(["--help"]),
            Attempt(
                ["predict", "--ckpt_path", "run", *(["--queries", "queries.tsv"] if kind == "kg" else [])]
            ),
        ]
    )
    if callable(attempt.todo):
        attempt = Attempt(["list", "models"])

    def spoil() -> None:
        for descriptor in draw.choice([(1,), (2,), (1, 2), (0, 1), (0, 1, 2)]):
            how = draw.randrange(3)
            if how == 0:
                os.close(descriptor)
            elif how == 1:
                full = os.open("/dev/full", os.O_WRONLY)
                os.dup2(full, descriptor)
                os.close(full)
            else:
                reader, writer = os.pipe()
                os.close(reader)
                os.dup2(writer, descriptor)
                os.close(writer)

    attempt.around.append(spoil)
    return attempt


def names(draw: random.Random, base: Path) -> Attempt:
    """A run with hostile names of entities, nodes, the model or the run folder."""
    import numpy as np

    kind = lay_run(draw, base)
    bad = draw.choice([name for name in NAMES if name and "\ud800" not in name])
    if draw.random() < 0.5:
        path = Path("run/graph/knowledge_graph.npz" if kind == "kg" else "run/graph/node_graph.npz")
        arrays = dict(np.load(path, allow_pickle=False))
        for name, value in arrays.items():
            if value.dtype.kind in "US" and value.size:
                changed = value.astype(f"<U{len(bad) + 20}").reshape(-1)
                changed[draw.randrange(changed.size)] = bad
                arrays[name] = changed.reshape(value.shape)
            elif value.dtype == np.uint8 and value.ndim == 1 and value.size > 1:
                old = draw.choice([b"a1", b"b2", b"n1", b"n2"])
                new = bytes(value).replace(old, draw.choice(MARKS[:2]).encode()[: len(old)])
                arrays[name] = np.frombuffer(new, dtype=np.uint8)
        np.savez(path, **arrays)
    else:
        path = Path("run/results.json")
        content = json.loads(path.read_text())
        for key in draw.sample(["model", "data", "recipe", "changed", "checkpoint", "selection"], 2):
            content[key] = bad
        content["metrics"][f"test/{bad}"] = 0.5
        path.write_text(json.dumps(content))
    attempt = ask(draw, kind)
    while callable(attempt.todo):
        attempt = ask(draw, kind)
    if draw.random() < 0.3:
        folder = (
            bad.replace("/", "_")
            .replace("\x00", "")[:100]
            .encode("utf-8", "surrogatepass")
            .decode("utf-8", "surrogateescape")
        )
        if folder not in ("", ".", "..", "queries.tsv", "data"):
            Path("run").rename(folder)
            attempt.todo = [folder if word == "run" else word for word in attempt.todo]
            attempt.writes = tuple(folder if word == "run" else word for word in attempt.writes)
    return attempt


def surroundings(draw: random.Random, base: Path) -> Attempt:
    """A good command in a bad environment: users, HOME, clock, links, locks, disk, file handles, folders."""
    kind = lay_run(draw, base)
    attempt = draw.choice(
        [
            ask(draw, kind),
            ask(draw, kind),
            Attempt([*FIT[kind], "--run_dir", "out", "--quiet"], ("out",)),
            Attempt(["doctor"]),
            Attempt(["list", "data"]),
            Attempt(["download", "umls"]),
        ]
    )
    attempt.writes += ("home", ".cache")

    def refused(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    def nobody() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    def backwards() -> None:
        real = time.time
        began = real()
        time.time = lambda: began - (real() - began) * 3600

    def limit(which: int, value: int) -> Callable[[], object]:
        import resource

        return lambda: resource.setrlimit(which, (value, resource.getrlimit(which)[1]))

    import resource

    def no_locks() -> None:
        fcntl.flock = fcntl.lockf = fcntl.fcntl = refused

    def gone() -> None:
        Path("gone").mkdir()
        os.chdir("gone")
        os.rmdir("../gone")

    def file_size() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit(resource.RLIMIT_FSIZE, draw.choice([0, 1, 1000, 20_000]))()

    def send(number: int) -> Callable[[], object]:
        def soon() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            own, pause = os.getpid(), draw.uniform(0, 3)
            if not os.fork():
                time.sleep(pause)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(own, number)
                    time.sleep(0.5)
                    os.kill(own, signal.SIGCONT)
                os._exit(0)

        return soon

    choices: list[list[Callable[[], object]]] = [
        [lambda: os.environ.pop("HOME", None), lambda: os.environ.pop("XDG_CACHE_HOME", None)],
        [lambda: os.environ.update(HOME="/proc"), lambda: os.environ.pop("XDG_CACHE_HOME", None)],
        [lambda: os.environ.update(XDG_CACHE_HOME="/dev/full/x")],
        [lambda: os.environ.update(XDG_CACHE_HOME="relative\x1b[2J")],
        [lambda: os.environ.update(TMPDIR="/nowhere")],
        [nobody],
        [nobody, lambda: os.environ.update(HOME=pwd.getpwuid(0).pw_dir)],
        [lambda: shutil.chown("run", 65534), nobody],
        [backwards],
        [lambda: setattr(os, "link", refused)],
        [lambda: setattr(os, "symlink", refused)],
        [no_locks],
        [no_locks, lambda: setattr(os, "link", refused)],
        [limit(resource.RLIMIT_NOFILE, draw.choice([8, 16, 40]))],
        [file_size],
        [file_size],
        [gone],
        [lambda: os.umask(0o777)],
        [lambda: os.chmod(".", 0o555), nobody],
        [lambda: os.environ.update(COLUMNS="1", LINES="1")],
        [lambda: os.environ.update(COLUMNS="x")],
        [lambda: os.environ.update(GRAPHZOO_DATA="\udc80")],
        [lambda: os.environ.update(GRAPHZOO_DATA="/dev/zero")],
        [send(signal.SIGHUP)],
        [send(signal.SIGSTOP)],
        [send(signal.SIGTERM)],
        [send(signal.SIGINT)],
    ]
    attempt.around += draw.choice(choices)
    return attempt


def other_commands(draw: random.Random, base: Path) -> Attempt:
    """Damaged rows and search spaces for `results`, `plot`, `search`, `reproduce` and `dashboard`."""
    lay_run(draw, base)
    result = Path("run/results.json").read_bytes()
    space = b"model.lr: [0.001, 0.01]\nmodel.encoder.num_layers: {min: 1, max: 3}\n"
    Path("space.yaml").write_bytes(spoil_text(draw, space) if draw.random() < 0.8 else space)
    folder = Path("rows")
    folder.mkdir()
    for number in range(3):
        place = folder / f"run{number}"
        place.mkdir()
        (place / "results.json").write_bytes(spoil_text(draw, result) if number else result)
        shutil.copy("run/config.yaml", place)
    row = {
        "model": "knowformer",
        "data": "kg",
        "recipe": "knowformer/kg",
        "seeds": [0, 1],
        "metrics": {"test/mrr": {"mean": 0.5, "std": 0.1, "paper": None, "values": [0.5]}},
    }
    spoil_tree(draw, row, plain=True)
    with contextlib.suppress(RecursionError, ValueError):
        (folder / "row.json").write_bytes(json.dumps(row).encode("utf-8", "surrogatepass"))
    if draw.random() < 0.2:
        put_odd(draw, folder / draw.choice(["row.json", "run1/results.json", "run2", "run1/config.yaml"]))
    words = draw.choices(
        [
            ["results", "rows", f"--format={draw.choice(['table', 'csv', 'markdown'])}"],
            ["results", "rows", "--commands"],
            ["plot", "rows", "--no-model", "--out", "out.html"],
            [*SEARCH, "--space", "space.yaml", "--sweep", "out.yaml"],
            [*SEARCH, "--space", "space.yaml"],
            [*REPRODUCE[:-1], "rows/run1"],
            [*REPRODUCE, "--ablation", "space.yaml"],
            [
                "dashboard",
                "--project",
                draw.choice(NAMES).replace("\x00", ""),
                "--out",
                draw.choice(["out", "rows", "space.yaml/x"]),
            ],
        ],
        [5, 3, 2, 3, 0.5, 1, 0.5, 1],
    )[0]
    return Attempt(words, ("out", "out.html", "out.yaml", "rows/run1"))


KINDS: dict[str, tuple[Kind, float]] = {
    "values of a checkpoint": (checkpoint_values, 18),
    "bytes of a checkpoint": (checkpoint_bytes, 12),
    "files of a run": (run_folder, 14),
    "facts": (data("kg"), 11),
    "tables of nodes and edges": (data("nodes"), 9),
    "lists of links": (data("links"), 6),
    "options": (options, 8),
    "configuration": (configuration, 5),
    "queries and targets": (queries, 8),
    "streams": (streams, 4),
    "names": (names, 5),
    "surroundings": (surroundings, 4),
    "rows, searches, panels": (other_commands, 6),
}
"""Every kind of attempt with its weight in the draw."""
