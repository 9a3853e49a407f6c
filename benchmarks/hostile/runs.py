"""Attempts on the files of a run, and the commands that read it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.hostile.attempt import Attempt
from benchmarks.hostile.damage import (
    MARKS,
    NAMES,
    PATHS,
    places,
    put_odd,
    spoil_bytes,
    spoil_structured,
    spoil_text,
    spoil_tree,
)


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
