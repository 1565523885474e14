# Builds, tests and checks the project in its own virtual environment, .venv. Needs make, a C++20
# compiler and Python >= 3.10 with venv and headers; everything else comes from requirements/.
# `make help` lists the targets.

PYTHON ?= python3
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check

cpp_files := $(shell find csrc tests benchmarks/cpp -name '*.h' -o -name '*.cc' -o -name '*.cu')
built_files := $(filter csrc/%,$(cpp_files)) csrc/CMakeLists.txt CMakeLists.txt $(wildcard cmake/*) \
               pyproject.toml
python_dirs := python tests/python benchmarks/python docs examples tools

MAKEFLAGS += --no-print-directory
export PATH := $(CURDIR)/$(BIN):$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export CTEST_PARALLEL_LEVEL ?= $(JOBS)

# Ninja, CTest and clang-tidy use all processors by themselves; pip must not run twice at once.
.NOTPARALLEL:
.DELETE_ON_ERROR:
.SUFFIXES:

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

# ---- The two commands ----

.PHONY: demo
demo: $(STAMPS)/evenstride ## Plan a small corpus, train a model on it, write a report
	$(BIN)/evenstride demo

.PHONY: test
test: test-cpp test-cuda test-python ## Run all C++, device code and Python tests

# ---- Virtual environment and build ----

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "evenstride needs Python >= 3.10: try 'make PYTHON=python3.12 ...'" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# Each file includes the one before.
$(STAMPS)/build: $(STAMPS)/venv
$(STAMPS)/run: $(STAMPS)/build
$(STAMPS)/test: $(STAMPS)/run
$(STAMPS)/docs: $(STAMPS)/test
$(STAMPS)/dev: $(STAMPS)/test

$(STAMPS)/build $(STAMPS)/run $(STAMPS)/test $(STAMPS)/docs $(STAMPS)/dev: $(STAMPS)/%: requirements/%.txt
	$(PIP) install --quiet --requirement $<
	@touch $@

# Tried again the next time where it fails, and without it all else goes on.
$(STAMPS)/compilers: requirements/cuda.txt $(STAMPS)/venv
	@if $(PIP) install --quiet --requirement $<; then \
	  touch $@; \
	else \
	  echo "evenstride: the CUDA compiler's packages cannot be installed; going on without them."; \
	fi

.PHONY: compilers
compilers: $(STAMPS)/compilers ## Install a CUDA compiler and disassembler into .venv, 130 MB

# Compilers that were installed since bring the kernel in.
$(STAMPS)/evenstride: $(STAMPS)/run $(built_files) $(wildcard $(STAMPS)/compilers)
	$(PIP) install --quiet --no-build-isolation --no-deps --editable .
	@$(no_kernel)
	@touch $@

# pip keeps to itself what CMake says.
no_kernel = sed -n 's/^EVENSTRIDE_NO_KERNEL:INTERNAL=\(..*\)/evenstride: no CUDA kernel, for \1./p' \
            "$$(ls -t build/?p*-*/CMakeCache.txt | head -n 1)"

.PHONY: build
build: $(STAMPS)/evenstride ## Build the package into .venv, editable

