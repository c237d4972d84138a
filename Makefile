# `make demo` and `make test` do all set-up from a bare clone; everything lands in .venv and build/.

PYTHON ?= python3
BIN := .venv/bin
DEMO := build/demo
TYPED := build/typed
EXTRAS := build,cpu,publish,test

.PHONY: setup libraries demo test check test-exhaustive test-gpu bench clean

setup: .venv/ready

.venv/ready: pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

demo: setup
	$(BIN)/dfc build examples/reference/target --draft examples/reference/dflash2 --output $(DEMO) --force
	$(BIN)/dfc run $(DEMO) --spec dflash2 --max-new 96 --prompt "def fibonacci(n):"

# Type stubs of the engine libraries, from their own bindings: tests/contracts checks every call with them.
libraries: setup
	$(BIN)/python -m tests.contracts.libraries

# mypy sees the folders under the names they are installed as.
check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p $(TYPED)/dfc
	for folder in artifacts compiler plugins runtime; do ln -sfn ../../../$$folder $(TYPED)/dfc/$$folder; done
	cd $(TYPED) && MYPYPATH=. ../../$(BIN)/mypy --config-file ../../pyproject.toml -p dfc

test: check
	$(BIN)/python -m pytest -m 'not gpu and not exhaustive' -n 2 --dist loadgroup

# Combinations of which `make test` runs a choice.
test-exhaustive: setup
	$(BIN)/python -m pytest -m exhaustive -n 2

test-gpu: setup
	$(BIN)/python -m pytest -m gpu

bench: setup
	$(BIN)/python benchmarks/cpu/compare.py

clean:
	rm -rf .venv build dist *.egg-info
