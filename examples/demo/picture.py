# SPDX-License-Identifier: Apache-2.0
"""Runs the demo and keeps its output: as `demo.svg`, and as text in the README. `make picture` runs it.

With a path it draws the picture there, and leaves the README alone.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

HERE = Path(__file__).parent
README = HERE.parent.parent / "README.md"


def demo_output() -> str:
    """The demo's output, in colour."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"FORCE_COLOR": "1"}
    command = [sys.executable, "-m", "examples.demo"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit("the demo has failed, so there is nothing to draw")
    return done.stdout


def picture(output: str) -> str:
    """The output as an SVG that loads nothing from anywhere."""
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(Text.from_ansi(output), soft_wrap=True)
    svg = console.export_svg(title="make demo", theme=SVG_EXPORT_THEME, unique_id="demo")
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code", "ui-monospace")


def into_readme(output: str) -> None:
    """Replaces the README's copy of the output."""
    block = f"<!-- demo -->\n```text\n{Text.from_ansi(output).plain.strip()}\n```\n<!-- /demo -->"
    readme = README.read_text(encoding="utf-8")
    README.write_text(re.sub("<!-- demo -->.*?<!-- /demo -->", lambda _: block, readme, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    shown = demo_output()
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(picture(shown), encoding="utf-8")
    else:
        (HERE / "demo.svg").write_text(picture(shown), encoding="utf-8")
        into_readme(shown)