# From an archive of the sources alone, without git. The name of the wheel says which systems it is
# for, where there is a tool that finds out.
.PHONY: wheel
wheel: $(STAMPS)/build ## Build an sdist, and a wheel from it, into dist/
	rm -rf dist build/sdist
	$(BIN)/python -m build --no-isolation --sdist --outdir dist .
	mkdir -p build/sdist
	tar -xzf dist/*.tar.gz --strip-components 1 -C build/sdist
	$(PIP) wheel --quiet --no-build-isolation --no-deps --wheel-dir build/sdist/dist build/sdist
	@if [ "$$(uname)" = Linux ]; then \
	  $(BIN)/auditwheel repair --wheel-dir dist build/sdist/dist/*.whl; \
	else \
	  cp build/sdist/dist/*.whl dist; \
	fi

# ---- Tests ----

have_googletest = grep -q '^EVENSTRIDE_HAVE_GOOGLETEST:INTERNAL=TRUE' build/$(1)/CMakeCache.txt

.PHONY: test-cpp
test-cpp: test-cpp-dev ## Run the C++ tests: plain, ASan + UBSan, TSan
	@if $(call have_googletest,dev); then $(MAKE) test-cpp-asan test-cpp-tsan; fi

.PHONY: test-cpp-dev test-cpp-asan test-cpp-tsan
test-cpp-dev test-cpp-asan test-cpp-tsan: test-cpp-%: $(STAMPS)/build
	cmake --preset $* --log-level=NOTICE
	@if $(call have_googletest,$*); then \
	  set -x; cmake --build --preset $* && ctest --preset $*; \
	else \
	  [ "$$CTEST_NO_TESTS_ACTION" != error ]; \
	fi

.PHONY: test-cuda
test-cuda: $(STAMPS)/evenstride $(STAMPS)/test ## Check the kernel's code and the binaries
	$(BIN)/python -m pytest tests/python/test_binary.py tests/python/test_kernel_*.py

.PHONY: test-python
test-python: $(STAMPS)/evenstride $(STAMPS)/test ## Run the Python tests and the documented examples
	$(BIN)/python -m pytest tests/python python/evenstride --doctest-modules -m "not compiles"

.PHONY: test-frameworks
test-frameworks: $(STAMPS)/evenstride $(STAMPS)/test ## Run the tests with real training frameworks alone
	$(BIN)/python -m pytest tests/python/test_framework_*.py

# The packages lie in a folder that comes before those of the virtual environment.
$(STAMPS)/older: requirements/older.txt $(STAMPS)/test
	rm -rf $(VENV)/older
	$(PIP) install --quiet --no-deps --target $(VENV)/older --requirement $<
	@touch $@

.PHONY: test-frameworks-older
test-frameworks-older: $(STAMPS)/evenstride $(STAMPS)/older ## The same, with those of a year before
	EVENSTRIDE_FRAMEWORKS=older PYTHONPATH=$(CURDIR)/$(VENV)/older \
	  $(BIN)/python -m pytest tests/python/test_framework_*.py

.PHONY: test-wheel
test-wheel: wheel ## Install that wheel where there are only numpy and torch, and use it
	rm -rf build/wheel
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip --disable-pip-version-check install --quiet \
	  --constraint requirements/run.txt dist/*.whl
	build/wheel/bin/python tests/python/wheel_use.py
	rm -rf build/wheel

.PHONY: soak
soak: $(STAMPS)/evenstride $(STAMPS)/test ## Use loaders at random, and plan 100 million samples: many minutes
	$(BIN)/python tests/python/loader_soak.py
	$(BIN)/python tests/python/scale_soak.py

$(STAMPS)/ray: requirements/ray.txt $(STAMPS)/run
	$(PIP) install --quiet --requirement $<
	@touch $@

.PHONY: ray
ray: $(STAMPS)/evenstride $(STAMPS)/ray ## Run the example for Ray on a local one, and check its output
	$(BIN)/python examples/check_ray_lengths.py

# ---- Checks ----

.PHONY: check
check: check-ruff check-mypy check-format check-tidy check-stubs check-spelling check-wheels ## Run all checks

.PHONY: check-ruff
check-ruff: $(STAMPS)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

.PHONY: check-mypy
check-mypy: $(STAMPS)/dev
	$(BIN)/mypy

.PHONY: check-format
check-format: $(STAMPS)/dev
	$(BIN)/clang-format --dry-run --Werror $(cpp_files)

.PHONY: check-tidy
check-tidy: build/tidy/config
	cmake --preset tidy --log-level=NOTICE
	cmake --build --preset tidy -- -k 0

# A build remembers which files passed, but not under which rules.
build/tidy/config: .clang-tidy $(STAMPS)/dev
	rm -rf build/tidy
	mkdir -p build/tidy
	touch $@

.PHONY: check-stubs
check-stubs: $(STAMPS)/evenstride $(STAMPS)/dev
	$(BIN)/python tools/stubs.py --check

.PHONY: check-spelling
check-spelling: $(STAMPS)/dev
	$(BIN)/codespell

# The wheels of other systems are built elsewhere; here it is seen that their options are valid.
.PHONY: check-wheels
check-wheels: $(STAMPS)/dev
	@for system in linux windows macos; do \
	  $(BIN)/cibuildwheel --print-build-identifiers --platform $$system --archs all >/dev/null || exit; \
	done

.PHONY: docs
docs: $(STAMPS)/evenstride $(STAMPS)/docs ## Build the documentation as pages, in build/docs
	@if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  set -x; $(BIN)/python -m sphinx -W --keep-going -q -b html -c docs . build/docs; \
	else \
	  echo "evenstride: no pages, because what builds them needs Python >= 3.11."; \
	fi

.PHONY: stubs
stubs: $(STAMPS)/evenstride $(STAMPS)/dev ## Write the stub of the compiled module
	$(BIN)/python tools/stubs.py

.PHONY: format
format: $(STAMPS)/dev ## Format all C++ and Python files
	$(BIN)/clang-format -i $(cpp_files)
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

# ---- Benchmarks ----

.PHONY: bench
bench: bench-cpp bench-python ## Run all C++ and Python benchmarks

.PHONY: bench-cpp
bench-cpp: $(STAMPS)/build
	cmake --preset release --log-level=NOTICE
	cmake --build --preset release
	@for bench in build/release/benchmarks/cpp/bench_*; do \
	  if [ -f "$$bench" ]; then echo "$$bench"; "$$bench" || exit; fi; \
	done

.PHONY: bench-python
bench-python: $(STAMPS)/evenstride $(STAMPS)/dev
	@for bench in benchmarks/python/bench_*.py; do \
	  if [ -f "$$bench" ]; then echo "$$bench"; $(BIN)/python "$$bench" || exit; fi; \
	done

# Needs 24 GiB of memory, and valgrind for the instructions.
.PHONY: bench-scale
bench-scale: $(STAMPS)/evenstride $(STAMPS)/dev ## Run the benchmarks of large data sets at full size
	$(BIN)/python benchmarks/python/bench_scale.py --samples 1000000000 --instructions
	$(BIN)/python benchmarks/python/bench_first_batch.py --samples 100000000

# ---- Cleaning ----

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache $(STAMPS)/evenstride
	find $(python_dirs) -name __pycache__ -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## Remove the virtual environment too
	rm -rf $(VENV)
