"""The commands `edgeq` and `process_jobs`; everything is imported when it is needed."""

from __future__ import annotations


def main() -> None:
    """The console script `edgeq`."""
    from edgeq.cli.root import root

    root.main(prog_name="edgeq")


def process_jobs_main() -> None:
    """The console script `process_jobs`: `edgeq process` by another name, for cron."""
    from edgeq.cli.endings import run_command
    from edgeq.cli.process import process

    run_command(process.main, prog_name="process_jobs")
