"""The table of knowledge graphs, the embedded UMLS and, if GRAPHZOO_DATA is set, all real data sets."""

import hashlib
import re
import shutil
import warnings
from dataclasses import replace
from importlib import resources

import pytest
import torch

from graphzoo.datasets import (
    DataError,
    GraphzooDataWarning,
    find_source,
    list_knowledge_graphs,
    load_knowledge_graph,
)
from graphzoo.datasets.by_name import download
from graphzoo.datasets.files.verify import Broken
from graphzoo.datasets.kg import load as load_module
from graphzoo.datasets.kg.files import verify_triples
from graphzoo.datasets.kg.table import FileFacts, KGSource, content_hash

NAMES = [name for name in list_knowledge_graphs() if name != "yago310"]


def test_the_table_has_the_documented_names():
    inductive = {f"{data}-v{k}" for data in ("fb15k237", "wn18rr", "nell995") for k in range(1, 5)}
    transductive = {"umls", "fb15k237", "wn18rr", "nell995", "yago310", "kinship", "nations", "codex-m"}
    countries = {f"countries-s{k}" for k in (1, 2, 3)}
    assert set(list_knowledge_graphs()) == inductive | transductive | countries | {"yago310-quarter"}
    assert {name for name in list_knowledge_graphs() if find_source(name).inductive} == inductive


@pytest.mark.parametrize("name", list_knowledge_graphs())
def test_rows_are_complete(name):
    source = find_source(name)
    assert source.citation and source.licence
    for folder, urls in ((source.folder, source.urls), (source.inductive, source.inductive_urls)):
        if folder is None:
            continue
        assert all(url.startswith("https://") and url.endswith("/{split}.txt") for url in urls)
        assert min(source.counts(folder)) > 0
        for split in ("train", "valid", "test"):
            facts = source.file(split, folder)
            assert facts.num_triples > 0
            assert facts.sha256 is None or re.fullmatch("[0-9a-f]{64}", facts.sha256)
            assert facts.sha256 or facts.md5


def test_spellings_of_names_and_suggestions():
    assert find_source("FB15k-237_v1").name == "fb15k237-v1"
    assert find_source("Countries_S2").name == "countries-s2"
    with pytest.raises(ValueError, match="fb15k237"):
        find_source("fb15k273")
    with pytest.raises(ValueError, match="own"):
        find_source("zzz")


def test_content_hash_ignores_line_order_ends_and_duplicates():
    reference = content_hash(b"a\tr\tb\nb\tr\tc\n")
    assert reference == hashlib.sha256(b"a\tr\tb\nb\tr\tc\n").hexdigest()
    for same in (b"b\tr\tc\na\tr\tb", b"\xef\xbb\xbfa\tr\tb\r\nb\tr\tc\r\n", b"a\tr\tb\na\tr\tb\nb\tr\tc\n"):
        assert content_hash(same) == reference
    for other in (b"a\tr\tb\n", b"a\tr\tb\nb\tr\td\n", b"a\tr\tb \nb\tr\tc\n"):
        assert content_hash(other) != reference


def test_umls_needs_no_data_root_and_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    graph, inference = load_knowledge_graph("umls", root=tmp_path / "nothing")
    assert inference is None
    assert (graph.num_entities, graph.num_relations) == (135, 46)
    assert [graph.split(split).size(0) for split in ("train", "valid", "test")] == [5216, 652, 661]
    assert not (tmp_path / "nothing").exists()
    assert sorted(path.name for path in download("umls").glob("*.txt")) == [
        "test.txt",
        "train.txt",
        "valid.txt",
    ]


def test_embedded_umls_agrees_with_its_readme():
    folder = resources.files("graphzoo") / "data" / "umls"
    listed = dict(re.findall(r"\| (\w+\.txt) \| ([0-9a-f]{64}) \|", (folder / "README.md").read_text()))
    assert set(listed) == {"train.txt", "valid.txt", "test.txt"}
    for name, digest in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_embedded_umls_equals_the_real_one(real_data):
    folder = resources.files("graphzoo") / "data" / "umls"
    for split in ("train", "valid", "test"):
        assert (folder / f"{split}.txt").read_bytes() == (
            real_data / "kg" / "UMLS" / f"{split}.txt"
        ).read_bytes()
    assert (
        load_knowledge_graph("umls", root=real_data)[0].fingerprint
        == load_knowledge_graph("umls")[0].fingerprint
    )


