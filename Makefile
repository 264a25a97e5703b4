VENV ?= .venv
PYTHON ?= python3
WORKERS ?= 2
BIN := $(VENV)/bin
NOTIFICATIONS := epistola/notifications/v1/notifications.proto

.DEFAULT_GOAL := help
.PHONY: help setup serve test quick soak check format proto bench clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(BIN)/.installed ## Create the virtual environment and install everything

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

serve: setup ## Run the server on 127.0.0.1:4000 with its data in ./data
	@exec $(BIN)/headrace serve

test: setup ## Run every test, in two processes at a time (WORKERS)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

quick: setup ## Run the tests that need no server process
	$(BIN)/python -m pytest -m 'not system'

soak: setup ## Run tests on fresh seeds for HEADRACE_SOAK_MINUTES (60) altogether
	HEADRACE_SOAK_MINUTES=$${HEADRACE_SOAK_MINUTES:-60} $(BIN)/python -m pytest -m soak

check: setup ## Lint, types and import contracts
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Format the code and apply safe fixes
	$(BIN)/ruff format src tests
	$(BIN)/ruff check --fix src tests

proto: setup ## Generate the messages of gRPC from proto/
	made=$$(mktemp -d) && $(BIN)/python -m grpc_tools.protoc -I proto --python_out=$$made --pyi_out=$$made $(NOTIFICATIONS) \
	  && mv $$made/$(dir $(NOTIFICATIONS))* src/headrace/formats/feed_notifications && rm -r $$made

bench: setup ## Measure against Redis Streams in one run (installs nothing; see docs/PERFORMANCE.md)
	$(BIN)/headrace bench

clean: ## Remove the virtual environment and caches (never ./data)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
