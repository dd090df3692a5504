# make demo            a year of flights, enriched by lookups (needs Java 17 and Python 3.10, or newer)
# make test            format, lint, types, and the tests of three kinds: unit, simulation and spark
# make test-unit       tests without Spark and servers
# make simulate        the whole runtime in made-up worlds, each of one seed (SEED=n RUNS=n, or SECONDS=n); with
#                      PLANTED=all, which seeds find the bugs of tests/simulation/planted.py
# make test-spark      tests that ask one local Spark
# make test-servers    connectors against servers that the tests start: PostgreSQL, MariaDB, HTTP, Redis
# make test-processes  clusters, Connect servers, notebooks, the demo, warm workers, drivers that are killed
# make test-queries    queries of TPC-H and of a corpus, every form of join, random queries, against Spark itself
# make test-examples   more random examples of each property than make test tries (EXAMPLES=n)
# make soak            a stream on a cluster whose workers, servers and lines fail by one seed (SECONDS=3600 SEED=1)
# make fuzz            feed a parser of what comes from outside (TARGET=json_paths SECONDS=60) with changed inputs
# make test-matrix     what depends on versions, in each cell of the matrix of versions (CELLS='3.11-3.5 3.13-4.3')
# make test-wheel      the wheel of make release with each Python here, and the oldest and newest dependencies
# make check           format, lint and types only
# make docs            the documentation site, in site/; a broken link is an error
# make release         a wheel, a source archive, and a list of what they bring (SBOM, CycloneDX), in dist/
# make bench           the benchmarks (over half an hour), and their tables in benchmarks/README.md
# make clean           remove what these made
# make help            show this
#
# CI runs test, simulate, docs, test-servers, test-processes, test-queries and the oldest cell of test-matrix. TREES=n,
# MISTAKES=n and TEXTS=n say how many random queries, mistakes and texts there are, SEED=n repeats a run, SHARE=n runs
# one of n cases of each test, FILES=n one of n files of tests, PART=m says which; JOBS=n is how many files of tests run
# beside each other (2).
# PYTHON=python3.12 chooses the interpreter, VENV=path the virtual environment.

.POSIX:
.SUFFIXES:
.PHONY: demo test simulate test-unit test-spark test-servers test-processes test-queries test-examples soak fuzz test-matrix test-wheel check docs release bench clean help java

VENV = .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check -q
# Spark's workers must run the Python that has the library, and keep what they compile of it.
SPARK_ENV = PYTHONDONTWRITEBYTECODE= PYSPARK_PYTHON="$$(cd $(BIN) && pwd)/python"

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

demo: java $(VENV)/.demo
	@$(BIN)/python sql_examples/prepare_data.py --dir data
	@$(SPARK_ENV) $(BIN)/lookup-hints run sql_examples/flights.sql

# Files run beside each other, as Spark leaves a second core idle for much of the time. CI prints the slowest tests.
JOBS = 2
SHARE = 1
FILES = 1
PART = 0
PYTEST = $(BIN)/python -m pytest -q $${CI:+--durations=50 --durations-min=1} \
  --share=$(SHARE) --files=$(FILES) --part=$(PART) -n $(JOBS) --dist loadfile --no-loadscope-reorder

test: java check $(VENV)/spark.jsa
	@$(SPARK_ENV) $(PYTEST) tests --ignore=tests/queries --ignore=tests/processes --ignore=tests/servers

test-unit test-spark test-servers test-processes: java $(VENV)/spark.jsa
	@kind=$@; $(SPARK_ENV) $(PYTEST) "tests/$${kind#test-}"

# The seed is printed; that of a run that fails repeats it.
SECONDS = 60
simulate: $(VENV)/.dev
	@$(BIN)/python -m tests.simulation.run $${SEED:+--seed "$$SEED"} $${RUNS:+--runs "$$RUNS"} --seconds $(SECONDS) \
	  $${PLANTED:+--planted "$$PLANTED"}

# What is slow because Spark answers each question twice; random trees of joins take as long as all the others. The
# seed is printed, so that a failure can be repeated.
TREES = 2400
MISTAKES = 2000
TEXTS = 1000000
test-queries: java $(VENV)/spark.jsa
	@seed="$${SEED:-$$(date +%s)}"; echo "seed $$seed"; \
	$(SPARK_ENV) SEED="$$seed" TREES=$(TREES) SPARK_MUTATIONS=$(MISTAKES) PLANNED_MUTATIONS=40000 TEXTS=$(TEXTS) \
	  $(PYTEST) --hypothesis-seed="$$seed" \
	  tests/queries/test_trees.py tests/queries tests/unit/plan/test_mutations.py \
	  tests/servers/connectors/test_texts.py::test_texts_are_read_as_python_and_spark_read_them

