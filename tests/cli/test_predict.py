"""`graphzoo predict` from files to files."""

import gzip
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from helpers.warm_python import python

import graphzoo
from graphzoo.cli.predict import predict_main
from graphzoo.errors import GraphzooDataWarning
from graphzoo.inference import writers
from graphzoo.tasks import KGCompletion

ROOT = Path(__file__).resolve().parents[2]
QUERIES = "steroid\tinteracts_with\t?\n?\ttreats\tdisease_or_syndrome\nvirus\tcauses\n"


@pytest.fixture
def queries(tmp_path):
    path = tmp_path / "q.tsv"
    path.write_text(QUERIES)
    return path


@pytest.fixture
def predict(umls_run, capfd):
    """Runs the command on the UMLS run; returns status, output and error text."""

    def run(*arguments, ckpt_path=umls_run.path):
        status = predict_main(["--ckpt_path", str(ckpt_path), *map(str, arguments)])
        return status, *capfd.readouterr()

    return run


def read(path):
    kind = path.suffix
    if kind == ".parquet":
        return pd.read_parquet(path)
    if kind == ".jsonl":
        return pd.DataFrame([json.loads(line) for line in path.read_text().splitlines()])
    return pd.read_csv(path, sep="\t" if kind == ".tsv" else ",")


def expected_answers(umls, **kwargs):
    return umls.predict(
        head=["steroid", None, "virus"],
        relation=["interacts_with", "treats", "causes"],
        tail=[None, "disease_or_syndrome", None],
        **kwargs,
    )


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv", "jsonl"])
def test_every_format_holds_the_same_answers(predict, umls, queries, tmp_path, kind):
    out = tmp_path / "new" / f"answers.{kind}"
    status, _, message = predict("--queries", queries, "--out", out, "--top-k", 4, "--batch-size", 2)
    assert (status, message) == (0, f"graphzoo predict: 12 rows in {out}\n")
    found = read(out)
    pd.testing.assert_frame_equal(found, expected_answers(umls, k=4), check_dtype=False, rtol=1e-4)
    assert os.listdir(out.parent) == [out.name]


def test_printing(predict, umls, queries):
    status, output, _ = predict("--queries", queries, "--top-k", 2)
    lines = output.splitlines()
    assert status == 0
    assert lines[0].split("\t") == list(umls.predict(head="virus", relation="causes").columns)
    assert len(lines) == 1 + 3 * 2


def test_queries_are_scored_from_both_ends(predict, umls_run, queries, tmp_path):
    """`--reverse-weight` sets `reverse_weight` of the task, which changes scores."""
    out = tmp_path / "both.csv"
    assert predict("--queries", queries, "--out", out, "--top-k", 4, "--reverse-weight", 0.5)[0] == 0
    model = graphzoo.load(umls_run.path)
    one_end = expected_answers(model, k=4)
    model.task.reverse_weight = 0.5
    both = expected_answers(model, k=4)
    pd.testing.assert_frame_equal(read(out), both, check_dtype=False, rtol=1e-4)
    assert list(one_end["score"]) != list(both["score"])


def test_known_facts_are_dropped_or_kept(predict, umls, queries, tmp_path):
    for known in ("drop", "keep"):
        out = tmp_path / f"{known}.parquet"
        assert predict("--queries", queries, "--out", out, "--known", known, "--top_k=135")[0] == 0
        expected = expected_answers(umls, k=135, filter_known=known)
        pd.testing.assert_frame_equal(read(out), expected, rtol=1e-4)


