"""Checks for those who read: openings, exercises, public names with their comments and examples."""

import ast
import io
import re
import tokenize

from checks import notebooks, read_notebook

CORE = ("01_neighbors", "02_density", "03_propagation", "04_estimator", "05_theory")
OPENING = {
    "a heading": r"\A# \S",
    "a line `> ` on what it teaches": r"^> \S",
    "`**Read before:**`": r"\*\*Read before:\*\*",
    "`**Running time:**`": r"\*\*Running\s+time:\*\*",
    "`**Reading time:**`": r"\*\*Reading\s+time:\*\*",
}
FOLDED = {"source_hidden": True, "outputs_hidden": True}


def source(cell):
    return "".join(cell["source"])


def openings(root):
    """Notebooks whose first text does not say what they teach, what to read before, and how long they take."""
    problems = []
    for path in notebooks(root):
        if path.name == "index.ipynb":  # the front page
            continue
        shown = [cell for cell in read_notebook(path)["cells"] if cell["cell_type"] != "raw"]  # raw: front matter
        text = source(shown[0]) if shown and shown[0]["cell_type"] == "markdown" else ""
        missing = [name for name, pattern in OPENING.items() if not re.search(pattern, text, re.M)]
        if missing:
            problems.append(f"{path.relative_to(root)} opens without {', '.join(missing)}")
    return problems


def unfolded_solutions(root):
    """Core notebooks that do not end with exercises and two folded solutions."""
    problems = []
    for name in CORE:
        cells = read_notebook(root / "nbs" / f"{name}.ipynb")["cells"]
        text, *solutions = cells[-3:]
        if not source(text).startswith("## Exercises"):
            problems.append(f"nbs/{name}.ipynb does not end with `## Exercises` and two solutions")
            continue
        for number, cell in enumerate(solutions, 1):
            if not source(cell).startswith(f"# Solution {number}") or not re.search(r"^(assert|test_)| assert", source(cell), re.M):
                problems.append(f"nbs/{name}.ipynb, solution {number} has no `# Solution {number}` line or no assertion")
            if cell["metadata"] != {"jupyter": FOLDED, "tags": ["hide-cell"]}:
                problems.append(f"nbs/{name}.ipynb, solution {number} is not folded: its metadata must be "
                                f"{{'jupyter': {FOLDED}, 'tags': ['hide-cell']}}")
    return problems


def uncommented(function, commented):
    """Parameters of a function that have no line with a comment of their own."""
    given = function.args
    parameters = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
    parameters = [parameter for parameter in parameters if parameter and parameter.arg not in ("self", "cls")]
    lines = [parameter.lineno for parameter in parameters]
    return [
        parameter.arg
        for parameter in parameters
        if parameter.lineno == function.lineno or parameter.lineno not in commented or lines.count(parameter.lineno) > 1
    ]


def what_is_missing(node, commented, shown):
    """What a public function or class lacks: a docstring, comments, an example."""
    missing = [] if ast.get_docstring(node) else ["no docstring"]
    if node.name not in shown:
        missing.append("no example outside of the cells that export")
    functions = [node] if isinstance(node, ast.FunctionDef) else []
    if isinstance(node, ast.ClassDef):
        functions = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        missing += [f"no comment on {part.target.id}" for part in fields if part.lineno not in commented]
    return missing + [f"no comment on {name}" for function in functions for name in uncommented(function, commented)]


def names_in(tree):
    """All names and attributes that code mentions."""
    nodes = list(ast.walk(tree))
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def undocumented_names(root):
    """Public functions and classes without docstring, comment for each parameter and field, or example in their notebook."""
    problems = []
    for path in notebooks(root):
        code = [source(cell) for cell in read_notebook(path)["cells"] if cell["cell_type"] == "code"]
        exported = [ast.parse(text) for text in code if text.startswith("#| export")]
        public = [text for text in code if re.match(r"#\| export\n", text)]
        others = [re.sub(r"^[%!].*", "", text, flags=re.M) for text in code if not text.startswith(("#| export", "#| default_exp"))]
        shown = set().union(*(names_in(ast.parse(text)) for text in others)) if public else set()
        functions = [node for tree in exported for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:  # whoever sees a function called sees what it returns
            if function.name in shown and function.returns is not None:
                shown |= names_in(function.returns)
        for text in public:
            commented = {token.start[0] for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT}
            for node in ast.parse(text).body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                    missing = what_is_missing(node, commented, shown)
                    problems += [f"{path.relative_to(root)}, {node.name}: {what}" for what in missing]
    return problems


CHECKS = [
    ("notebooks say what they teach and how long they take", openings, "write the opening as CONTRIBUTING.md shows it"),
    ("exercises have folded solutions", unfolded_solutions, "fold source and output in JupyterLab, and tag the cell `hide-cell`"),
    ("public names have comments and an example", undocumented_names, "add what is missing, or export with `#| exporti`"),
]