EXAMPLES = 500
test-examples: java $(VENV)/spark.jsa
	@$(SPARK_ENV) EXAMPLES=$(EXAMPLES) $(PYTEST) tests --ignore=tests/queries --ignore=tests/processes -m hypothesis

soak: java $(VENV)/spark.jsa
	@$(SPARK_ENV) $(BIN)/python -m tests.processes.soak --seconds $(SECONDS) $${SEED:+--seed "$$SEED"}

TARGET = json_paths
fuzz: $(VENV)/.dev
	@$(PIP) install atheris
	@$(BIN)/python -m tests.unit.fuzz $(TARGET) $(SECONDS)

CELLS =
test-matrix: java
	@JOBS=$(JOBS) SHARE=$(SHARE) PART=$(PART) .ci/matrix $(CELLS)

test-wheel: java release
	@VENV=$(VENV) .ci/wheels

check: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: $(VENV)/.docs
	@# Not -q: what it hides is not counted, and a broken link would pass.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

# What a user may have in the end: the list is of an environment with the wheel and all that its connectors and ways in
# need. PySpark is not in it, as clusters bring their own.
RELEASED = postgres,mysql,http,redis,adbc,notebook,shell,lsp,prometheus,otel
release: $(VENV)/.release
	@rm -rf dist build/release
	@$(BIN)/python -m build --outdir dist . > /dev/null
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/python -m venv --without-pip build/release
	@$(PIP) --python build/release/bin/python install "$$(echo dist/*.whl)[$(RELEASED)]"
	@$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/lookup-hints.cdx.json build/release/bin/python
	@ls dist

bench: java $(VENV)/.bench
	@for file in benchmarks/bench_*.py; do \
	  name=$$(basename "$$file" .py); echo "== $$name"; \
	  $(SPARK_ENV) $(BIN)/python -m "benchmarks.$$name" || exit 1; \
	done
	@$(BIN)/python -m benchmarks.page

clean:
	@rm -rf $(VENV) .matrix data build dist site spark-warehouse metastore_db derby.log artifacts
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- what they need -------------------------------------------------------------------------------

# A stamp is made once per set of dependencies, and again when pyproject.toml changes.
$(VENV)/.demo: pyproject.toml $(BIN)/python
	@echo "Installing lookup-hints, PySpark and the demo's data into $(VENV) (once) ..."
	@$(PIP) install -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(BIN)/python
	@echo "Installing lookup-hints and its tools into $(VENV) (once) ..."
	@$(PIP) install -e '.[dev]'
	@touch $@

# The classes of a Spark, read once: each Spark of a test begins in half the time.
$(VENV)/spark.jsa: $(VENV)/.dev tests/jvm.py
	@echo "Keeping Spark's classes in $@ (once) ..."
	@$(SPARK_ENV) $(BIN)/python -m tests.jvm

$(VENV)/.docs: pyproject.toml $(BIN)/python
	@$(PIP) install -e '.[docs]'
	@touch $@

$(VENV)/.release: pyproject.toml $(BIN)/python
	@$(PIP) install -e '.[release]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@$(PIP) install -e '.[bench]'
	@touch $@

$(BIN)/python:
	@candidates="$${PYTHON:-python3.13 python3.12 python3.11 python3.10 python3}"; \
	for python in $$candidates; do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue; \
	  "$$python" -m venv $(VENV) && exit 0; \
	  rm -f $(BIN)/python; \
	  echo "$$python cannot make a virtual environment: install its venv module" >&2; \
	  echo "  Debian, Ubuntu: apt install python3-venv" >&2; \
	  exit 1; \
	done; \
	echo "No Python 3.10 or newer was found; tried: $$candidates." >&2; \
	echo "  Debian, Ubuntu: apt install python3 python3-venv    macOS: brew install python" >&2; \
	echo "  Elsewhere: make PYTHON=/path/to/python3.12" >&2; \
	exit 1

java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	test "$${version:-0}" -ge 17 && exit 0; \
	echo "Spark needs Java 17 or newer; $$java is $${version:+version }$${version:-missing}." >&2; \
	echo "  Debian, Ubuntu: apt install openjdk-17-jre-headless    macOS: brew install openjdk@17" >&2; \
	echo "  If you have it elsewhere, set JAVA_HOME to its folder." >&2; \
	exit 1
