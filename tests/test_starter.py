"""A new project: that it is made whole or not at all, and that it works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgeq.errors import ProjectNotMade
from edgeq.starter import FILES, source_folder, write_project

ROOT = Path(__file__).resolve().parent.parent


def entries(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_the_list_of_files_is_what_comes_with_the_package() -> None:
    there = {
        path.relative_to(source_folder())
        for path in source_folder().rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert set(FILES) == there


def test_the_files_are_put_into_the_wheel() -> None:
    assert 'force-include.starter = "edgeq/_starter"' in (ROOT / "pyproject.toml").read_text()


def test_a_project_is_made_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    write_project(tmp_path / "new" / "queue")

    assert {str(name) for name in FILES} <= entries(tmp_path / "new" / "queue")


def test_a_project_is_made_beside_files_that_are_not_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "mine.py").write_text("mine = 1\n")

    write_project(tmp_path)

    assert (tmp_path / "handlers" / "mine.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize("name", FILES, ids=str)
def test_nothing_is_overwritten_and_nothing_written(tmp_path: Path, name: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = entries(tmp_path)

    with pytest.raises(ProjectNotMade, match=str(tmp_path / name)):
        write_project(tmp_path)

    assert entries(tmp_path) == before
    assert (tmp_path / name).read_text() == "mine"


def test_all_that_is_in_the_way_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "handlers").write_text("no folder")
    (tmp_path / ".gitignore").symlink_to(tmp_path / "nowhere")

    with pytest.raises(ProjectNotMade) as refused:
        write_project(tmp_path)

    for name in ("README.md", "handlers", ".gitignore"):
        assert str(refused.value).count(str(tmp_path / name)) == 1
    assert entries(tmp_path) == {"README.md", "handlers", ".gitignore"}


def test_a_file_is_no_folder_for_a_project(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    with pytest.raises(ProjectNotMade, match="In the way"):
        write_project(tmp_path / "file")


def test_what_cannot_be_finished_is_taken_back(tmp_path: Path) -> None:
    # The system allows no name that long, which shows only when the folder is to be made.
    with pytest.raises(ProjectNotMade, match="cannot be written"):
        write_project(tmp_path / "new" / ("x" * 300))

    assert entries(tmp_path) == set()


@pytest.mark.process
def test_a_new_project_runs_by_the_commands_that_it_names_and_its_tests_pass(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "queue"
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EDGEQ_")}

    def run(*words: str, cwd: Path = folder) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=cwd,
            env=ours | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
        return ended.stdout

    made = json.loads(run("edgeq", "init", "queue", "--json", cwd=tmp_path))
    job = json.loads(run("edgeq", "enqueue", "welcome", '{"name": "Ada"}', "--json"))
    report = json.loads(run("edgeq", "process", "--budget", "10", "--json"))
    result = json.loads(run("edgeq", "jobs", "result", job["job_id"], "--json"))
    examined = json.loads(run("edgeq", "doctor", "--json"))
    tested = run("pytest", "-q", "-p", "no:asyncio")

    assert made == {"folder": str(folder), "files": [str(name) for name in FILES]}
    assert report["completed"] == 1
    assert result["output"] == {"text": "Welcome, Ada!"}
    assert examined["errors"] == 0
    assert "2 passed" in tested
