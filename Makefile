# `make help` lists the targets. Each sets up .venv when it is missing or out of date.
# Another Python: make demo PYTHON=python3.12

PYTHON ?= python3
PY     := .venv/bin/python
READY  := .venv/.ready

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory
.DELETE_ON_ERROR:
.PHONY: help demo test quick lint book book-check notebooks bench bench-memory bench-cuda campaign release clean

export PYDEVD_DISABLE_FILE_VALIDATION ?= 1

help:
	@echo 'make demo          learn one image of each embedded digit, draw them, train networks on them: some five minutes, no network needed'
	@echo 'make quick         lint and the fast tests: two minutes'
	@echo 'make test          lint, all tests, every notebook, the book: what CI runs'
	@echo 'make lint          ruff'
	@echo 'make book          build the book from the records: _build/html/index.html'
	@echo 'make book-check    open every page of the built book in Chromium, wide and narrow, and check its links, layout and contrast'
	@echo 'make notebooks     execute every notebook on the best records and refresh the tables kept in git'
	@echo 'make bench         measure speed against the literal Algorithm 1: a quarter of an hour'
	@echo 'make bench-memory  Table T11: memory and time beside Dataset Distillation: ten minutes'
	@echo 'make bench-cuda    measure speed and memory on a GPU'
	@echo 'make campaign      kill a hundred runs, make every mistake of tests/mishaps.txt, damage two hundred files; write results/campaign.md'
	@echo 'make release       put the condensed sets into one archive, with a card: _build/release/'
	@echo 'make clean         remove what was built (.venv, results and data stay)'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo 'dclib needs Python 3.11, 3.12 or 3.13; name one, for example: make $(MAKECMDGOALS) PYTHON=python3.12' >&2; exit 1; }
	@echo 'Setting up .venv (once; PyTorch is most of it, so this can take some minutes) ...'
	@$(PY) -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip install -qq -c constraints.txt -e '.[book,dev]'
	@touch $@

demo: $(READY)
	@rm -rf _build/demo && mkdir -p _build/demo
	@echo 'Learning one image for each digit, then the sets of two other networks; training three networks on each ...'
	@DCLIB_RESULTS=_build/demo/results $(PY) notebooks/demo.py _build/demo
	@echo
	@echo 'Next:  make book                                           the whole book, from the records'
	@echo '       .venv/bin/dclib condense mnist -o set.safetensors   a condensed set of real data'
	@echo '       .venv/bin/dclib run cross_arch --preset cpu         Table 2 on MNIST (costs: book/reproducing.md)'

# The book's build and nbval run beside the other tests, so that two cores are busy.
test: lint
	@$(PY) -m pytest

quick: lint
	@$(PY) -m pytest -m 'not slow and not notebooks and not book'

lint: $(READY)
	@$(PY) -m ruff check .

book: $(READY)
	@.venv/bin/jupyter-book build . --all -W -n --keep-going --quiet
	@echo 'The book: _build/html/index.html'

book-check: $(READY)
	@$(PY) tests/bookcheck.py _build/html

notebooks: $(READY)
	@for n in notebooks/*.ipynb; do \
	  echo "$$n"; \
	  $(PY) -m nbconvert --to notebook --execute --inplace --log-level WARN "$$n"; \
	  $(PY) -m nbstripout --keep-count --keep-id --extra-keys metadata.language_info "$$n"; \
	done

bench: $(READY)
	@for b in condense train profile scaling; do $(PY) benchmarks/bench_$$b.py; done

bench-memory: $(READY)
	@$(PY) benchmarks/bench_memory.py

bench-cuda: $(READY)
	@for b in condense train scaling memory; do $(PY) benchmarks/bench_$$b.py --device cuda; done

campaign: $(READY)
	@$(PY) tests/campaign.py --kills 100 --inputs 40 --record

release: $(READY)
	@$(PY) -m dclib.cli.release

clean:
	@rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .coverage
	@find dclib tests benchmarks notebooks -name __pycache__ -type d -prune -exec rm -rf {} +
