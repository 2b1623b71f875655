# `make help` lists what a person may want. Everything is made inside the checkout: .venv (Python) and .tools (Java).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

KAFKA := 4.3.1
OLD_KAFKA := 0.10.2.0
# The last clients that know transaction version 1 only (KIP-890).
TV1_KAFKA := 3.9.1
ZOOKEEPER := 3.9.5
APICURIO := 3.0.9
MONGO := 1.46.0
JARS := .tools/kafka-$(KAFKA)
OLD_JARS := .tools/kafka-clients-$(OLD_KAFKA)
TV1_JARS := .tools/kafka-clients-$(TV1_KAFKA)
STREAMS_JARS := .tools/kafka-streams-$(KAFKA)
CONNECT_JARS := .tools/kafka-connect-$(KAFKA)
ZOOKEEPER_JARS := .tools/zookeeper-$(ZOOKEEPER)
MONGO_JARS := .tools/mongo-java-server-$(MONGO)
REGISTRY := .tools/apicurio-registry-$(APICURIO)
# The tests try programs of the first and the last era; `make eras` tries all.
ERA_JARS := .tools/kafka-0.8.0 .tools/kafka-0.10.2.0
OTHER_ERA_JARS := .tools/kafka-0.8.1.1 .tools/kafka-0.8.2.2 .tools/kafka-0.9.0.1
DRIVER := .tools/driver-$(KAFKA)/ClientDriver.class
OLD_DRIVER := .tools/driver-$(OLD_KAFKA)/ClientDriver.class
TXN_DRIVER := .tools/driver-$(KAFKA)/TransactionDriver.class
COPY_DRIVER := .tools/driver-$(KAFKA)/TransactionalCopy.class
TXN_COPIER := .tools/driver-$(KAFKA)/TransactionCopier.class
TV1_DRIVER := .tools/driver-$(TV1_KAFKA)/TransactionDriver.class
STREAMS_APPLICATION := .tools/driver-$(KAFKA)/StreamsCount.class
CONNECTOR := .tools/driver-$(KAFKA)/CountingSource.class

# As pyproject.toml allows.
PYSPARKS := 4.0 4.1 4.2 4.3
PYSPARK_TESTS := $(addprefix tests/pipelines/,test_example_pipelines.py test_lake_maintenance.py test_order.py test_table_sinks.py test_topic_sink.py)

CLASSES := $(JARS).jsa
# One more than there are cores: the tests wait a lot, for timeouts and for other processes.
WORKERS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

# Where the environment forbids bytecode, each worker of the tests would compile all of them again: 5 s of CPU each.
export PYTHONDONTWRITEBYTECODE :=

BIN := .venv/bin
UV := $(shell command -v uv || echo $(BIN)/uv)
COMPILE := $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

.PHONY: help setup tools eras eras-tools check test faults hostile power-cuts soak-pipelines pyspark-versions lint format demo bench bench-pipelines docs docs-site lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

setup: .venv/.installed ## a locked environment in .venv, with .venv/bin/moldau ready (needs Python 3.11 or newer)

tools: .tools/.java .tools/.postgres .tools/.promtool .tools/.chromium $(DRIVER) $(OLD_DRIVER) $(TXN_DRIVER) $(TXN_COPIER) $(COPY_DRIVER) $(TV1_DRIVER) $(STREAMS_APPLICATION) $(CONNECTOR) $(ZOOKEEPER_JARS)/.fetched $(CLASSES) $(REGISTRY)/.fetched $(MONGO_JARS)/.fetched $(ERA_JARS:=/.fetched) ## other people's servers and clients for the tests, in .tools (installs Java, Maven and PostgreSQL if it may)

check: lint ## before each commit: lint, types, layers, and the quick tests that need nobody else's software, in less than a minute on two cores
	$(BIN)/pytest --own -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test: setup tools lint ## everything that CI checks: lint, types, layers, and the tests with real clients
	$(if $(ARGS),$(BIN)/pytest $(ARGS),$(BIN)/pytest -m alone)
	$(if $(ARGS),,$(BIN)/pytest -m 'not alone' -n $(WORKERS) --dist loadfile --no-loadscope-reorder --ignore=tests/pipelines)
	$(if $(ARGS),,$(BIN)/pytest tests/pipelines -n $(WORKERS) --dist loadfile --no-loadscope-reorder)

hostile: setup ## the worst frames of every API key and version against a broker that others use; wants a quiet machine
	HOSTILE_FRAMES=all $(BIN)/pytest tests/broker/test_hostile_frames.py

