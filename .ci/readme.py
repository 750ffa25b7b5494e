"""Make README.md and its images from nbs/index.ipynb.

    python .ci/readme.py            write the files
    python .ci/readme.py --check    write nothing, name the files that are out of step

Cells under `#| hide` are left out, cells under `#| echo: false` show only their output, `#| fig-alt: …` describes a
figure to those who cannot see it. Figures become files in nbs/images/, because a code host does not show images that
are written into the text.
"""

import argparse
import posixpath
import re
import sys
from itertools import takewhile
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parent.parent
DIRECTIVE = re.compile(r"#\s*\|\s*(.*)")
LINK = re.compile(r'(\]\(|(?:src|href)=")([^)"\s]+)')
NOT_RELATIVE = re.compile(r"[a-z]+:|[#/]")


def link_from_root(match):
    """Rewrite a link that works beside index.ipynb into one that works beside README.md."""
    opening, target = match.groups()
    if NOT_RELATIVE.match(target):
        return match[0]
    return opening + posixpath.normpath(posixpath.join("nbs", target))


def directives_of(source):
    """The directives that a cell begins with, and the rest of its source."""
    lines = source.splitlines(keepends=True)
    directives = [match[1] for match in takewhile(bool, map(DIRECTIVE.match, lines))]
    return directives, "".join(lines[len(directives) :])


def description_of(directives):
    """What `#| fig-alt: …` says, or nothing."""
    return "".join(text.removeprefix("fig-alt:").strip() for text in directives if text.startswith("fig-alt:"))


def prepare(cell):
    """Apply a cell's directives and links in place; return whether the README shows the cell."""
    if cell.cell_type == "markdown":
        cell.source = LINK.sub(link_from_root, cell.source)
    if cell.cell_type != "code":
        return cell.cell_type == "markdown"
    directives, cell.source = directives_of(cell.source)
    cell.metadata.transient = {"remove_source": "echo: false" in directives}
    cell.metadata.description = description_of(directives)
    return "hide" not in directives


def render(root=ROOT):
    """Return the content of README.md and of each image, by path from the root."""
    notebook = nbformat.read(root / "nbs" / "index.ipynb", as_version=4)
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


def out_of_step(root=ROOT):
    """Name the files that differ from what the notebook makes, and the images it no longer makes."""
    files = render(root)
    leftover = {path.relative_to(root).as_posix() for path in root.glob("nbs/images/index_*")} - files.keys()
    changed = {
        path for path, content in files.items() if not (root / path).exists() or (root / path).read_bytes() != content
    }
    return sorted(leftover | changed)


def write(root=ROOT):
    """Bring README.md and its images in step with the notebook."""
    files = render(root)
    for path in out_of_step(root):
        if path in files:
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_bytes(files[path])
        else:
            (root / path).unlink()
        print("written" if path in files else "removed", path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, name the files that are out of step")
    if parser.parse_args().check:
        stale = out_of_step()
        sys.exit("\n".join(f"{path} is out of step: python .ci/readme.py" for path in stale) or None)
    write()
