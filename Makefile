# `make` alone lists the targets. PYTHON makes .venv, EXTRAS=gpu,dev is for a GPU machine, ARGS go to the command.
PYTHON ?= python3
EXTRAS ?= cpu,dev
ARGS ?=

BIN := .venv/bin
# The environment is up to date when this file is younger than what it was made from.
INSTALLED := .venv/installed-$(EXTRAS)
# Other extras may hold the other build of FAISS, and the two cannot share an environment: then start afresh.
OTHER_EXTRAS := $(filter-out $(INSTALLED),$(wildcard .venv/installed-*))
MIN_PYTHON := $(shell sed -n 's/^min_python *= *//p' settings.ini)
MAX_PYTHON := $(shell sed -n 's/^max_python *= *//p' settings.ini)

.PHONY: help setup train report test lab docs clean

help:
	@echo "make setup   make the environment in .venv (the other targets do it when it is missing)"
	@echo "make train   one training run; ARGS=\"-p dataset cifar10 -p n_labels 40\" chooses another one"
	@echo "make report  all runs in outputs/ on one page; ARGS=\"-p outputs outputs/mine\" chooses a folder"
	@echo "make test    all notebooks and tests; ARGS=--slow adds the slow ones, ARGS=\"-k density\" chooses"
	@echo "make lab     open the notebooks in JupyterLab"
	@echo "make docs    the documentation as web pages in _docs/"
	@echo "make clean   remove what can be made again; data/ and outputs/ stay"
	@echo "Options: PYTHON=$(PYTHON) EXTRAS=$(EXTRAS) ARGS=\"$(ARGS)\""

setup: $(INSTALLED)
	@echo "The environment is ready: source $(BIN)/activate"

$(INSTALLED): settings.ini setup.py constraints.txt
ifneq ($(and $(wildcard $(BIN)/pip),$(if $(OTHER_EXTRAS),,same)),)
	@echo "Updating the environment in .venv"
else
	@command -v $(PYTHON) >/dev/null || { echo "PYTHON=$(PYTHON) is not on this machine: pmlp needs Python $(MIN_PYTHON) to $(MAX_PYTHON), choose one that is, such as make PYTHON=python$(MAX_PYTHON)"; exit 1; }
	@$(PYTHON) -c 'import sys; \
	first, last, this = "$(MIN_PYTHON)", "$(MAX_PYTHON)", "%d.%d" % sys.version_info[:2]; \
	parts = lambda version: [int(part) for part in version.split(".")]; \
	parts(first) <= parts(this) <= parts(last) or sys.exit("pmlp needs Python %s to %s, but $(PYTHON) is %s: " \
	"choose another with make PYTHON=python%s" % (first, last, this, last))'
	@echo "Making the environment in .venv; the first time this takes some minutes and about 6 GB"
	$(PYTHON) -m venv --clear .venv
endif
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[$(EXTRAS)]' -c constraints.txt
	@touch $@

train: RUN := outputs/train-$(shell date +%Y%m%d-%H%M%S)-$(shell echo $$PPID).ipynb
train: $(INSTALLED)
	@echo "Training: nbs/train.ipynb $(ARGS) -> $(RUN)"
	@mkdir -p outputs
	@$(BIN)/papermill nbs/train.ipynb $(RUN) --log-output $(ARGS)
	@echo "Done: $(RUN)"

report: $(INSTALLED)
	@echo "Reporting: nbs/report.ipynb $(ARGS) -> outputs/report.html"
	@mkdir -p outputs
	@$(BIN)/papermill nbs/report.ipynb outputs/report.ipynb --no-progress-bar $(ARGS)
	@$(BIN)/jupyter nbconvert --to html --no-input --log-level WARN outputs/report.ipynb
	@echo "Done: open outputs/report.html"

test: $(INSTALLED)
	@echo "Testing: notebooks, tests, checks"
	@OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)

lab: $(INSTALLED)
	@echo "Opening JupyterLab on nbs/"
	@$(BIN)/jupyter lab nbs $(ARGS)

docs: $(INSTALLED)
	@echo "Writing the documentation to _docs/"
	@$(BIN)/python -m sphinx -c docs -W --keep-going -E -q . _docs/html
	@echo "Done: open _docs/html/index.html"

clean:
	@echo "Removing .venv, the documentation, builds and caches"
	@rm -rf .venv _docs docs/api build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	@find . \( -path ./data -o -path ./outputs -o -path ./.git \) -prune -o \
		\( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +
