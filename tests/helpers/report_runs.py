"""Run directories in the form of `graphzoo fit`, written without training."""

import csv
import json
import math

import yaml

NODE = {
    "model": {
        "class_path": "graphzoo.tasks.NodeClassification",
        "init_args": {
            "encoder": {
                "class_path": "graphzoo.encoders.GALiT",
                "init_args": {"hidden_channels": 64, "num_layers": 1, "dropout": 0.7, "input_dropout": 0.5},
            },
            "lr": 0.01,
            "weight_decay": 0.01,
        },
    },
    "data": {
        "class_path": "graphzoo.datamodules.NodeDataModule",
        "init_args": {"name": "cora", "root": None, "seed": 0},
    },
    "trainer": {"max_epochs": 200, "devices": "auto", "enable_progress_bar": False},
}


def write_run(
    folder, *, seed=0, epochs=8, test=0.8, finished=True, model="galit", data="cora", recipe="galit/cora",
    metric="acc", changed=None, figures=None,
):  # fmt: skip
    """A run whose validation metric rises to `test` + 0.01 in the last epoch but one.

    `changed` sets options such as {"model.encoder.num_layers": 3}.
    """
    folder.mkdir(parents=True)
    config = json.loads(json.dumps({"seed_everything": seed, **NODE}))
    config["data"]["init_args"]["seed"] = seed
    for name, value in (changed or {}).items():
        place = config
        *path, last = name.split(".")
        for part in path:
            place = place[part]
            place = place.get("init_args", place)
        place[last] = value
    header = f"# graphzoo 0.1.0\n# model: {model}\n# data: {data}\n" + (
        f"# recipe: {recipe}\n" if recipe else ""
    )
    (folder / "config.yaml").write_text(header + yaml.safe_dump(config, sort_keys=False))
    fingerprint = "adcef2099801548a87e0d03e57ca268ffe6d00c241ff08aeaeeba8199bc12739"
    (folder / "graph").mkdir()
    (folder / "graph" / "meta.json").write_text(json.dumps({"name": data, "fingerprint": fingerprint}))
    best = epochs - 2
    with (folder / "metrics.csv").open("w", newline="") as file:
        names = ["step", "lr-Adam", f"val/{metric}", "val/loss", "epoch", "train/loss", "train/nodes_per_s"]
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for epoch in range(epochs):
            value = test + 0.01 - 0.05 * abs(epoch - best) / epochs + 0.001 * seed
            # LearningRateMonitor logs no epoch
            writer.writerow({"step": epoch, "lr-Adam": 0.01 / (1 + epoch)})
            writer.writerow({"step": epoch, f"val/{metric}": value, "val/loss": 1 / value, "epoch": epoch})
            loss = 2 * math.exp(-epoch / 3) + 0.01 * seed
            writer.writerow(
                {"step": epoch, "train/loss": loss, "train/nodes_per_s": 4000 + seed, "epoch": epoch}
            )
    if finished:
        result = {
            "format": 1,
            "command": "fit",
            "metrics": figures or {"test/loss": 0.5, f"test/{metric}": test},
            "validation": {f"best val/{metric}": test + 0.01},
            "model": model,
            "data": data,
            "recipe": recipe or None,
            "seed": seed,
            "best_epoch": best,
            "epochs": epochs,
            "steps": epochs,
            "fit_seconds": 12.5,
            "num_parameters": 92231,
            "config_hash": "0123456789ab",
            "data_fingerprint": fingerprint,
            "split": {"name": "public", "train": 140, "valid": 500, "test": 1000},
            "versions": {"python": "3.11.7", "graphzoo": "0.1.0", "torch": "2.13.0"},
        }
        (folder / "results.json").write_text(json.dumps(result))
    return folder


def write_row(folder, seeds=(0, 1, 2), **settings):
    """A row of `graphzoo reproduce`."""
    for seed in seeds:
        write_run(folder / f"seed-{seed}", seed=seed, test=0.84 + 0.01 * seed, **settings)
    (folder / "command.json").write_text(json.dumps({"options": []}))
    values = [0.84 + 0.01 * seed for seed in seeds]
    row = {
        "model": "galit",
        "data": "cora",
        "recipe": "galit/cora",
        "name": None,
        "differs": "settings searched on two cores",
        "command": "graphzoo reproduce galit cora",
        "seeds": list(seeds),
        "splits": None,
        "metrics": {
            "test/acc": {
                "mean": sum(values) / len(values),
                "std": 0.01,
                "paper": 0.851,
                "paper_std": 0.006,
                "values": values,
            }
        },
    }
    (folder / "row.json").write_text(json.dumps(row))
    return folder


NASTY = '<script>alert("x")</script> & $a$ -- ünï 中文'
# characters that XML forbids, even if escaped
CONTROL = "\x1b[31mred\x00 \ufffe"


def every_kind():
    """One table of each kind, with markup and control characters in names."""
    from pandas import DataFrame

    from graphzoo.analysis import Table

    names = [NASTY, "$a$ theory", f"<b>{CONTROL}"]
    classes = {"class": names, "support": [5, 6, 7], "precision": [0.5, 0.6, 0.7], "f1": [0.2, 0.9, 0.4]}
    sides = ("both", "head", "tail")
    relations = [
        {"relation": f"r{i}{CONTROL if i > 57 else ''}", "direction": side, "triples": i, "mrr": i / 60}
        for i in range(60)
        for side in sides
    ]
    cells = [(names[i], names[j], 7 * i + j) for i in range(3) for j in range(3)]
    scores = {"from": [-1.0, 0.0], "to": [0.0, 1.0], "positives": [1, 30], "negatives": [900, 50]}
    ranks = {"from": [0, 1, 2, 5], "to": [1, 2, 5, 10], "head": [9, 5, 3, 0], "tail": [4, 5, 6, 7]}
    shape = ["x", "y", "class"]
    points = [(math.sin(i), math.cos(2 * i), names[i % 3]) for i in range(300)]
    worst = {
        "head": [NASTY, CONTROL, *[NASTY] * 43],
        "relation": ["likes"] * 45,
        "tail": ["b"] * 45,
        "rank": [2.5] * 45,
    }
    both = ("positives", "negatives")
    return (
        Table("classes", "Scores of each class", "bars", DataFrame(classes), "class", ("precision", "f1")),
        Table("relations", "MRR", "bars", DataFrame(relations), "relation", ("mrr",), "direction"),
        Table(
            "confusion", "Confusion", "matrix", DataFrame(cells, columns=["true", "predicted", "nodes"]),
            "true", ("predicted",), "nodes",
        ),
        Table("scores", "Scores of links", "histogram", DataFrame(scores), "from", both),
        Table("ranks", "Ranks of the answers", "histogram", DataFrame(ranks), "from", ("head", "tail")),
        Table("hits", "First K", "curve", DataFrame({"k": [1, 100], "hits": [0.1, 0.9]}), "k", ("hits",)),
        Table("embedding", "States", "scatter", DataFrame(points, columns=shape), "x", ("y",), "class"),
        Table("worst", "Triples ranked last", "table", DataFrame(worst)),
    )  # fmt: skip


def write_evaluation(run, tables=None, figures=None):
    from graphzoo.analysis import Evaluation

    found = Evaluation(
        "test", figures or {"test/mrr_head": 0.25, "test/tie_share": 0.0}, tables or every_kind()
    )
    found.save(run / "evaluation" / "test")
    return run
