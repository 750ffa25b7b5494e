"""Build the documentation in _docs/ from the notebooks as they are, without running them and without a network.

    python .ci/docs.py              write _docs/ and name every link that leads nowhere

Sphinx reads copies of the notebooks: cells under `#| hide` are left out, cells under `#| echo: false` show only their
output. The reference of a module comes from its docstrings and from the comments beside its parameters.
"""

import dataclasses
import inspect
import io
import logging
import re
import shutil
import sys
from configparser import ConfigParser
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

import nbformat
from fastcore.docments import docments
from sphinx.application import Sphinx
from sphinx.util.console import strip_escape_sequences
from sphinx.util.docutils import docutils_namespace

from checks import notebooks
from readme import description_of, directives_of

logging.getLogger("faiss").setLevel(logging.WARNING)  # it tells Sphinx how it was loaded

ROOT = Path(__file__).resolve().parent.parent
# Captions of the navigation, and the notebooks below each.
PARTS = [
    ("Start here", r"explore|train"),
    ("The method", r"0[0-5]\w*"),
    ("Training", r"(0[6-9]|10)\w*"),
    ("Experiments", r"1[1-9]\w*|report"),
    ("Measured", r"benchmarks/\w+"),
]
CONFIG = {
    "project": "pmlp",
    "extensions": ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx-mathjax-offline"],
    "html_theme": "furo",
    "html_title": "pmlp",
    "html_static_path": [str(ROOT / ".ci" / "docs_static")],
    "html_css_files": ["docs.css"],
    "html_copy_source": False,
    "html_show_copyright": False,
    "nb_execution_mode": "off",
    "nb_merge_streams": True,
    "nb_render_markdown_format": "myst",
    "myst_enable_extensions": ["amsmath", "dollarmath"],
    "myst_heading_anchors": 3,
    "python_maximum_signature_line_length": 80,
    "autodoc_member_order": "bysource",
    "add_module_names": False,
    "default_role": "code",
}


def prepare(path):
    """The notebook as the documentation shows it."""
    notebook = nbformat.read(path, as_version=4)
    shown = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            directives, cell.source = directives_of(cell.source)
            if "hide" in directives or any(text.startswith("default_exp") for text in directives):
                continue
            cell.metadata.tags = cell.metadata.get("tags", []) + ["remove-input"] * ("echo: false" in directives)
            cell.metadata.mystnb = {"image": {"alt": description_of(directives)}}
        shown.append(cell)
    notebook.cells = shown
    return notebook


def navigation(names):
    """The hidden tables of contents that make the side bar, in reading order."""
    parts = [(caption, [name for name in names if re.fullmatch(pattern, name)]) for caption, pattern in PARTS]
    left = set(names) - {name for _, part in parts for name in part} - {"index"}
    if left:
        raise SystemExit(f"No part of the navigation takes {', '.join(left)}: name them in PARTS of .ci/docs.py.")
    parts.append(("Reference", ["api", "CONTRIBUTING", "CHANGELOG"]))
    head = "```{{toctree}}\n:hidden:\n:caption: {}\n\n"
    return "\n\n".join(head.format(caption) + "\n".join(part) + "\n```" for caption, part in parts)


def write_reference(source, modules):
    """One page for each module, and one that lists them."""
    (source / "api").mkdir()
    for module, name in modules.items():
        text = f"# pmlp.{module}\n\n[The notebook that explains it](../{name}.ipynb)\n\n```{{eval-rst}}\n.. automodule:: pmlp.{module}\n   :members:\n```\n"
        (source / "api" / f"{module}.md").write_text(text, encoding="utf-8")
    names = "\n".join(f"api/{module}" for module in modules)
    text = f"# Reference\n\nEvery public function and class, by module, in reading order.\n\n```{{toctree}}\n:maxdepth: 1\n\n{names}\n```\n"
    (source / "api.md").write_text(text, encoding="utf-8")


def write_source(source, root=ROOT):
    """Everything that Sphinx reads."""
    paths = {path.relative_to(root / "nbs").with_suffix("").as_posix(): path for path in notebooks(root)}
    modules = {}
    for name, path in paths.items():
        modules |= dict.fromkeys(re.findall(r"default_exp (\w+)", path.read_text(encoding="utf-8")), name)
        notebook = prepare(path)
        if name == "index":
            for cell in notebook.cells:
                cell.source = cell.source.replace("](../", "](")  # CONTRIBUTING and LICENSE stand beside it here
            notebook.cells.append(nbformat.v4.new_markdown_cell(navigation(paths)))
        (source / name).parent.mkdir(exist_ok=True)
        nbformat.write(notebook, source / f"{name}.ipynb")
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        text = (root / name).read_text(encoding="utf-8").replace("](nbs/", "](")  # the notebooks stand beside it here
        (source / name).write_text(text, encoding="utf-8")
    write_reference(source, modules)


