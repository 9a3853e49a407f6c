"""Ways to damage bytes, texts, values and files, and hostile names, numbers and paths."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

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
