"""Make README.md and its images from nbs/index.ipynb: python .ci/readme.py

Cells under `#| hide` are left out, cells under `#| echo: false` show only their output, `#| fig-alt: …` describes a
figure to those who cannot see it. Figures become files in nbs/images/, because a code host does not show images that
are written into the text.
"""

import posixpath
import re
from itertools import takewhile
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parent.parent
DIRECTIVE = re.compile(r"#\s*\|\s*(.*)")
LINK = re.compile(r'(\]\(|(?:src|href)=")(?![a-z]+:|[#/])([^)"\s]+)')  # one that works beside index.ipynb


def directives_of(source):
    """The directives that a cell begins with, and the rest of its source."""
    lines = source.splitlines(keepends=True)
    directives = [match[1] for match in takewhile(bool, map(DIRECTIVE.match, lines))]
    return directives, "".join(lines[len(directives) :])


def description_of(directives):
    """What `#| fig-alt: …` says, or nothing."""
    return "".join(text.removeprefix("fig-alt:").strip() for text in directives if text.startswith("fig-alt:"))


def from_root(text):
    """A text with its links written for a page in the root."""
    return LINK.sub(lambda match: match[1] + posixpath.normpath(posixpath.join("nbs", match[2])), text)


def prepare(cell):
    """Apply a cell's directives and links in place; return whether the README shows the cell."""
    if cell.cell_type != "code":
        cell.source = from_root(cell.source)
        return cell.cell_type == "markdown"
    for output in cell.outputs:
        if "text/markdown" in output.get("data", {}):
            output.data["text/markdown"] = from_root(output.data["text/markdown"])
    directives, cell.source = directives_of(cell.source)
    cell.metadata.transient = {"remove_source": "echo: false" in directives}
    cell.metadata.description = description_of(directives)
    return "hide" not in directives


def render(notebook):
    """The content of README.md and of each image, by path from the root."""
    notebook.cells = [cell for cell in notebook.cells if prepare(cell)]
    notebook.metadata.language_info = {"name": "python"}  # a clean notebook does not say it
    body, resources = MarkdownExporter().from_notebook_node(notebook)
    files = {}
    for number, (name, content) in enumerate(resources["outputs"].items(), start=1):
        path = f"nbs/images/index_{number}{Path(name).suffix}"
        cell = notebook.cells[int(re.match(r"output_(\d+)_", name)[1])]
        words = cell.metadata.description or f"Figure {number}"
        body = re.sub(rf"!\[\w+\]\({re.escape(name)}\)", f"![{words}]({path})", body)
        files[path] = content
    body = re.sub(r"<style scoped>.*?</style>\n", "", body, flags=re.DOTALL)  # of tables; a code host shows it as text or not at all
    body = re.sub(r"[ \t]+$", "", body, flags=re.MULTILINE)
    files["README.md"] = (re.sub(r"\n{3,}", "\n\n", body).strip() + "\n").encode()
    return files


if __name__ == "__main__":
    made = render(nbformat.read(ROOT / "nbs" / "index.ipynb", as_version=4))
    for path in (ROOT / "nbs" / "images").glob("index_*"):
        path.unlink()
    for name, content in made.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_bytes(content)