def test_candidates(predict, queries, tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("virus\n\nsteroid\n")
    out = tmp_path / "a.csv"
    assert predict("--queries", queries, "--out", out, "--candidates", names)[0] == 0
    assert len(read(out)) == 6
    names.write_text("virus\nsteroyd\n\nNobody\n")
    status, _, message = predict("--queries", queries, "--candidates", names)
    assert status == 2
    assert "names.txt: 2 names are unknown" in message
    assert "line 2: entity 'steroyd'; nearest: 'steroid'" in message and "line 4: entity 'Nobody'" in message
    names.write_text("\n")
    assert "no name found" in predict("--queries", queries, "--candidates", names)[2]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("header.tsv", "head\trelation\ttail\n" + QUERIES.replace("causes\n", "causes\t\n")),
        (
            "order.tsv",
            "Relation\tHead\tTail\ninteracts_with\tsteroid\t\ntreats\t?\tdisease_or_syndrome\ncauses\tvirus\t?\n",
        ),
        ("crlf.tsv", QUERIES.replace("\n", "\r\n")),
        ("bom.tsv", "\ufeff" + QUERIES),
        ("blank.txt", "\n" + QUERIES.replace("\n", "\n\n")),
        ("commas.csv", QUERIES.replace("\t", ",")),
        ("semicolons.csv", QUERIES.replace("\t", ";")),
        (
            "quoted.csv",
            'head,relation,tail\n"steroid","interacts_with",\n,treats,disease_or_syndrome\nvirus,causes,?\n',
        ),
        ("no_end.tsv", QUERIES.rstrip("\n")),
    ],
)
def test_forms_of_query_files(predict, umls, tmp_path, name, content):
    path, out = tmp_path / name, tmp_path / "out.parquet"
    path.write_bytes(content.encode())
    assert predict("--queries", path, "--out", out, "--top-k", 1) == (
        0,
        "",
        f"graphzoo predict: 3 rows in {out}\n",
    )
    pd.testing.assert_frame_equal(read(out), expected_answers(umls, k=1), rtol=1e-4)


def test_compressed_queries_of_two_named_columns(predict, umls, tmp_path):
    path, out = tmp_path / "q.csv.gz", tmp_path / "out.parquet"
    path.write_bytes(gzip.compress(b"relation,tail\ntreats,disease_or_syndrome\n"))
    assert predict("--queries", path, "--out", out, "--top-k", 3)[0] == 0
    expected = umls.predict(relation="treats", tail="disease_or_syndrome", k=3)
    pd.testing.assert_frame_equal(read(out), expected, rtol=1e-4)


@pytest.mark.fault("a file of queries has a wrong line", "refused with file and line; nothing is computed")
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.tsv", b"", "q.tsv: no query found"),
        ("q.tsv", b"head\trelation\ttail\n", "q.tsv: no query found"),
        (
            "q.tsv",
            b"virus\tcauses\t?\nvirus causes ?\n",
            "q.tsv, line 2: expected 2 or 3 columns .* got 1; separate",
        ),
        ("q.tsv", b"virus,causes,?\n", "line 1: .* got 1; if commas separate the columns"),
        ("q.tsv", b"virus;causes;?\n", "line 1: .* got 1; if semicolons separate the columns"),
        ("q.csv", b"virus\tcauses\t?\n", "line 1: .* got 1; in a .csv file, separate the columns by commas"),
        ("q.tsv", b"a\tb\tc\td\n", "line 1: expected 2 or 3 columns .* got 4; name the columns .* in line 1"),
        ("q.csv", b"head,relation\nSmith, J,causes\n", "line 2: .* got 3; put a name .* separator in quotes"),
        ("q.tsv", b"kopf\tkante\tziel\nvirus\tcauses\t?\n", "line 1: .*--score.*\n  if it is a header, name"),
        ("q.tsv", b"kopf\tkante\nvirus\tcauses\n", "'kante'; .*\n  if the first line is a header, name the"),
        ("q.tsv", b"head\trelation\nvirus\tcauses\t?\n", "line 2: expected 2 columns .* got 3"),
        ("q.tsv", b"head\trelation\ttail\thead\nvirus\tcauses\t?\tx\n", "line 1: column 'head' occurs twice"),
        ("q.tsv", b"\nvirus\tcauses\tvirus\n", "line 2: neither head nor tail is '\\?'; .* use --score"),
        ("q.tsv", b"?\tcauses\t?\n", "line 1: both head and tail are missing"),
        ("q.tsv", b"virus\t?\tvirus\n", "line 1: the relation is missing"),
        ("q.tsv", b"virus\tcauses\t?\nvir\xffus\tcauses\t?\n", "line 2: not UTF-8"),
        ("q.csv", b'"virus,causes,?\n', "line 1: .*check the quotes"),
        ("q.tsv.gz", b"virus\tcauses\t?\n", "named .gz, but is not gzip"),
    ],
)
def test_bad_query_files_are_named_by_line(predict, tmp_path, name, content, message):
    import re

    path = tmp_path / name
    path.write_bytes(content)
    status, output, error = predict("--queries", path)
    assert (status, output) == (2, "")
    assert re.search(message, error), error
    assert error.startswith(f"graphzoo: {path}")


