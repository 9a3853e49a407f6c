"""The small link graph as files of own links."""

from helpers.link_graphs import make_link_graph


def write_links(folder):
    """A folder with links, negatives and features of named nodes."""
    graph = make_link_graph()
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in {
        "train": graph.train,
        "valid": graph.valid.positive,
        "test": graph.test.positive,
        "valid_neg": graph.valid.negative,
        "test_neg": graph.test.negative,
    }.items():
        (folder / f"{name}.csv").write_text("".join(f"n{u},n{v}\n" for u, v in pairs.tolist()))
    header = "node," + ",".join(f"f{i}" for i in range(graph.x.shape[1]))
    rows = [f"n{i}," + ",".join(f"{v:.4f}" for v in row) for i, row in enumerate(graph.x.tolist())]
    (folder / "nodes.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder
