"""Files of a local server, and the files that a download leaves."""


def put(mirror, path, data):
    target = mirror.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def stay(folder):
    """All files below a folder except locks."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".lock" not in path.name
    )