@pytest.mark.fault(
    "queries have names that the graph does not know",
    "refused with their number; five are shown with line and nearest names",
)
def test_unknown_names_are_all_counted_and_the_first_five_explained(predict, tmp_path):
    path, out = tmp_path / "q.tsv", tmp_path / "out.csv"
    lines = ["virus\tcauses\t?"] + [f"viruss\tcause{i}\t?" for i in range(6)] + ["?\taffects\tsteroids"]
    path.write_text("\n".join(lines))
    status, _, error = predict("--queries", path, "--out", out)
    assert status == 2
    assert not out.exists()
    found = error.splitlines()
    assert len(found) == 6
    remedy = "on the command line, --skip-unknown leaves out such lines"
    assert f"8 names are unknown, nothing was computed; {remedy} (the first 5 follow)" in found[0]
    assert found[1].strip() == "line 2: entity 'viruss'; nearest: 'virus'"
    assert found[2].strip().startswith("line 2: relation 'cause0'; nearest: 'causes'")
    path.write_text("viruss\tcauses\t?\n")
    assert "one name is unknown" in predict("--queries", path)[2]


def test_queries_and_facts_with_unknown_names_can_be_left_out(predict, umls, tmp_path):
    path, out, few = tmp_path / "q.tsv", tmp_path / "out.parquet", tmp_path / "few.txt"
    write = ["--skip-unknown", "--out", out, "--overwrite"]
    few.write_text("disease_or_syndrome\nhuman_beeing\nvirus\n")
    path.write_text(QUERIES + "viruss\tcauses\t?\n?\tcause\tsteroid\n?\tcauses\tvirus\n")
    with pytest.warns(GraphzooDataWarning) as caught:
        assert predict("--queries", path, *write, "--candidates", few, "--top-k", 1)[0] == 0
    assert [str(warning.message) for warning in caught] == [
        f"{few}: 1 line of 3 left out for unknown names: 'human_beeing'",
        f"{path}: 2 lines of 6 left out for unknown names: 'viruss', 'cause'",
    ]
    assert read(out)["relation"].tolist() == ["interacts_with", "treats", "causes", "causes"]
    facts = [("virus", "causes", "disease_or_syndrome"), ("virus", "causes", "steroid")]
    lines = ["\t".join(fact) for fact in facts]
    path.write_text("\n".join([lines[0], *(f"new{i}\tcauses\tnewer" for i in range(9)), lines[1]]))
    with pytest.warns(
        GraphzooDataWarning, match="9 lines of 11 .*: 'new0', 'newer', 'new1', 'new2', 'new3', ...$"
    ):
        assert predict("--score", path, *write)[0] == 0
    pd.testing.assert_frame_equal(read(out), umls.score_table(facts), rtol=1e-4)
    with pytest.warns(GraphzooDataWarning, match="9 lines of 11"):
        assert predict("--score", path, *write, "--explain", 1)[0] == 0
    assert set(read(out)["tail"]) == {"disease_or_syndrome", "steroid"}
    path.write_text(lines[0] + "\nvirus\tcauses\t?\n")
    status, _, error = predict("--score", path, *write)
    assert status == 2 and "to ask for an entity, use predict, on the command line --queries" in error
    path.write_text("viruss\tcauses\t?\n")
    status, _, error = predict("--queries", path, "--skip-unknown")
    assert status == 2 and "one name is unknown, nothing was computed" in error and "--skip" not in error


