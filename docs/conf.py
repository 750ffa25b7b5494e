"""Sphinx's settings: `make docs` writes _docs/ from the notebooks as they are, without running them and without a network.

The repository's root is the source, so every link works on a code host as it does here. Cells under `#| hide` are left
out, cells under `#| echo: false` show only their output. The reference of a module comes from its docstrings and from
the comments beside its parameters.
"""

import dataclasses
import inspect
import logging
import re
import sys
from configparser import ConfigParser
from pathlib import Path

import nbformat
from fastcore.docments import docments

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / ".ci")]

from readme import description_of, directives_of

logging.getLogger("faiss").setLevel(logging.WARNING)  # it tells Sphinx how it was loaded
settings = ConfigParser()
settings.read(ROOT / "settings.ini", encoding="utf-8")

project = html_title = settings["DEFAULT"]["lib_name"]
release = settings["DEFAULT"]["version"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx-mathjax-offline"]
include_patterns = ["nbs/**.ipynb", "docs/**.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = ["**/.ipynb_checkpoints"]
root_doc = "nbs/index"
templates_path = ["templates"]
html_additional_pages = {"index": "index.html"}  # leads to the root document
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["docs.css"]
html_copy_source = html_show_copyright = False
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_heading_anchors = 3
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
add_module_names = False
default_role = "code"


def navigation():
    """The side bar: the entries, a part for each floor in the order of its numbers, the benchmarks, the rest."""
    parts = {}
    for path in sorted((ROOT / "nbs").rglob("[!.]*.ipynb"), key=lambda path: (not path.stem[0].isdigit(), path.stem)):
        parts.setdefault(path.parent.name, []).append("/" + path.relative_to(ROOT).with_suffix("").as_posix())
    parts = {"start here": [name for name in parts.pop("nbs") if name != "/nbs/index"]} | parts
    parts["about"] = ["/docs/how_it_fits", "/docs/recipes/index", "/docs/reference", "/CONTRIBUTING", "/CHANGELOG"]
    return "\n\n".join(f"```{{toctree}}\n:hidden:\n:caption: {part.capitalize()}\n\n" + "\n".join(names) + "\n```" for part, names in parts.items())


def show_notebook(app, name, source):
    """What the documentation shows of a notebook."""
    if not app.env.doc2path(name).suffix == ".ipynb":
        return
    notebook = nbformat.reads(source[0], as_version=4)
    shown = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            directives, cell.source = directives_of(cell.source)
            if "hide" in directives or any(text.startswith("default_exp") for text in directives):
                continue
            cell.metadata.tags = cell.metadata.get("tags", []) + ["remove-input"] * ("echo: false" in directives)
            cell.metadata.mystnb = {"image": {"alt": description_of(directives)}}
        shown.append(cell)
    notebook.cells = shown + [nbformat.v4.new_markdown_cell(navigation())] * (name == root_doc)
    source[0] = nbformat.writes(notebook)


def write_reference(app):
    """One page for each module; docs/reference.md lists them."""
    folder, pages = ROOT / "docs" / "api", {}
    for path in (ROOT / "nbs").rglob("[!.]*.ipynb"):
        for module in re.findall(r"default_exp (\w+)", path.read_text(encoding="utf-8")):
            link = f"[The notebook that explains it](../../{path.relative_to(ROOT).as_posix()})"
            pages[folder / f"{module}.md"] = f"# pmlp.{module}\n\n{link}\n\n```{{eval-rst}}\n.. automodule:: pmlp.{module}\n   :members:\n```\n"
    folder.mkdir(exist_ok=True)
    for path in set(folder.glob("*.md")) - pages.keys():
        path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def plain(text):
    """Markdown's text as reStructuredText: what stands between backticks stays, other marks are no marks."""
    return re.sub(r"`[^`]*`|[*_|\\]", lambda match: match[0] if len(match[0]) > 1 else f"\\{match[0]}", text)


def has_fields(documented):
    """Whether a class is made of annotated fields: a dataclass or a named tuple."""
    return dataclasses.is_dataclass(documented) or hasattr(documented, "_fields")


def comments_of(documented):
    """The comment beside each parameter of a function or a class, or beside each field of a class that is made of them."""
    if inspect.isclass(documented) and issubclass(documented, BaseException):
        return {}
    if not has_fields(documented):
        starred = re.findall(r"\*(\w+)", str(inspect.signature(documented)))  # docments does not read their comments
        return {name: comment for name, comment in docments(documented, returns=True).items() if name not in ("self", *starred)}
    sources = [inspect.getsource(base) for base in reversed(documented.__mro__) if base.__module__.startswith("pmlp.")]
    comments = dict(re.findall(r"^    (\w+): [^#\n]*#\s*(.+)$", "\n".join(sources), re.MULTILINE))
    return {field: comments.get(field) for field in inspect.signature(documented).parameters}


def shorten_signature(app, what, name, documented, options, signature, returns):
    """Show the fields of a class without their annotations, which hold the functions that check them."""
    if not (inspect.isclass(documented) and has_fields(documented) and signature):
        return None
    parameters = inspect.signature(documented).parameters.values()
    return str(inspect.Signature([parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters])), None


def describe_parameters(app, what, name, documented, options, lines):
    """Add the comments beside parameters to a docstring."""
    lines[:] = [plain(line) for line in lines]
    if what in ("class", "function", "method"):
        comments = {key: plain(comment) for key, comment in comments_of(documented).items() if comment}
        lines += ["", *(f":{'returns' if key == 'return' else f'param {key}'}: {comment}" for key, comment in comments.items())]


def skip_generated(app, what, name, documented, skip, options):
    """Leave out what has no words of its own: methods that scikit-learn writes, and the fields of named tuples."""
    return True if re.fullmatch(r"set_\w+_request", name) or type(documented).__name__ == "_tuplegetter" else None


def setup(app):
    app.connect("builder-inited", write_reference)
    app.connect("source-read", show_notebook)
    app.connect("autodoc-process-docstring", describe_parameters)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-skip-member", skip_generated)