def plain(text):
    """Markdown's text as reStructuredText: what stands between backticks stays, other marks are no marks."""
    return re.sub(r"`[^`]*`|[*_|\\]", lambda match: match[0] if len(match[0]) > 1 else f"\\{match[0]}", text)


def has_fields(documented):
    """Whether a class is made of annotated fields: a dataclass or a named tuple."""
    return dataclasses.is_dataclass(documented) or hasattr(documented, "_fields")


def comments_of(documented):
    """The comments beside the parameters of a function or a class, or beside the fields of a class and its bases."""
    if not has_fields(documented):
        return docments(documented, returns=True)
    sources = [inspect.getsource(base) for base in reversed(documented.__mro__) if base.__module__.startswith("pmlp.")]
    return dict(re.findall(r"^    (\w+): [^#\n]*#\s*(.+)$", "\n".join(sources), re.MULTILINE))


def shorten_signature(app, what, name, documented, options, signature, returns):
    """Show the fields of a class without their annotations, which hold the functions that check them."""
    if not (inspect.isclass(documented) and has_fields(documented) and signature):
        return None
    parameters = inspect.signature(documented).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(bare)), None


def describe_parameters(app, what, name, documented, options, lines):
    """Add the comments beside parameters to a docstring."""
    lines[:] = [plain(line) for line in lines]
    if what not in ("class", "function", "method"):
        return
    lines.append("")
    for parameter, comment in comments_of(documented).items():
        if comment:
            field = "returns" if parameter == "return" else f"param {parameter}"
            lines.append(f":{field}: {plain(comment)}")


def skip_generated(app, what, name, documented, skip, options):
    """Leave out what has no words of its own: methods that scikit-learn writes, and the fields of named tuples."""
    generated = re.fullmatch(r"set_\w+_request", name) or type(documented).__name__ == "_tuplegetter"
    return True if generated else None


def build(target, root=ROOT):
    """Write the documentation to a folder; return the warnings."""
    parser = ConfigParser()
    parser.read(root / "settings.ini", encoding="utf-8")
    config = CONFIG | {"release": parser["DEFAULT"]["version"]}
    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        write_source(source, root)
        pages, doctrees, warnings = Path(folder) / "html", Path(folder) / "doctrees", io.StringIO()
        with docutils_namespace():  # a second build in one process begins afresh
            app = Sphinx(source, None, pages, doctrees, "html", confoverrides=config, status=None, warning=warnings)
            app.connect("autodoc-process-docstring", describe_parameters)
            app.connect("autodoc-process-signature", shorten_signature)
            app.connect("autodoc-skip-member", skip_generated)
            app.build()
        shutil.copytree(pages, target, dirs_exist_ok=True)  # MyST-NB writes more beside the pages
        return strip_escape_sequences(warnings.getvalue()).splitlines()


class Links(HTMLParser):
    """Collects what a page names (`anchors`), leads to (`targets`) and loads (`loaded`)."""

    def __init__(self):
        super().__init__()
        self.anchors, self.targets, self.loaded = set(), [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors.update(found[name] for name in ("id", "name") if found.get(name))
        if tag == "a":
            self.targets.append(found.get("href"))
        elif tag == "link":
            self.loaded.append(found.get("href"))
        elif tag in ("img", "script", "iframe"):
            self.loaded.append(found.get("src"))


def read_links(page):
    """The links of one page."""
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def broken_links(folder):
    """What the pages in a folder lead to or load that is not in it."""
    pages = {page.resolve(): read_links(page) for page in sorted(Path(folder).rglob("*.html"))}
    problems = []
    for page, links in pages.items():
        name = page.relative_to(Path(folder).resolve())
        for target in filter(None, links.targets + links.loaded):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in links.loaded and parts.scheme != "data":
                    problems.append(f"{name} loads {target} from another host")
                continue
            place = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not place.is_file():
                problems.append(f"{name} leads to {target}, which does not exist")
            elif parts.fragment and place in pages and unquote(parts.fragment) not in pages[place].anchors:
                problems.append(f"{name} leads to {target}, which has no such place")
    return sorted(set(problems))


if __name__ == "__main__":
    shutil.rmtree(ROOT / "_docs", ignore_errors=True)
    sys.exit("\n".join(build(ROOT / "_docs") + broken_links(ROOT / "_docs")) or None)