def test_scores_of_given_facts(predict, umls, tmp_path):
    path, out = tmp_path / "facts.tsv", tmp_path / "scores.parquet"
    path.write_text("head\trelation\ttail\nvirus\tcauses\tdisease_or_syndrome\nvirus\tcauses\tsteroid\n")
    assert predict("--score", path, "--out", out)[0] == 0
    facts = [("virus", "causes", "disease_or_syndrome"), ("virus", "causes", "steroid")]
    pd.testing.assert_frame_equal(read(out), umls.score_table(facts), rtol=1e-4)
    path.write_text("virus\tcauses\tsteroyd\n")
    status, _, error = predict("--score", path)
    assert status == 2
    assert f"{path}: one name is unknown" in error
    assert "line 1: entity 'steroyd'; nearest: 'steroid'" in error


def test_another_graph(inductive_run, tmp_path, capfd):
    path, out, facts = tmp_path / "q.tsv", tmp_path / "out.csv", tmp_path / "facts.csv"
    path.write_text("tom\tlikes\t?\n")
    facts.write_text("head,relation,tail\ntom,likes,kitty\nkitty,knows,tom\n")
    arguments = ["--ckpt_path", str(inductive_run.path), "--queries", str(path), "--out", str(out)]
    assert predict_main([*arguments, "--data.path", str(facts)]) == 0
    assert read(out).query("known")["tail"].tolist() == ["kitty"]
    listed = [*arguments, "--overwrite", "--data.path", f"[{facts}]"]  # a list, as fit takes it
    assert predict_main(listed) == 0 and read(out).query("known")["tail"].tolist() == ["kitty"]
    assert predict_main([*arguments, "--overwrite", "--data.path", str(inductive_run.planets)]) == 2
    assert "entity 'tom'" in capfd.readouterr().err


@pytest.mark.fault("the output file exists already", "refused; the message mentions --overwrite")
def test_an_existing_file_stays(predict, queries, tmp_path):
    out = tmp_path / "a.csv"
    out.write_text("precious")
    status, _, error = predict("--queries", queries, "--out", out)
    assert status == 2
    assert "exists already; give another name, or --overwrite" in error
    assert out.read_text() == "precious"
    assert predict("--queries", queries, "--out", out, "--overwrite")[0] == 0
    assert len(read(out)) == 30


@pytest.mark.fault(
    "the output file is the file of queries", "refused even with --overwrite, and under any name of the file"
)
def test_inputs_are_never_overwritten(predict, tmp_path):
    path, link = tmp_path / "q.csv", tmp_path / "link.csv"
    path.write_text(QUERIES.replace("\t", ","))
    link.symlink_to(path)
    (tmp_path / "data").mkdir()
    facts = tmp_path / "data" / "train.csv"
    facts.write_text("a,b,c\n")
    for out in (path, tmp_path / "data" / ".." / "q.csv", link, facts):
        status, _, error = predict(
            "--queries", path, "--data.path", facts.parent, "--out", out, "--overwrite"
        )
        assert status == 2 and "is an input of this command" in error
    assert path.read_text() == QUERIES.replace("\t", ",") and facts.read_text() == "a,b,c\n"


@pytest.mark.fault("prediction is interrupted", "no output file and no temporary file remain")
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_an_interrupted_run_leaves_no_incomplete_file(tmp_path, kind):
    def tables():
        yield pd.DataFrame({"a": [1]})
        raise KeyboardInterrupt

    out = tmp_path / f"a.{kind}"
    out.write_text("precious")
    with pytest.raises(KeyboardInterrupt):
        writers.write_tables(tables(), str(out))
    assert out.read_text() == "precious"
    assert os.listdir(tmp_path) == [out.name]


