"""The test command: checks, then every notebook, then pytest; the last line is `N passed, N failed`.

python .ci/test.py                                    everything that is quick
python .ci/test.py --slow                             also `#| slow` cells and tests marked slow
python .ci/test.py nbs/graph/12_density.ipynb tests/…       the checks and only these notebooks and tests
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from nbdev.frontmatter import FrontmatterProc
from nbdev.process import NBProcessor

import checks
import reading
from checks import notebooks

ROOT = Path(__file__).resolve().parent.parent
counts = Counter()
failures = []


def report(result, name, seconds, fix=None, details=""):
    """Count and print one result as soon as it is known."""
    counts[result] += 1
    print(f"{result:8}{name} ({seconds:.1f} s)", flush=True)
    if result == "failed":
        failures.append(f"{name}\n    fix: {fix}")
        print("\n".join(f"        {line}" for line in [*details.splitlines(), f"fix: {fix}"]), flush=True)


def run_checks():
    print("== checks", flush=True)
    for name, check, fix in checks.CHECKS + reading.CHECKS:
        start = time.time()
        try:
            problems = check(ROOT)
        except Exception as error:  # a broken file must not hide what the other checks find
            problems = [f"{type(error).__name__}: {error}"]
        report("failed" if problems else "passed", name, time.time() - start, fix, "\n".join(problems))


def run_notebook(path, flags):
    """Run one notebook as nbdev_test does, in a process of its own."""
    name = path.relative_to(ROOT).as_posix()
    start = time.time()
    front_matter = getattr(NBProcessor(path, procs=FrontmatterProc, process=True).nb, "frontmatter_", {})
    if front_matter.get("skip_exec"):
        return report("skipped", f"{name}, whose front matter says skip_exec", time.time() - start)
    command = [Path(sysconfig.get_path("scripts")) / "nbdev_test", "--path", path, "--flags", " ".join(flags)]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    fix = f"nbdev_test --path {name} shows the error again, `make lab` opens the notebook"
    report("failed" if run.returncode else "passed", name, time.time() - start, fix, run.stdout)


def run_pytest(paths, flags):
    print("== pytest", flush=True)
    with TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", *paths, f"--junit-xml={results}", *(f"--{flag}" for flag in flags)]
        status = subprocess.run(command, cwd=ROOT).returncode
        suites = list(ElementTree.parse(results).iter("testsuite")) if results.exists() else []
    total, failed, errors, skipped = (
        sum(int(suite.get(key)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    failed = max(failed + errors, int(status != 0))
    counts.update(passed=max(total - failed - skipped, 0), failed=failed, skipped=skipped)
    if failed:
        failures.append(f"{failed} of pytest's tests\n    fix: pytest --last-failed shows them again")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="notebooks and tests to run; all of them if none is named")
    parser.add_argument("--slow", action="store_true", help="also run what is marked slow")
    arguments = parser.parse_args()
    flags = ["slow"] if arguments.slow else []
    books = [Path(path).resolve() for path in arguments.paths if path.endswith(".ipynb")]
    tests = [path for path in arguments.paths if not path.endswith(".ipynb")]
    if not arguments.paths:
        books, tests = notebooks(ROOT), ["tests"]

    run_checks()
    if books:
        print("== notebooks", flush=True)
        with ThreadPoolExecutor(min(os.cpu_count(), 4)) as pool:
            list(pool.map(lambda path: run_notebook(path, flags), books))
    if tests:
        run_pytest(tests, flags)

    if failures:
        print("\nFailed (the fixes are for a shell where .venv is active):")
        print("\n".join(f"  {failure}" for failure in failures))
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed{skipped}", flush=True)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
