"""`python -m graphzoo.cli`."""

from graphzoo.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