@pytest.mark.fault("the disk is full while answers are written", "status 1; no incomplete file remains")
def test_a_full_disk_is_a_failed_run(predict, queries, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writers.os, "fsync", full)
    status, _, error = predict("--queries", queries, "--out", tmp_path / "a.csv")
    assert status == 1
    assert "No space left on device" in error
    assert os.listdir(tmp_path) == [queries.name]


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore"), 1, "--batch-size"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9"), 1, "--batch-size"),
        (MemoryError(), 1, "--batch-size"),
        (RuntimeError("CUDA error: device-side assert triggered\nmore"), 1, "RuntimeError: CUDA error"),
        (KeyboardInterrupt(), 130, "stopped; no output file"),
    ],
)
def test_failed_scoring_takes_few_lines(predict, queries, tmp_path, monkeypatch, error, expected, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(KGCompletion, "score_queries", fail)
    out = tmp_path / "a.csv"
    status, _, shown = predict("--queries", queries, "--out", out)
    assert status == expected
    assert message in shown and "Traceback" not in shown
    assert len(shown.splitlines()) <= 2
    assert os.listdir(tmp_path) == [queries.name]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_tables_are_written_as_they_come(tmp_path, kind):
    seen = []

    def tables():
        for i in range(3):
            seen.append(len(os.listdir(tmp_path)))
            yield pd.DataFrame({"a": [i] * (i % 2), "b": pd.Series(["x"] * (i % 2), dtype="str")})

    out = tmp_path / f"a.{kind}"
    assert writers.write_tables(tables(), str(out)) == 1
    assert seen[1:] == [1, 1]
    assert read(out)["a"].tolist() == [1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either RUN, .* or --model NAME"),
        (
            ["--ckpt_path", "RUN", "--skip-unknown"],
            "for names in a file: --queries, --score, --nodes or --can",
        ),
        (["--ckpt_path", "RUN"], "give either --queries FILE .* or --score FILE"),
        (
            ["--ckpt_path", "RUN", "--nodes", "Q"],
            "--nodes is for runs of link .* or node .*; .* completion",
        ),
        (["--ckpt_path", "RUN", "--queries", "Q", "--embeddings"], "--embeddings is for runs of node"),
        (["--ckpt_path", "x", "--queries", "Q", "--score", "Q"], "give either --queries"),
        (["--ckpt_path", "x", "--querys", "Q"], "unknown option --querys\nDid you mean: --queries"),
        (["--ckpt_path", "x", "--queries", "Q", "--top-k", "0"], "--top-k .*at least 1, got '0'"),
        (["--ckpt_path", "x", "--queries", "Q", "--known", "hide"], "one of mark, drop, keep, got 'hide'"),
        (["--ckpt_path", "x", "--queries", "nothing.tsv"], "nothing.tsv: no such file"),
        (["--ckpt_path", "x", "--score", "Q", "--top-k", "3"], "--top-k belongs to --queries"),
        (["--ckpt_path", "x", "--queries", "Q", "--out", "a.xlsx"], "ending must be one of .parquet, .csv"),
        (["--ckpt_path", "x", "--queries", "Q", "--out", "a.parquett"], "Did you mean: .parquet"),
        (["--ckpt_path", "x", "--queries", "Q", "--out", "FOLDER.csv"], "is a folder"),
        (["--ckpt_path", "no_run", "--queries", "Q"], "no_run: there is no such file"),
        (["--ckpt_path", "https://x.org/m.ckpt", "--queries", "Q"], "local files only"),
        (["--ckpt_path", "RUN", "--queries", "Q", "--device", "tpu9"], "device 'tpu9' is not available"),
        (
            ["--ckpt_path", "RUN", "--queries", "Q", "--data.path", "nowhere"],
            "nowhere: there is no such path, and no data set",
        ),
    ],
)
def test_wrong_command_lines_take_few_lines(
    umls_run, queries, tmp_path, capfd, monkeypatch, arguments, message
):
    import re

    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER.csv").mkdir()
    places = {"Q": str(queries), "RUN": str(umls_run.path)}
    assert predict_main([places.get(argument, argument) for argument in arguments]) == 2
    output, error = capfd.readouterr()
    assert output == ""
    assert 1 <= len(error.splitlines()) <= 6
    assert re.search(message, error), error


# Links


