"""Functions that read, write or remove files, or print, are listed with a reason; others call them."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "graphzoo"
MODULES = {"torch", "np", "numpy", "shutil", "gzip", "tarfile", "zipfile", "os", "io"}
READS = {
    "open",
    "read_text",
    "read_bytes",
    "load",
    "loadtxt",
    "copytree",
    "copyfile",
    "copy",
    "copy2",
    "fromfile",
}
WRITES = {"write_text", "write_bytes", "symlink_to", "hardlink_to", "touch"}

# Reason -> functions as `module::function`, with what they do.
ALLOWED = {
    "the one place that opens and copies files of others": """
        system/regular_files.py::open_regular read
        system/regular_files.py::copy_regular write
    """,
    "a library's loader, over a file that regular_files has opened or looked at": """
        checkpoints/read.py::_load read
        datamodules/features.py::FeatureTransform.load read
        datasets/files/arrays.py::reading_arrays read
        datasets/files/npz.py::read_npz read
        datasets/node/own.py::_load read
        datasets/files/tables.py::read_bytes read
    """,
    "memory, no file": """
        checkpoints/settings.py::unsaved read write
    """,
    "what the system says of itself, and the null device": """
        training/dry_run.py::limited_memory read
        training/start.py::_is_in_foreground read
        system/memory.py::_read read
        runs/lock.py::_boot read
        runs/lock.py::_passes_locks_on read
        runs/lock.py::_started read
        system/streams.py::drop_output read
        system/streams.py::open_streams read
        system/waiting.py::_holder read
    """,
    "files of the package": """
        datasets/kg/load.py::_load_folder read
        datasets/files/sources.py::read_facts read
        ops/row_kernels.py::_digest read
    """,
    "downloads: begun by this process, checked by sha256, removed if they are wrong": """
        datasets/files/fetch.py::_fetch remove write
        datasets/files/fetch.py::_sync_folder read
        datasets/files/fetch.py::_transfer read remove
        datasets/link/fixed.py::read_heart read
        datasets/link/fixed.py::read_pairs read
        datasets/node/build.py::read_mask_file read
        datasets/node/readers.py::_read_actors read
        datasets/node/readers.py::read_actor read
        datasets/node/readers.py::read_deezer read
        datasets/node/readers.py::read_masked read
        datasets/node/ogb.py::read_table read
        datasets/node/readers.py::read_planetoid read
        datasets/node/points.py::read_mini_imagenet read
        datasets/node/points.py::read_newsgroups read
        datasets/node/unpickle.py::_load_storage read
        datasets/node/unpickle.py::_load_tensors read
        datasets/node/unpickle.py::read_pickle read
        datasets/node/unpickle.py::read_pickled_array read
        datasets/node/unpickle.py::read_torch_file read
        datasets/files/provide.py::_content_sha256 read
        datasets/files/provide.py::_provide_archive remove
        datasets/files/provide.py::_unpack read
        datasets/files/verify.py::verify_not_html read remove
        datasets/files/verify.py::verify_sha256 read remove
        datasets/kg/files.py::verify_triples read remove
        datasets/files/verify.py::verify_zip remove
    """,
    "the user's own cache": """
        ops/tensor_file.py::TensorFile._read read
        ops/tensor_file.py::TensorFile._write remove write
        ops/tensor_file.py::_reserve write
        sampling/pair_subgraphs/file.py::map_arrays read
        sampling/pair_subgraphs/sampler.py::PairSubgraphSampler.from_file read
    """,
    "a new file of this run or answer: written beside its place and renamed, or into a new folder": """
        analysis/evaluation.py::Evaluation._write write
        analysis/evaluation.py::Evaluation.save remove write
        callbacks/checkpoint_file.py::CheckpointFile.save_checkpoint remove write
        callbacks/metrics_file.py::MetricsFile.log_metrics write
        callbacks/wandb_run.py::WandbRun.setup write
        callbacks/wandb_run.py::WandbRun.keep_artifact remove
        callbacks/wandb_run.py::_link read write
        callbacks/wandb_run.py::_write_report write
        datamodules/features.py::FeatureTransform.save write
        datasets/files/arrays.py::write_arrays.write write
        system/files.py::write_atomically remove write
        inference/export.py::_copy_graph write
        inference/export.py::_export_program write
        inference/plain_names.py::_write write
        inference/program.py::write_program write
        training/fit.py::_fit_given remove
        datasets/in_memory.py::_links.write write
        inference/plain_names.py::write_names write
        encoders/pretrained.py::new_folder remove write
        encoders/pretrained.py::write_pretrained write
        runs/lock.py::RunLock._write_record remove
        runs/directory.py::write_config remove
        cli/search.py::_report print
        cli/compare.py::_show print
        search/trial.py::_fit write
    """,
    "files of graphzoo's own cache by their exact names, their locks held": """
        cli/clean.py::_remove remove
    """,
    "what this process has just written, or a process that it has begun": """
        inference/export.py::_describe_program read write
        inference/writers.py::_quote read
        training/launch.py::_forget_unstarted remove
        cli/compare.py::_test remove
        cli/reproduce.py::_move_away remove write
        cli/reproduce.py::_take_back remove
        runs/lock.py::RunLock.release remove
        cli/search.py::_monitor read
        search/compare.py::Comparison._run remove
        search/compare.py::_apart write
        search/compare.py::_here write
    """,
    "the lock, and the command that claims a folder of rows": """
        runs/lock.py::RunLock._open read
        runs/lock.py::RunLock._remove_dead read remove
        runs/series.py::_with_files read
    """,
    "rich tables and lines of names that `shown.cell` or `shown.visible` has spelt out": """
        callbacks/progress.py::EpochLines._show print
        callbacks/progress.py::EpochLines._count print
        system/progress.py::_Lines.advance print
        training/dry_run.py::DryRun.on_train_end print
        cli/results.py::_print print
        runs/tables.py::print_table print
        runs/tables.py::print_rows print
        callbacks/summary.py::_say print
    """,
}


def action_of(call):
    """What a call does to files or the terminal, judged by its text: read, write, remove, print or None."""
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    module = owner.id if isinstance(owner, ast.Name) and owner.id in MODULES else ""
    if name == "print":
        return "print"
    if module == "shutil":
        return "remove" if name in ("rmtree", "move") else "read"
    if name in ("unlink", "rmdir") or (module == "os" and name in ("remove", "removedirs")):
        return "remove"
    if name in WRITES or (module == "os" and name in ("replace", "rename", "link", "symlink", "truncate")):
        return "write"
    if module in ("np", "numpy", "torch") and name in ("save", "savez", "savez_compressed"):
        return "write"
    # `str.replace` takes two arguments, and pandas' `rename` keywords.
    if name in ("rename", "replace") and owner is not None and len(call.args) == 1 and not call.keywords:
        return "write"
    if name == "open":
        given = [*call.args[owner is None :], *(word.value for word in call.keywords if word.arg == "mode")]
        modes = [value.value for value in given if isinstance(value, ast.Constant)]
        return "write" if any(isinstance(m, str) and set(m) <= set("wax+bt") for m in modes) else "read"
    if name in READS and (module or name in ("read_text", "read_bytes")) and owner is not None:
        return "read"
    return None


def actions_in(tree):
    """(function, action) for each call in a module that has an action."""
    found = set()

    def walk(node, names):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and (action := action_of(child)):
                found.add((".".join(names) or "-", action))
            named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            walk(child, [*names, child.name] if named else names)

    walk(tree, [])
    return found


def listed():
    """(module::function, action) of `ALLOWED`."""
    rows = [line.split() for lines in ALLOWED.values() for line in lines.split("\n") if line.strip()]
    return [(name, action) for name, *actions in rows for action in actions]


def test_only_listed_functions_access_files_or_print():
    found = {
        (f"{path.relative_to(PACKAGE).as_posix()}::{function}", action)
        for path in sorted(PACKAGE.rglob("*.py"))
        for function, action in actions_in(ast.parse(path.read_text()))
    }
    assert sorted(found - set(listed())) == [], (
        "use regular_files, shown or files.write_atomically, or say why"
    )
    assert sorted(set(listed()) - found) == [], "listed, but not in the source"
    assert len(listed()) == len(set(listed()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("open(path)", "read"), ("path.open('w')", "write"), ("open(path, mode='ab')", "write"),
        ("print(1)", "print"), ("open('x')", "read"),
        ("console.print(table)", "print"), ("shutil.rmtree(x)", "remove"), ("shutil.copy(x, y)", "read"),
        ("path.unlink()", "remove"), ("os.replace(a, b)", "write"), ("part.replace(path)", "write"),
        ("text.replace('a', 'b')", None), ("torch.load(f)", "read"), ("torch.save(x, f)", "write"),
        ("table.rename(columns=c)", None), ("load(path)", None), ("path.read_text()", "read"),
        ("np.load(f)", "read"), ("graph.save(path)", None),
    ],
)  # fmt: skip
def test_actions_of_calls(text, expected):
    (call,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert action_of(call) == expected


def test_actions_are_listed_by_function():
    tree = ast.parse("class A:\n    def b(self):\n        print(1)\n\nopen('file')\n")
    assert actions_in(tree) == {("A.b", "print"), ("-", "read")}


def blames_the_file(tree):
    """Lines of handlers that call a file damaged after any Exception or OSError, whatever its cause."""
    wrong = []
    for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
        caught = (
            {name.id for name in ast.walk(handler.type) if isinstance(name, ast.Name)}
            if handler.type
            else set()
        )
        source = ast.unparse(handler)
        damage = any(word in source for word in ("damaged", "not a readable", "not a whole", "not pairs"))
        if caught & {"Exception", "OSError"} and damage and "raise_if_not_the_file(error, " not in source:
            wrong.append(handler.lineno)
    return wrong


def test_no_reader_calls_a_file_damaged_because_memory_ran_out():
    # It reads from memory, where no device can fail.
    allowed = {"datasets/files/tables.py::read_bytes"}
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for function in (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)):
            if blames_the_file(function):
                found.add(f"{path.relative_to(PACKAGE).as_posix()}::{function.name}")
    assert found - allowed == set()


def test_handlers_that_call_a_file_damaged_are_found():
    text = "try:\n    read()\nexcept {} as error:\n    {}raise DataError('damaged') from error"
    assert blames_the_file(ast.parse(text.format("Exception", ""))) == [3]
    assert blames_the_file(ast.parse(text.format("(OSError, EOFError)", ""))) == [3]
    assert blames_the_file(ast.parse(text.format("KeyError", ""))) == []
    assert (
        blames_the_file(ast.parse(text.format("Exception", "raise_if_not_the_file(error, path)\n    "))) == []
    )
