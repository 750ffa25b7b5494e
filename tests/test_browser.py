"""Notebooks and documentation in a real browser: Debian's chromium, driven by playwright; pictures in outputs/browser/.

Everything runs in a copy of the repository, because JupyterLab saves the notebooks that it shows.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from repository import ROOT

PICTURES = ROOT / "outputs" / "browser"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MINUTES = 60_000  # in playwright's milliseconds

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt install chromium"),
]
playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")


@pytest.fixture(scope="module")
def browser():
    """A browser without a window."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield running
        running.close()


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What a notebook needs of the repository."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("nbs", "pmlp"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    shutil.copy(ROOT / "settings.ini", folder)
    return folder


@pytest.fixture(scope="module")
def lab(copy, tmp_path_factory):
    """The address of a JupyterLab on the copy's notebooks, without its news and with all cells on the page."""
    settings = tmp_path_factory.mktemp("settings")
    for name, values in (("notebook-extension/tracker", {"windowingMode": "none"}), ("apputils-extension/notification", {"fetchNews": "false"})):
        path = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(values), encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex()
    command = [sys.executable, "-m", "jupyterlab", str(copy / "nbs"), "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", f"--IdentityProvider.token={token}", f"--LabApp.user_settings_dir={settings}", f"--LabApp.workspaces_dir={settings}"]
    environment = os.environ | {"PYTHONPATH": str(copy), "PMLP_HOME": str(copy), "OMP_WAIT_POLICY": "PASSIVE"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_for(f"http://127.0.0.1:{port}/api/status?token={token}")
            yield lambda notebook: f"http://127.0.0.1:{port}/lab/tree/{notebook}?reset&token={token}"
        finally:
            server.terminate()


def wait_for(address):
    """Return when a server answers."""
    for _ in range(240):
        try:
            return urlopen(address).close()
        except URLError:
            time.sleep(0.5)
    raise TimeoutError("JupyterLab did not start within two minutes")


def open_notebook(browser, address):
    """A page that shows a notebook whose kernel is ready."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=2 * MINUTES)
    page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=2 * MINUTES)
    return page


def run_all(page, minutes):
    """Restart the kernel, run all cells, wait for the last one, save."""
    page.locator(".lm-MenuBar-itemLabel", has_text="Kernel").click()
    page.locator(".lm-Menu-itemLabel", has_text="Restart Kernel and Run All Cells").click()
    page.locator(".jp-Dialog button.jp-mod-accept").click()
    page.wait_for_function(
        """() => {
            const shown = [...document.querySelectorAll(".jp-Notebook .jp-CodeCell .jp-InputPrompt")].map(part => part.textContent);
            return shown.length > 0 && shown.every(text => /\\[\\d+\\]/.test(text)) || document.querySelector("[data-mime-type*=error]");
        }""",
        timeout=minutes * MINUTES,
    )
    page.keyboard.press("Control+s")
    page.wait_for_timeout(3000)


def saved_outputs(path):
    """The outputs in a saved notebook, and the kinds of those that are errors or warnings."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return outputs, [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]


def test_train_with_another_parameter(browser, lab, copy):
    page = open_notebook(browser, lab("train.ipynb"))
    line = page.locator(".jp-CodeCell .cm-line", has_text="steps = None").first
    line.click()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    page.keyboard.type("steps = 30")
    run_all(page, minutes=10)
    page.locator("h2", has_text="The result").scroll_into_view_if_needed()
    page.screenshot(path=PICTURES / "train.png")
    page.close()

    outputs, problems = saved_outputs(copy / "nbs" / "train.ipynb")
    assert problems == []
    texts = ["".join(output.get("data", {}).get("text/markdown", [])) for output in outputs]
    assert any("**steps = 30**" in text for text in texts)
    assert any("test_accuracy" in text for text in texts)
    assert any("30/30" in "".join(output.get("data", {}).get("text/plain", [])) for output in outputs)  # the bar has arrived
    (result,) = (copy / "outputs").rglob("result.json")
    assert json.loads(result.read_text(encoding="utf-8"))["config"]["steps"] == 30


def test_explore(browser, lab, copy):
    page = open_notebook(browser, lab("explore.ipynb"))
    run_all(page, minutes=5)
    slider = page.locator(".widget-slider .noUi-handle").first
    slider.scroll_into_view_if_needed()
    page.wait_for_timeout(3000)
    before = page.screenshot(path=PICTURES / "explore.png")
    slider.click()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(5000)
    after = page.screenshot(path=PICTURES / "explore_moved.png")
    assert after != before
    assert page.locator("[data-mime-type*=error]").count() == 0
    page.close()
    assert saved_outputs(copy / "nbs" / "explore.ipynb")[1] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_front_page_of_the_documentation(browser, site, scheme):
    page = browser.new_page(viewport={"width": 1400, "height": 1000}, color_scheme=scheme)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/nbs/index.html")
    page.wait_for_timeout(1000)
    page.screenshot(path=PICTURES / f"docs_{scheme}.png")
    page.screenshot(path=PICTURES / f"docs_{scheme}_whole.png", full_page=True)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) > 600) == (scheme == "light")
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")

    page.goto((site / "nbs" / "graph" / "12_density.html").as_uri())
    page.wait_for_selector("mjx-container", timeout=MINUTES)
    page.screenshot(path=PICTURES / f"equations_{scheme}.png")
    page.goto((site / "search.html").as_uri() + "?q=bandwidth")
    page.wait_for_selector("#search-results li a", timeout=MINUTES)
    assert [address for address in asked if not address.startswith(("file:", "data:"))] == []
    page.close()