@pytest.fixture
def ask_links(named_links, capfd, tmp_path):
    """Runs the command on a link run with files of these contents; returns status, table and error text."""

    def run(*arguments, **files):
        given = ["--ckpt_path", str(named_links.path), *map(str, arguments)]
        for option, (name, content) in files.items():
            path = tmp_path / name
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            given += ["--" + option, str(path)]
        out = tmp_path / "out.parquet"
        status = predict_main([*given, "--out", str(out), "--overwrite"])
        output, error = capfd.readouterr()
        assert output == ""
        return status, read(out) if not status else None, error

    return run


@pytest.fixture
def links(named_links):
    import graphzoo

    return graphzoo.load(named_links.path)


def test_partners_of_nodes(ask_links, links):
    names = "person3\n\nperson17\r\n"
    status, found, error = ask_links("--top-k", 4, nodes=("nodes.txt", names))
    assert (status, "8 rows in" in error) == (0, True)
    pd.testing.assert_frame_equal(found, links.predict(nodes=["person3", "person17"], k=4), rtol=1e-4)
    assert not found["known"].any(), "known links are left out by default"
    assert len(ask_links(nodes=("nodes.txt", "person3"))[1]) == 10


@pytest.mark.parametrize("known", ["mark", "keep", "drop"])
def test_options_of_partners(ask_links, links, known):
    candidates = [f"person{number}" for number in range(0, 48, 2)]
    status, found, _ = ask_links(
        "--known", known, "--top_k=30", "--batch-size", 5,
        nodes=("nodes.txt", "person3\nperson4\n"), candidates=("c.txt", "\n".join(candidates)),
    )  # fmt: skip
    expected = links.predict(nodes=["person3", "person4"], k=30, known=known, candidates=candidates)
    assert status == 0
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pairs.tsv", "source\ttarget\nperson3\tperson40\nperson8\tperson9\n"),
        ("pairs.tsv", "person3\tperson40\nperson8\tperson9"),
        ("pairs.csv", "person3,person40\r\nperson8,person9\r\n"),
        ("pairs.csv.gz", gzip.compress(b"target,weight,source\nperson40,1,person3\nperson9,2,person8\n")),
    ],
    ids=["header", "no header", "csv", "packed"],  # gzip data hold the time
)
def test_scores_of_pairs(ask_links, links, name, content):
    status, found, _ = ask_links("--batch-size", 1, score=(name, content))
    assert status == 0
    expected = links.score([("person3", "person40"), ("person8", "person9")])
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4)


def test_nodes_and_pairs_with_unknown_names_can_be_left_out(ask_links, links):
    with pytest.warns(
        GraphzooDataWarning, match="1 line of 3 left out for unknown names: 'persn4'"
    ) as caught:
        status, found, _ = ask_links(
            "--skip-unknown",
            "--top-k=2",
            "--known=keep",
            nodes=("nodes.txt", "person3\npersn4\nperson5\n"),
            candidates=("c.txt", "person9\npersn4\nperson8\n"),
        )
    assert status == 0 and len(caught) == 2 and found["node"].unique().tolist() == ["person3", "person5"]
    pairs = "person3\tperson40\nperson8\tpersn9\nperson8\tperson9\n"
    with pytest.warns(GraphzooDataWarning, match="1 line of 3 left out for unknown names: 'persn9'"):
        status, found, _ = ask_links("--skip-unknown", score=("pairs.tsv", pairs))
    expected = links.score([("person3", "person40"), ("person8", "person9")])
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4)
    with pytest.warns(GraphzooDataWarning):
        error = ask_links("--skip-unknown", score=("pairs.tsv", "person3\tpersn9\nperson3\tperson3\n"))[2]
    assert "pairs.tsv, line 2: 'person3' is paired with itself" in error


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        (
            "score",
            "person3\tperson4\npersn3\tperson4\n",
            "pairs.tsv: one name is unknown.*\n  line 2: .*'person3'",
        ),
        (
            "score",
            "user\titem\nperson3\tperson4\n",
            "2 names are unknown.*\n.*\n.*\n  if the first line is a header, call the columns source and t",
        ),
        ("score", "source\ttarget\nperson3\tperson3\n", "line 2: 'person3' is paired with itself"),
        ("score", "person3\n", "line 1: expected two nodes, got 'person3'; separate them by a tab"),
        ("score", "", "no links; write one link per line"),
        (
            "nodes",
            "person3\npersn4\n",
            "pairs.tsv: one name is unknown.*\n  line 2: node 'persn4'; nearest: 'person4'",
        ),
        ("nodes", "\n", "no name found"),
    ],
)
def test_bad_files_of_nodes_and_pairs(ask_links, tmp_path, option, content, message):
    import re

    status, _, error = ask_links(**{option: ("pairs.tsv", content)})
    assert status == 2 and len(error.splitlines()) <= 6
    assert re.search(message, error), error
    assert ("is a header" in error) == ("is a header" in message), "only where the second line is known"
    assert os.listdir(tmp_path) == ["pairs.tsv"]


