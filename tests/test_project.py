# SPDX-License-Identifier: Apache-2.0
"""What holds for the repository as a whole: its files, its documents, the weight of its import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from genai_processor import Reason, RetryVerdict
from genai_processor.settings import PREFIX, SETTINGS, settings_table

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OURS = ("genai_processor", "tests", "examples", "benchmarks")
PAGES = tuple(f"docs/{name}.md" for name in ("cost", "guard", "ledger", "replay", "verdict"))
DOCUMENTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", *PAGES)

python_files = sorted(path for folder in OURS for path in (ROOT / folder).rglob("*.py"))


def names(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("path", python_files, ids=names(python_files))
def test_python_file_begins_with_its_licence(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# SPDX-License-Identifier: Apache-2.0\n")


def test_no_loose_ends() -> None:
    mark = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
    files = [*python_files, *(ROOT / name for name in (*DOCUMENTS, "Makefile", "pyproject.toml"))]
    assert names([path for path in files if mark.search(path.read_text(encoding="utf-8"))]) == []


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_documents_name_only_make_targets_that_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.MULTILINE))
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    assert named
    assert named <= targets


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_link_only_to_files_that_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    folder = (ROOT / document).parent
    assert [link for link in links if not (folder / link).exists()] == []


def test_readme_has_the_table_of_settings() -> None:
    block = README.partition("<!-- settings -->\n")[2].partition("\n<!-- /settings -->")[0]
    assert block == settings_table(), "put the output of settings_table() between the README's settings marks"


def test_readme_names_no_setting_that_does_not_exist() -> None:
    assert set(re.findall(r"GENAI_PROCESSOR_\w+", README)) == {row.name for row in SETTINGS if row.name.startswith(PREFIX)}


def test_the_page_on_verdicts_names_every_verdict_and_reason() -> None:
    page = (ROOT / "docs/verdict.md").read_text(encoding="utf-8")
    assert [word.value for word in (*RetryVerdict, *Reason) if f"`{word.value}`" not in page] == []


def test_readme_explains_every_verdict_and_reason() -> None:
    words = [word.value for word in (*RetryVerdict, *Reason)]
    assert len(words) > 20
    assert [word for word in words if f"| `{word}` |" not in README] == []


@pytest.mark.parametrize(
    "statement",
    ["import genai_processor", "from genai_processor import GenAISpanProcessor, MemoryLedger, is_safe_to_retry"],
)
def test_importing_it_is_light(statement: str) -> None:
    heavy = ("wrapt", "opentelemetry.instrumentation", "grpc", "requests", "typer", "rich", "sqlite3", "asyncio")
    code = f"{statement}; import sys; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


ARROWS = {
    "spans": {"errors"},
    "ledger": {"spans.values", "errors", "forks"},
    "retry": {"spans", "errors", "forks", "attributes"},
    "guard": {"retry", "ledger", "spans", "settings", "errors", "forks", "hooks", "imports", "places", "replays"},
    "reconcile": {"ledger", "errors"},
    "replay": {"retry", "spans", "errors", "forks", "hooks", "places", "replays", "attributes"},
    "cli": {"replay", "retry", "ledger", "reconcile", "spans", "errors", "settings"},
}
"""What the modules of each package may import of this one, beside their own package."""


@pytest.mark.parametrize("package", ARROWS)
def test_imports_run_one_way(package: str) -> None:
    allowed = {f"genai_processor.{name}" for name in (package, *ARROWS[package])}
    for path in sorted((ROOT / "genai_processor" / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert getattr(node, "level", 0) == 0, f"{path}:{node.lineno} imports relative to itself; write the whole name"
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name is not None and name.split(".")[0] == "genai_processor":
                    assert any(f"{name}.".startswith(f"{one}.") for one in allowed), f"{path}:{node.lineno} imports {name}"