faults: setup tools ## half an hour of faults against three brokers, as long against transactional copiers, less over ZooKeeper; kills of a pipeline (ARGS='--seed N' runs one of the first kind again, COPIES='--seed N' one of the second; what went wrong is kept in build/faults)
	$(if $(COPIES),,$(BIN)/python -m tests.faults.schedule --keep build/faults $(or $(ARGS),--minutes 30))
	$(if $(ARGS),,$(BIN)/python -m tests.faults.transactions.schedule --keep build/faults $(or $(COPIES),--minutes 30))
	$(if $(ARGS)$(COPIES),,$(BIN)/python -m tests.faults.schedule --keep build/faults --minutes 10 --zookeeper)
	$(if $(ARGS)$(COPIES),,$(BIN)/python -m tests.faults.transactions.schedule --keep build/faults --minutes 5 --zookeeper)
	$(if $(ARGS)$(COPIES),,MOLDAU_LEDGER_RECORDS=300000 MOLDAU_LEDGER_KILLS=3 $(BIN)/pytest -s tests/pipelines/test_exactly_once.py tests/pipelines/test_exactly_once_topic.py)

soak-pipelines: setup tools ## an hour of capture, topic, join, lakes and a database, each part killed or begun again in turn (ARGS='--minutes 20 --seed N'; what went wrong is kept in build/faults)
	$(BIN)/python -m tests.faults.pipeline_soak --keep build/faults $(or $(ARGS),--minutes 60)

power-cuts: setup ## a hundred power cuts of three brokers under load, and twenty after which one disk is empty (ARGS='--seed N' makes the same choices again)
	$(BIN)/python -m tests.faults.power_cuts $(ARGS)

eras: setup tools eras-tools ## programs and commands of Kafka 0.8.0 to 0.10.2 against three brokers over ZooKeeper
	MOLDAU_ERAS=all $(BIN)/pytest tests/eras $(ARGS)

eras-tools: $(OTHER_ERA_JARS:=/.fetched)

lint: setup ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## let ruff format and mend what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

demo: setup ## three brokers, their console, visits of a website, and a pipeline that counts them before your eyes: ends by itself (ARGS=--headless: no console)
	$(BIN)/python -m examples.demo $(ARGS)

bench: setup tools ## Moldau and Apache Kafka side by side, one broker, three, and with the default policy, into docs/benchmarks.md (about 40 minutes)
	@met=0; for each in side_by_side cluster default_policy; do $(BIN)/python -m bench.$$each --check $(ARGS) || met=1; done; exit $$met

pyspark-versions: setup tools $(PYSPARKS:%=.tools/pyspark-%/.installed) ## some tests of pipelines on every PySpark that is supported (some minutes each)
	@failed=; for version in $(PYSPARKS); do echo "PySpark $$version"; \
	  PYTHONPATH=src .tools/pyspark-$$version/bin/python -m pytest -q -p no:cacheprovider $(PYSPARK_TESTS) || failed="$$failed $$version"; done; \
	[ -z "$$failed" ] || { echo "failed on:$$failed" >&2; exit 1; }

bench-pipelines: setup tools .tools/streams/.installed ## Spark reading Moldau and Apache Kafka, and other stream processors, into docs/benchmarks.md
	$(BIN)/python -m bench.pipelines --check $(ARGS)

docs: setup ## make docs/commands.md, docs/compatibility.md, docs/configuration.md and the tables of docs/pipelines.md again, from the code
	$(BIN)/python -m moldau.cli.command_page > docs/commands.md
	$(BIN)/python -m moldau.requests.compatibility_page > docs/compatibility.md
	$(BIN)/python -m moldau.core.configuration_page > docs/configuration.md
	$(BIN)/python -m moldau.pipelines.option_tables docs/pipelines.md

# Not -q: mkdocs would count no warnings then, and end well.
docs-site: setup ## the documentation as a site, in build/site; a broken link or a page that no menu names ends it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: setup ## choose the newest versions again and lock them with their hashes
	$(COMPILE) --upgrade --extra dev --extra console --extra pipelines pyproject.toml requirements/dev.in -o requirements/dev.txt
	echo uv | $(COMPILE) --upgrade - -o requirements/uv.txt
	$(COMPILE) --upgrade requirements/streams.in -o requirements/streams.txt

clean: ## remove everything that make made
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the Python environment ---

# The system's own Python first: a distribution builds its own with profile-guided optimisation, pyenv does not unless
# told to, and that is a sixth of the broker's CPU. Without ensurepip only uv can make an environment.
.venv/.created:
	@found=; for python in $(PYTHON) /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; $(if $(shell command -v uv),,import ensurepip; )sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	[ -n "$$found" ] || { echo 'Python 3.11 or newer, with its venv module, is needed: install it (Debian: apt-get install python3-venv), or name it: make setup PYTHON=/path/to/python' >&2; exit 1; }; \
	if command -v uv >/dev/null; then uv venv -q --allow-existing --python "$$($$found -c 'import sys; print(sys.executable)')" .venv; \
	else $$found -m venv .venv; \
	  $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/uv.txt; fi
	@touch $@

.venv/.installed: .venv/.created requirements/dev.txt pyproject.toml
	$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src  # as an installer does: where Python may write no bytecode, a start takes twice as long
	@touch $@