@pytest.mark.parametrize("name", NAMES)
def test_real_data_set(name, real_data, monkeypatch):
    """Loading verifies hashes; published data must give no warning."""
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    source = find_source(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph, inference = load_knowledge_graph(name, root=real_data)
    assert (graph.num_entities, graph.num_relations) == source.counts()
    assert list(graph.entities) == sorted(set(graph.entities))
    for part, size in ((graph, graph.num_entities), (inference, inference and inference.num_entities)):
        if part is not None:
            triples = part.known_triples()
            assert int(triples[:, [0, 2]].max()) < size
            assert int(triples[:, 1].max()) < graph.num_relations
            assert part.relations == graph.relations
    assert (inference is not None) == (source.inductive is not None)


@pytest.mark.parametrize("name", ["fb15k237", "wn18rr"])
def test_labels_and_a_cached_load(name, real_data, own_cache):
    first = load_knowledge_graph(name, root=real_data)[0]
    assert len(first.entity_labels) > 10_000
    assert first.relation_labels
    assert len(list((own_cache / "parsed").glob("*.npz"))) == 1
    second = load_knowledge_graph(name, root=real_data)[0]
    assert second.fingerprint == first.fingerprint
    assert torch.equal(second.train, first.train)
    assert second.entity_labels == first.entity_labels


@pytest.fixture
def copy_of_umls(tmp_path):
    folder = tmp_path / "root" / "kg" / "UMLS"
    shutil.copytree(str(resources.files("graphzoo") / "data" / "umls"), folder)
    return folder


@pytest.mark.fault(
    "a file of a known data set is changed",
    "refused with its path before anything is trained",
)
def test_changed_files_are_refused_with_a_remedy(copy_of_umls, tmp_path):
    path = copy_of_umls / "valid.txt"
    lines = path.read_text().split("\n")
    path.write_text("\n".join([lines[0].replace("\t", "x\t", 1), *lines[1:]]))
    with pytest.raises(DataError) as caught:
        load_knowledge_graph("umls", root=tmp_path / "root")
    message = str(caught.value)
    assert str(path) in message and "content differs from umls" in message
    assert "delete it to fetch it again" in message and f"(name kg, path {copy_of_umls})" in message
    # a malformed file is refused with its line
    path.write_text("\n".join([*lines[:4], "only\ttwo", *lines[5:]]))
    with pytest.raises(DataError, match="line 5: expected 3 columns"):
        load_knowledge_graph("umls", root=tmp_path / "root")


@pytest.mark.fault("another data set is in the folder of a known one", "refused with both counts")
def test_counts_are_checked_if_no_hash_is_known(tmp_path):
    folder = tmp_path / "kg" / "YAGO3-10"
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("a\tr\tb\n")
    with pytest.raises(
        DataError, match=r"\[2, 1, 1, 1, 1\], yago310 has \[123182, 37, 1079040, 5000, 5000\]"
    ):
        load_knowledge_graph("yago310", root=tmp_path)


def test_line_order_and_line_ends_are_accepted(copy_of_umls, tmp_path):
    path = copy_of_umls / "train.txt"
    lines = path.read_text().rstrip("\n").split("\n")
    path.write_bytes("\r\n".join(reversed(lines)).encode())
    assert (
        load_knowledge_graph("umls", root=tmp_path / "root")[0].fingerprint
        == load_knowledge_graph("umls")[0].fingerprint
    )


@pytest.mark.fault(
    "one split of a data set is missing", "refused by name; the others are not used without it"
)
def test_a_missing_split_is_refused(copy_of_umls, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHZOO_OFFLINE", "1")
    (copy_of_umls / "test.txt").unlink()
    with pytest.raises(DataError, match="test.txt"):
        load_knowledge_graph("umls", root=tmp_path / "root")


def test_a_file_with_a_count_and_an_uncertain_md5(tmp_path, caplog):
    """Another md5 may mean damage or another version of the file, so it gives a message and no refusal."""
    source = KGSource("toy", "toy", "", "", (), note="counts and an md5")
    content = b"a\tr\tb\nb\tr\tc\n"
    part = tmp_path / "train.part"
    part.write_bytes(content)
    verify_triples(part, FileFacts(2, None, 0, md5=hashlib.md5(content).hexdigest()), source, "train")
    assert caplog.messages == []
    verify_triples(part, FileFacts(2, None, 0, md5="0" * 32), source, "train")
    assert caplog.messages == ["toy train: counts and an md5"] and part.exists()
    with pytest.raises(Broken, match="2 different lines instead of 3"):
        verify_triples(part, FileFacts(3, None, 0), source, "train")
    assert not part.exists()


def test_a_hash_of_a_reconstructed_file_gives_a_warning_and_no_refusal(tmp_path, monkeypatch):
    folder = tmp_path / "root/kg/UMLS"
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        lines = (resources.files("graphzoo") / "data" / "umls" / f"{split}.txt").read_text().splitlines()
        if split == "train":  # the same names and number of triples, with one changed
            head, relation, tail = lines[0].split("\t")
            lines[0] = f"{tail}\t{relation}\t{head}"
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    source = KGSource("toy", "UMLS", "", "", (), note="drawn from memory")
    facts = source.file("train", "UMLS")
    for provisional in ((), ("train",)):
        part = tmp_path / "train.part"
        part.write_bytes((folder / "train.txt").read_bytes())
        entry = replace(source, provisional=provisional)
        monkeypatch.setattr(load_module, "find_source", lambda name, entry=entry: entry)
        if provisional:
            verify_triples(part, facts, entry, "train")
            with pytest.warns(
                GraphzooDataWarning, match="hash is of a reconstructed file: drawn from memory"
            ):
                graph, _ = load_knowledge_graph("toy", root=tmp_path / "root")
            assert graph.split("train").size(0) == 5216
        else:
            with pytest.raises(Broken, match="wrong content"):
                verify_triples(part, facts, entry, "train")
            with pytest.raises(DataError, match="delete it to fetch it again"):
                load_knowledge_graph("toy", root=tmp_path / "root")
