"""What must hold in any house: numbers are unique, nobody imports from a floor above, every name has one owner who lists it."""

import ast
from collections import Counter, defaultdict
from graphlib import TopologicalSorter

import pytest

from repository import NOTEBOOKS, ROOT, read_code

PAGES = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "pmlp").glob("*.py") if path.stem != "_modidx"}
NUMBERED = {name: name.split("/")[-1].split("_")[0] for name in NOTEBOOKS if name.split("/")[-1][:2].isdigit()}
OWNERS = {  # the notebook that a module comes from
    source.split()[-1]: name for name, path in NOTEBOOKS.items() for source in read_code(path) if source.startswith("#| default_exp")
}


def listed(tree):
    """The names in a module's `__all__`."""
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"]
    return [name for value in values for name in ast.literal_eval(value)]


LISTED = {module: listed(tree) for module, tree in PAGES.items()}


def imports(tree):
    """Pairs of a module of the package and a name that is imported from it, None for the module as a whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name.removeprefix("pmlp."), None) for alias in node.names if alias.name.startswith("pmlp."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "pmlp" or getattr(node, "level", 0):
            module = (node.module or "").removeprefix("pmlp").removeprefix(".") or "__init__"
            for alias in node.names:
                yield (alias.name, None) if module == "__init__" and alias.name in PAGES else (module, alias.name)


IMPORTS = {f"pmlp/{module}.py": list(imports(tree)) for module, tree in PAGES.items()}
IMPORTS |= {f"nbs/{name}": [found for code in read_code(path) for found in imports(ast.parse(code))] for name, path in NOTEBOOKS.items()}


def test_modules_import_in_no_circle():
    edges = {module: {found for found, _ in IMPORTS[f"pmlp/{module}.py"]} for module in PAGES if module != "__init__"}
    TopologicalSorter(edges).prepare()  # raises CycleError, which names the circle


def test_numbers_are_unique():
    assert [number for number, count in Counter(NUMBERED.values()).items() if count > 1] == []


@pytest.mark.parametrize("name", NUMBERED)
def test_nobody_imports_from_a_higher_number(name):
    owners = {OWNERS[module] for module, _ in IMPORTS[f"nbs/{name}"] if module in OWNERS}
    assert {owner for owner in owners if NUMBERED[owner] > NUMBERED[name]} == set()


@pytest.mark.parametrize("place", IMPORTS)
def test_an_imported_name_is_public(place):
    missing = [(module, name) for module, name in IMPORTS[place] if name and name not in LISTED.get(module, ()) and name != "__version__"]
    assert missing == [], "export it with `#| export`, or keep it where it is used"


def test_modules_import_each_other_relatively():
    absolute = {module: [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level and node.module.startswith("pmlp")]
                for module, tree in PAGES.items() if module != "__init__"}
    assert {module: names for module, names in absolute.items() if names} == {}, "nbdev turns only imports that stand on one line"


def test_a_public_name_has_one_owner():
    owners = defaultdict(list)
    for module, names in LISTED.items():
        for name in names if module != "__init__" else ():
            owners[name].append(module)
    assert {name: modules for name, modules in owners.items() if len(modules) > 1} == {}


@pytest.mark.parametrize("code, expected", [
    ("from pmlp.density import a, b", [("density", "a"), ("density", "b")]),
    ("import pmlp.density as d, os", [("density", None)]),
    ("from pmlp import density, knn", [("density", None), ("__init__", "knn")]),
    ("def f():\n    from pmlp.density import a", [("density", "a")]),
    ("from os import path\nimport pmlp", []),
])
def test_imports_are_found_wherever_they_stand(code, expected):
    assert list(imports(ast.parse(code))) == expected
