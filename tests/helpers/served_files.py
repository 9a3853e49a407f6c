"""What a local server serves, and what stays of a download."""


def put(mirror, path, data):
    target = mirror.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def stay(folder):
    """What lies there beside locks."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and ".lock" not in path.name
    )