def test_partners_on_another_graph(link_runs, tmp_path, capfd):
    edges, nodes, out = tmp_path / "edges.csv", tmp_path / "nodes.csv", tmp_path / "out.csv"
    edges.write_text("ann,bob\nbob,cy\ncy,dee\n")
    nodes.write_text(
        "name,f,g,h,i\n"
        + "".join(f"{name},1,0,{i},0\n" for i, name in enumerate(("ann", "bob", "cy", "dee")))
    )
    (tmp_path / "q.txt").write_text("cy\n")
    arguments = ["--ckpt_path", link_runs["galit"].path, "--nodes", tmp_path / "q.txt", "--out", out]
    assert predict_main([*map(str, arguments), "--data.path", str(tmp_path)]) == 0
    assert read(out)["partner"].tolist() == ["ann"]
    for name in ("nodes.csv", "val.csv", "dev.tsv"):  # any file in a folder of data
        (tmp_path / name).touch()
        over = [*map(str, arguments[:-1]), str(tmp_path / name), "--overwrite"]
        assert predict_main([*over, "--data.path", str(tmp_path)]) == 2
        assert "would be lost" in capfd.readouterr().err
    assert predict_main([*map(str, arguments), "--overwrite", "--data.path", str(edges)]) == 2
    assert "edges.csv: its nodes have no features, but the model was trained with 4" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [],
            "either --nodes FILE .* or --score FILE .*\nFor the best partners of every node, list all nodes",
        ),
        (
            ["--queries", "Q"],
            "--queries is for runs of knowledge-graph completion; RUN is one of link prediction",
        ),
        (["--nodes", "Q", "--probabilities"], "--probabilities is for runs of node classification; RUN"),
        (["--nodes", "Q", "--score", "Q"], "either --nodes FILE .* or --score"),
        (["--score", "Q", "--known", "drop"], "--known belongs to --queries and --nodes"),
        (["--nodes", "Q", "--top-k", "-1"], "--top-k.*at least 1, got '-1'"),
    ],
)
def test_wrong_options_for_links_are_refused(named_links, queries, capfd, arguments, message):
    import re

    given = [str(queries) if argument == "Q" else argument for argument in arguments]
    assert predict_main(["--ckpt_path", str(named_links.path), *given]) == 2
    output, error = capfd.readouterr()
    assert output == "" and len(error.splitlines()) <= 6
    assert re.search(message.replace("RUN", str(named_links.path)), error), error


def test_a_lone_checkpoint_knows_its_task(named_links, queries, tmp_path, capfd):
    import shutil

    lone = shutil.copy(named_links.path / "checkpoints" / "best.ckpt", tmp_path / "lone.ckpt")
    graph = tmp_path / "graph.csv"
    graph.write_text("a,b\nb,c\n")
    given = ["--ckpt_path", str(lone), "--data.path", str(graph)]
    assert predict_main([*given, "--queries", str(queries)]) == 2
    assert "graph.csv: its nodes have no features" in capfd.readouterr().err
    folder = tmp_path / "folder"
    folder.mkdir()
    graph.rename(folder / "edges.csv")
    (folder / "nodes.csv").write_text("name,f,g,h,i\na,1,2,3,4\nb,1,2,3,5\nc,1,2,3,6\n")
    assert predict_main([*given[:3], str(folder), "--queries", str(queries)]) == 2
    assert "--queries is for runs of knowledge-graph completion" in capfd.readouterr().err


