"""`python -m edgeq` is the `edgeq` command."""

from edgeq.cli import main

if __name__ == "__main__":
    main()
