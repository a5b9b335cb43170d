# Everything runs in .venv, which `make` creates: nothing else of this machine is changed. `make help` lists the targets.
#
#   make demo PYTHON3=python3.12            another interpreter, 3.11 or later
#   make demo TORCH_ARGS="--index-url …"    where pip shall take torch from, say an index of CPU builds
PYTHON3 ?= python3
TORCH_ARGS ?=

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check
BUILD := build/dev
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)

help:
	@echo 'make demo             set up, build, and train a small GPT on the device "tpu"'
	@echo 'make test             C++ and Python tests'
	@echo 'make test-all         those, and the slow ones'
	@echo 'make build            the package, editable, in .venv; after a change of C++ sources: again'
	@echo 'make bench            ratios against torch on the CPU; ROWS="training …": some rows of `python -m bench --help`'
	@echo 'make bench-peers      jax in .venv-jax, so that make bench compares with jax.jit too'
	@echo 'make op-coverage      every operator against the CPU; PLATFORM=tpu: which of them compile for a TPU'
	@echo 'make compile-coverage every operator as a graph of torch.compile against the CPU'
	@echo 'make module-coverage  every module and optimizer against the CPU'
	@echo 'make format           clang-format over the C++ sources'
	@echo 'make wheel            dist/*.whl with pip'
	@echo 'make wheel-bazel      the same wheel with Bazel: bazel-bin/ci/wheel/*.whl'
	@echo 'make clean            remove what was built; .venv stays'

# torch is named exactly: any other release means another build of this package, and may mean gigabytes of CUDA.
# The XLA:CPU plugin is the newest there is; --no-deps because its metadata asks for jax, which it does not need.
$(VENV)/.environment: requirements-build.txt requirements-test.txt requirements-examples.txt
	@$(PYTHON3) -c 'import sys; sys.exit("Python 3.11 or later: make PYTHON3=…" if sys.version_info < (3, 11) else 0)'
	test -x $(PYTHON) || $(PYTHON3) -m venv $(VENV)
	$(PIP) install torch==2.13.0 $(TORCH_ARGS)
	$(PIP) install -r requirements-build.txt -r requirements-test.txt
	$(PIP) install --no-deps lammps-jax-pjrt-cpu==0.11.2
	touch $@

# Once: the package as an editable install, built by pip in $(BUILD).
$(BUILD)/.package: $(VENV)/.environment pyproject.toml build_backend/backend.py
	$(PIP) install --verbose --no-build-isolation --no-deps --config-settings build-dir=$(BUILD) --editable .
	touch $@

# From then on: what changed. Python sources need nothing.
SITE_PACKAGES = $$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
define install
	cmake --build $(BUILD)
	cmake --install $(BUILD) --prefix $(SITE_PACKAGES) --strip >$(BUILD)/install.log
endef

build: $(BUILD)/.package
	$(install)

demo: build
	$(PYTHON) examples/mingpt/train.py --budget demo

# Both kinds of tests run, also when the first fails.
build-tests: $(BUILD)/.package
	cmake -D TORCH_TPU_TESTS=ON $(BUILD) >$(BUILD)/configure.log
	$(install)

PLUGIN = $$(ls $(CURDIR)/$(VENV)/lib/python3*/site-packages/lammps_jax_pjrt_cpu/*.so)
LIBTPU = $$(ls $(CURDIR)/$(VENV)/lib/python3*/site-packages/libtpu/libtpu.so 2>/dev/null)
RUN_TESTS = status=0; \
  export TORCH_TPU_TEST_PLUGIN=$${TORCH_TPU_TEST_PLUGIN:-$(PLUGIN)}; \
  export TORCH_TPU_TEST_LIBTPU=$${TORCH_TPU_TEST_LIBTPU:-$(LIBTPU)}; \
  ctest --test-dir $(BUILD) --output-on-failure || status=$$?; \
  $(PYTHON) -m pytest $(1) || status=$$?; \
  exit $$status

test: build-tests
	@$(call RUN_TESTS,)

test-all: build-tests $(VENV)/.libtpu
	@$(call RUN_TESTS,-m '')

# Rows or groups of rows, and other options of `python -m bench`.
ROWS ?=
bench: build
	$(PYTHON) -m bench $(ROWS)

# jax.jit on the same plugin: in an environment of its own, so that nothing in .venv changes.
VENV_JAX := .venv-jax
bench-peers: $(VENV_JAX)/.environment
$(VENV_JAX)/.environment:
	test -x $(VENV_JAX)/bin/python || $(PYTHON3) -m venv $(VENV_JAX)
	$(VENV_JAX)/bin/python -m pip --disable-pip-version-check install jax==0.10.2 jaxlib==0.10.2 numpy
	echo '*' >$(VENV_JAX)/.gitignore
	touch $@

# PLATFORM=tpu: which lowerings libtpu compiles for a TPU, without one.
ifeq ($(PLATFORM),tpu)
op-coverage: build $(VENV)/.libtpu
	$(PYTHON) tools/tpu_coverage.py
else
op-coverage: build
	$(PYTHON) tools/op_coverage.py --all
endif

compile-coverage: build
	$(PYTHON) tools/op_coverage.py --kinds compiled --samples 3 --out build/compile_coverage.json

module-coverage: build
	$(PYTHON) tools/module_coverage.py

$(VENV)/.libtpu: $(VENV)/.environment
	$(PIP) install --no-deps libtpu==0.0.52
	touch $@

format: $(VENV)/.environment
	tools/check_format.sh -i

wheel: $(VENV)/.environment
	SOURCE_DATE_EPOCH=315532800 $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .

SUDO = $(if $(filter-out 0,$(shell id -u)),sudo)
wheel-bazel: $(VENV)/.environment
	command -v bazel || { $(SUDO) apt-get update && $(SUDO) apt-get install -y --no-install-recommends bazel-bootstrap; }
	TORCH_TPU_PYTHON=$(CURDIR)/$(PYTHON) bazel build --config=wheel_common //ci/wheel:torch_tpu_wheel

clean:
	rm -rf build dist

.PHONY: help demo test test-all build build-tests bench bench-peers op-coverage compile-coverage module-coverage format wheel wheel-bazel clean