def test_parquet_without_pyarrow(predict, queries, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    status, _, error = predict("--queries", queries, "--out", tmp_path / "a.parquet")
    assert status == 2
    assert "pip install pyarrow" in error


def test_help_and_mistakes_need_no_torch(tmp_path):
    code = (
        "import sys\nfrom graphzoo.cli import main\n"
        "try:\n    main(['predict', '--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "assert main(['predict', '--ckpt_path', 'x', '--queri', 'y']) == 2\n"
        "assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert "--queries FILE" in done.stdout


@pytest.mark.fault("the device `meta`, which stores no values", "refused before anything is computed")
def test_the_meta_device_is_refused(predict, queries):
    status, _, error = predict("--queries", queries, "--device", "meta")
    assert status == 2 and "device 'meta' is not available here (it holds shapes" in error


@pytest.mark.fault(
    "the reader of a pipe leaves, or the disk is full, while answers are printed",
    "no message; or one line and status 1",
)
def test_a_closed_pipe_or_full_disk_takes_at_most_one_line(umls_run, tmp_path):
    queries = tmp_path / "many.tsv"
    queries.write_text("steroid\tinteracts_with\t?\n" * 200)
    code = "import sys; from graphzoo.cli import main; sys.exit(main())"
    words = ["predict", "--ckpt_path", umls_run.path, "--queries", queries, "--top-k", "100"]
    command = shlex.join([python(), "-c", code, *map(str, words)])
    for line, status in (("set -o pipefail; {} | head -1", 0), ("{} > /dev/full", 1), ("{} >&-", 1)):
        line = line.format(command)
        result = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert result.returncode == status, result.stderr
        assert len(result.stderr.splitlines()) == status, result.stderr
        assert "Traceback" not in result.stderr and "Exception" not in result.stderr


def test_debug_shows_the_traceback(predict, queries, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("on purpose")

    monkeypatch.setattr(KGCompletion, "score_queries", fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        predict("--queries", queries, "--debug")


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_names_with_a_carriage_return_are_read_back(tmp_path, kind):
    table = pd.DataFrame({"head": ["a\rb", 'c"d', "e,f\tg"], "score": [0.5, 0.25, 1.0]})
    out = tmp_path / f"answers.{kind}"
    writers.write_tables([table], str(out))
    found = pd.read_csv(out, sep="," if kind == "csv" else "\t")
    pd.testing.assert_frame_equal(found, table, check_dtype=False)


def test_a_link_to_a_file_of_answers_stays_one(tmp_path):
    (tmp_path / "other").mkdir()
    held, out = tmp_path / "other" / "held.csv", tmp_path / "answers.csv"
    held.write_text("old\n")
    out.symlink_to(held)
    writers.check_output(str(out), overwrite=True)
    writers.write_tables([pd.DataFrame({"head": ["a"]})], str(out))
    assert out.is_symlink() and held.read_text() == "head\na\n" and os.listdir(held.parent) == [held.name]


def test_tsv_is_quoted_in_every_row_or_in_none(tmp_path):
    plain = pd.DataFrame({"head": ['a"b', '"p"'], "score": [0.5, 0.25]})
    broken = pd.DataFrame({"head": ["l\tm", '"q"'], "score": [2.0, 1.0]})
    out = tmp_path / "plain.tsv"
    writers.write_tables([plain, plain], str(out))
    assert out.read_text() == "head\tscore\n" + 2 * 'a"b\t0.5\n"p"\t0.25\n'
    writers.write_tables([plain, plain, broken, plain], str(tmp_path / "quoted.tsv"))
    found = pd.read_csv(tmp_path / "quoted.tsv", sep="\t")
    assert found["head"].tolist() == ['a"b', '"p"', 'a"b', '"p"', "l\tm", '"q"', 'a"b', '"p"']
    assert found["score"].tolist() == [0.5, 0.25, 0.5, 0.25, 2.0, 1.0, 0.5, 0.25]
