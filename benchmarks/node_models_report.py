"""Figures and tables of the results of `bench_node_models`."""

import csv
import math
from pathlib import Path

from benchmarks.node_models import PROVIDERS, SCALING

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
NAMES = {
    "galit": "GALiT",
    "galit-mcos": "GALiT, mcos",
    "nodeformer": "NodeFormer",
    "nodeformer-plain": "NodeFormer, plain",
    "sgformer": "SGFormer (PyG)",
    "polynormer": "Polynormer (PyG)",
    "gcn": "GCN (PyG)",
}
Found = dict[tuple[str, str, str, str, str], float]  # (dtype, graph, provider, mode, metric)


def read(path: Path, device: str) -> Found:
    with path.open(newline="") as file:
        return {
            (row["config"].split()[1], row["x"], row["provider"], row["mode"], row["metric"]): float(
                row["p50"]
            )
            for row in csv.DictReader(file)
            if row["config"].split()[0] == device
        }


def slope(points: list[tuple[float, float]]) -> float:
    """Slope of the least-squares line through the logarithms; 1 is linear."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)


def plot(found: Found, dtype: str, mode: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), constrained_layout=True)
    time = "cpu_time" if mode == "epoch-kept" else "time"
    titles = {time: "processor seconds per epoch" if time == "cpu_time" else "seconds per epoch",
              "step_memory": "GiB beside the process's own"}  # fmt: skip
    for axis, (metric, title) in zip(axes, titles.items(), strict=True):
        unit = 1024.0 if metric == "step_memory" else 1.0
        for provider in PROVIDERS:
            keys = [
                (size.num_nodes, (dtype, graph, provider, mode, metric)) for graph, size in SCALING.items()
            ]
            points = [(nodes, found[key] / unit) for nodes, key in keys if found.get(key, 0) > 0]
            if len(points) > 1:
                axis.plot(
                    *zip(*points, strict=True), marker="o", label=f"{NAMES[provider]}, {slope(points):.2f}"
                )
        axis.set(xscale="log", yscale="log", xlabel="nodes", title=title)
        axis.grid(alpha=0.3, which="both")
        axis.legend(title="slope", fontsize=7, title_fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def table(found: Found, dtype: str, mode: str, metric: str) -> str:
    """A Markdown table of providers and graphs, with the ratio to GALiT in brackets."""
    graphs = list(dict.fromkeys(key[1] for key in found if key[0] == dtype and key[3] == mode))
    lines = [f"| {metric}, {mode}, {dtype} | " + " | ".join(graphs) + " |", "|---" * (len(graphs) + 1) + "|"]
    for provider in PROVIDERS:
        cells = []
        for graph in graphs:
            own = found.get((dtype, graph, provider, mode, metric))
            least = found.get((dtype, graph, "galit", mode, metric))
            missing = (dtype, graph, provider, mode, "did_not_fit") in found
            if own is None:
                cells.append("did not fit" if missing else "")
            else:
                cells.append(f"{own:.3g}" + (f" ({own / least:.1f})" if least else ""))
        if any(cells):
            lines.append(f"| {NAMES[provider]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report(path: Path, device: str) -> None:
    found = read(path, device)
    for dtype in dict.fromkeys(key[0] for key in found):
        for mode in dict.fromkeys(key[3] for key in found if key[0] == dtype):
            for metric in ("time", "cpu_time", "step_memory", "peak_memory"):
                print(table(found, dtype, mode, metric), end="\n\n")
        target = FIGURES / f"node-models-{device}{'' if dtype == 'float32' else '-' + dtype}.png"
        plot(found, dtype, "epoch-kept" if device == "cpu" else "epoch", target)
        print(target)