# Other stream processors want other versions of what we use.
.tools/streams/.installed: requirements/streams.txt | .venv/.created
	$(UV) venv -q --allow-existing --python $(BIN)/python .tools/streams
	$(UV) pip install -q --python .tools/streams/bin/python --require-hashes -r requirements/streams.txt
	@touch $@

# The same environment but for PySpark, the newest of each version.
.tools/pyspark-%/.installed: requirements/dev.txt pyproject.toml | .venv/.created
	$(UV) venv -q --allow-existing --python $(BIN)/python $(@D)
	$(UV) pip install -q --python $(@D)/bin/python --require-hashes -r requirements/dev.txt
	$(UV) pip install -q --python $(@D)/bin/python 'pyspark[connect,sql]~=$*.0'
	@touch $@

# --- the Java side: other people's software that the tests run against ours ---

.tools/.java:
	tests/java/install-java
	@mkdir -p $(@D) && touch $@

.tools/.postgres: tests/pipelines/install-postgres
	tests/pipelines/install-postgres
	@mkdir -p $(@D) && touch $@

.tools/.promtool: tests/tools/install-promtool
	tests/tools/install-promtool
	@mkdir -p $(@D) && touch $@

.tools/.chromium: tests/tools/install-chromium
	tests/tools/install-chromium
	@mkdir -p $(@D) && touch $@

$(JARS)/.fetched: tests/java/kafka-$(KAFKA).pom.xml | .tools/.java
$(OLD_JARS)/.fetched: tests/java/kafka-clients-$(OLD_KAFKA).pom.xml | .tools/.java
$(TV1_JARS)/.fetched: tests/java/kafka-clients-$(TV1_KAFKA).pom.xml | .tools/.java
$(STREAMS_JARS)/.fetched: tests/java/kafka-streams-$(KAFKA).pom.xml | .tools/.java
$(CONNECT_JARS)/.fetched: tests/java/kafka-connect-$(KAFKA).pom.xml | .tools/.java
$(ZOOKEEPER_JARS)/.fetched: tests/java/zookeeper-$(ZOOKEEPER).pom.xml | .tools/.java
$(MONGO_JARS)/.fetched: tests/java/mongo-java-server-$(MONGO).pom.xml | .tools/.java
$(ERA_JARS:=/.fetched) $(OTHER_ERA_JARS:=/.fetched): .tools/%/.fetched: tests/java/%.pom.xml | .tools/.java
$(JARS)/.fetched $(OLD_JARS)/.fetched $(TV1_JARS)/.fetched $(STREAMS_JARS)/.fetched $(CONNECT_JARS)/.fetched $(ZOOKEEPER_JARS)/.fetched $(MONGO_JARS)/.fetched $(ERA_JARS:=/.fetched) $(OTHER_ERA_JARS:=/.fetched):
	rm -rf $(@D)
	mvn -q -B -Dstyle.color=never -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)
	@touch $@

# A Schema Registry with Confluent's HTTP API; its own pom names a parent that repositories may lack, so no pom of ours.
$(REGISTRY)/.fetched: | .tools/.java
	rm -rf $(@D) && mkdir -p $(@D)
	cd $(@D) && mvn -q -B -Dstyle.color=never dependency:unpack -Dartifact=io.apicurio:apicurio-registry-app:$(APICURIO):tar.gz:all -DoutputDirectory=$(CURDIR)/$(@D)
	@touch $@

$(DRIVER): tests/java/ClientDriver.java $(JARS)/.fetched
	javac -nowarn -cp '$(JARS)/*' -d $(@D) $<

$(OLD_DRIVER): tests/java/ClientDriver.java $(OLD_JARS)/.fetched
	javac -nowarn -cp '$(OLD_JARS)/*' -d $(@D) $<

$(TXN_DRIVER) $(TXN_COPIER): .tools/driver-$(KAFKA)/%.class: tests/java/%.java $(JARS)/.fetched
	javac -nowarn -cp '$(JARS)/*' -d $(@D) $<

$(COPY_DRIVER): bench/TransactionalCopy.java $(JARS)/.fetched
	javac -nowarn -cp '$(JARS)/*' -d $(@D) $<

$(TV1_DRIVER): tests/java/TransactionDriver.java $(TV1_JARS)/.fetched
	javac -nowarn -cp '$(TV1_JARS)/*' -d $(@D) $<

$(STREAMS_APPLICATION): tests/java/StreamsCount.java $(STREAMS_JARS)/.fetched
	javac -nowarn -cp '$(STREAMS_JARS)/*' -d $(@D) $<

$(CONNECTOR): tests/java/CountingSource.java $(CONNECT_JARS)/.fetched
	javac -nowarn -cp '$(CONNECT_JARS)/*' -d $(@D) $<

# Quicker starts for every JVM of the tests; without it they only take longer.
$(CLASSES): tests/tools/class_archive.py $(JARS)/.fetched | .venv/.installed
	$(BIN)/python -m tests.tools.class_archive
