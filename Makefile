# The commands of developers and of CI. `make help` lists the targets.
#
#   VENV=.venv       the virtual environment; made with PYTHON if it is not there
#   VARIANT=plain    of the C tests: plain, asan (with UBSan), tsan; aarch64 in an emulator; musl
#   SEED=, STRESS_SECONDS=   are read by the tests themselves

PYTHON ?= python3
VENV ?= .venv
VARIANT ?= plain
STRESS_SECONDS ?= 2
export STRESS_SECONDS

# Campaigns are programs; they share tests/support with the tests.
RUN_CAMPAIGN = PYTHONPATH=.:tests/support $(PY) tests/campaigns

PY := $(VENV)/bin/python
STAMP := $(VENV)/.shmcache-installed

# ---- C -----------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wcast-qual -Wcast-align \
            -Wstrict-prototypes -Wmissing-prototypes -Wundef -Wvla -Werror
CFLAGS_ALL := -std=c11 -D_GNU_SOURCE -Icsrc -Itests/c/support -pthread $(WARNINGS)

# One compiler for each sanitizer; clang's TSan knows no warning about fences to be silenced.
CC_plain := gcc
CC_asan := gcc
CC_tsan := clang
CC_aarch64 := aarch64-linux-gnu-gcc
CC_musl := musl-gcc
CFLAGS_plain := -O2 -g
CFLAGS_asan := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
CFLAGS_tsan := -O1 -g -fsanitize=thread
CFLAGS_aarch64 := -O2 -g
# Headers of Linux come after those of musl. Static: nothing of musl is needed to run them.
CFLAGS_musl = -O2 -g -static -idirafter /usr/include -idirafter /usr/include/$(shell gcc -print-multiarch)
# A fixed address space: newer kernels' random one does not suit clang 14's TSan.
RUN_tsan := setarch -R
RUN_aarch64 := qemu-aarch64-static -L /usr/aarch64-linux-gnu

VARIANT_CC := $(or $(TEST_CC),$(CC_$(VARIANT)))
VARIANT_CFLAGS := $(CFLAGS_ALL) $(CFLAGS_$(VARIANT)) $(DEFINES)
ifneq (,$(findstring gcc,$(VARIANT_CC)))
VARIANT_CFLAGS += $(if $(filter tsan,$(VARIANT)),-Wno-tsan)
endif

# Base names are unique over csrc/ and tests/c/, so objects lie in one folder.
CORE := $(filter-out csrc/python/%,$(sort $(wildcard csrc/*/*.c)))
HOT := $(sort $(wildcard csrc/python/*.c csrc/python/*/*.c))
HEADERS := $(wildcard csrc/*.h csrc/*/*.h csrc/python/*/*.h tests/c/support/*.h)
# TEST=test_ring runs one of them.
C_TESTS := $(or $(TEST),$(sort $(basename $(notdir $(wildcard tests/c/unit/*.c tests/c/stress/*.c)))))
C_SHARED := $(sort $(wildcard tests/c/support/*.c))
vpath %.c $(sort $(dir $(CORE))) tests/c/unit tests/c/stress tests/c/support

OUT ?= build/$(VARIANT)
CORE_OBJECTS := $(patsubst %.c,$(OUT)/core/%.o,$(notdir $(CORE)))
SHARED_OBJECTS := $(patsubst %.c,$(OUT)/shared/%.o,$(notdir $(C_SHARED)))

.PHONY: adopters lost-events relays hand-overs consistency hostile help build test c-test fuzz fuzz-long mutants spin lint format check chaos soak serve-fuzz etcd-campaign queue-campaign memory-limit bench demo packages wheels aarch64 musl release future matrix stress py-mutants kubectl-matrix clean
.SECONDARY:
.DELETE_ON_ERROR:

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(OUT)/core/%.o: %.c $(HEADERS)
	@mkdir -p $(@D)
	$(VARIANT_CC) $(VARIANT_CFLAGS) -c $< -o $@

$(OUT)/shared/%.o: %.c $(HEADERS)
	@mkdir -p $(@D)
	$(VARIANT_CC) $(VARIANT_CFLAGS) -c $< -o $@

$(OUT)/%: %.c $(CORE_OBJECTS) $(SHARED_OBJECTS) $(HEADERS)
	@mkdir -p $(@D)
	$(VARIANT_CC) $(VARIANT_CFLAGS) $< $(SHARED_OBJECTS) $(CORE_OBJECTS) -o $@

# The core of these calls shmc_failpoint() before each of its stores (atomics.h).
FAILING_OBJECTS := $(patsubst %.c,$(OUT)/failing/%.o,$(notdir $(CORE)))

$(OUT)/failing/%.o: %.c $(HEADERS)
	@mkdir -p $(@D)
	$(VARIANT_CC) $(VARIANT_CFLAGS) -DSHMC_FAILPOINTS -c $< -o $@

$(OUT)/test_failpoints $(OUT)/test_queue_failpoints: $(OUT)/%: %.c tests/c/support/core_fixture.c $(FAILING_OBJECTS) $(HEADERS)
	@mkdir -p $(@D)
	$(VARIANT_CC) $(VARIANT_CFLAGS) -DSHMC_FAILPOINTS $(filter %.c,$^) $(FAILING_OBJECTS) -o $@

c-binaries: $(addprefix $(OUT)/,$(C_TESTS))

c-test: c-binaries ## the C tests of one VARIANT: unit, then stress; TEST=test_ring for one
	@passed=0; failed=0; \
	for name in $(C_TESTS); do \
	    echo "== $(VARIANT) $$name"; \
	    if timeout 600 $(RUN_$(VARIANT)) $(OUT)/$$name; then passed=$$((passed + 1)); \
	    else echo "FAILED $(VARIANT) $$name"; failed=$$((failed + 1)); fi; \
	done; \
	echo "$$passed passed, $$failed failed (C, $(VARIANT))"; test $$failed = 0

musl: ## the C tests with musl's C library: needs musl-tools
	$(MAKE) --no-print-directory c-test VARIANT=musl

mutants: ## planted bugs that the named C tests must catch
	$(PYTHON) tests/c/mutants.py

spin: ## model checking: the protocols hold, and fail without their fences
	$(PYTHON) tests/spin/run.py

# ---- Python ------------------------------------------------------------------------------

$(PY):
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml setup.cfg setup.py | $(PY)
	$(PY) -m pip install -q -e '.[dev]'
	@touch $@

build: $(STAMP) ## both extension modules, in place
	$(PY) setup.py -q build_ext --inplace

test: build ## everything that pytest runs, the plain C tests among it
	$(PY) -m pytest

lint: $(STAMP) ## ruff, mypy, and the C warnings of gcc and clang as errors
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(MAKE) --no-print-directory c-lint

PY_INCLUDE = $(shell $(PY) -c 'import sysconfig; print(sysconfig.get_path("include"))')
TEST_SOURCES := $(wildcard tests/c/*/*.c tests/fuzz/*.c)

c-lint:
	gcc $(CFLAGS_ALL) -O2 -fsyntax-only $(CORE) $(TEST_SOURCES)
	clang $(CFLAGS_ALL) -fsyntax-only $(CORE) $(TEST_SOURCES)
	gcc $(CFLAGS_ALL) -O2 -isystem $(PY_INCLUDE) -fsyntax-only $(HOT)
	clang $(CFLAGS_ALL) -isystem $(PY_INCLUDE) -fsyntax-only $(HOT)

format: $(STAMP) ## rewrites the Python files
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

check: lint test spin ## what must pass before a commit; a few minutes (test runs plain c-test)

# ---- longer ------------------------------------------------------------------------------

matrix: ## the C tests in all variants
	$(MAKE) --no-print-directory c-test VARIANT=plain
	$(MAKE) --no-print-directory c-test VARIANT=asan
	$(MAKE) --no-print-directory c-test VARIANT=tsan

stress: ## the same for a minute each, and the mutants
	STRESS_SECONDS=60 $(MAKE) --no-print-directory matrix
	$(MAKE) --no-print-directory mutants

FUZZ_SECONDS ?= 60
FUZZ_SEED := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
FUZZ_FLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
FUZZ := build/fuzz

FUZZERS := json data seats queue wire
FUZZ_OBJECTS := $(patsubst %.c,$(FUZZ)/core/%.o,$(notdir $(CORE))) $(FUZZ)/core_fixture.o
FUZZ_MAX_json := 16384
FUZZ_MAX_data := 1024
FUZZ_MAX_seats := 4096
FUZZ_MAX_queue := 2048
FUZZ_MAX_wire := 4096
FUZZ_DICT_json := -dict=tests/fuzz/json.dict

$(FUZZ)/core/%.o: %.c $(HEADERS)
	@mkdir -p $(@D)
	clang $(CFLAGS_ALL) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c $< -o $@

$(FUZZ)/core_fixture.o: tests/c/support/core_fixture.c $(HEADERS)
	@mkdir -p $(@D)
	clang $(CFLAGS_ALL) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c $< -o $@

$(FUZZ)/fuzz_%: tests/fuzz/fuzz_%.c $(FUZZ_OBJECTS)
	clang $(CFLAGS_ALL) $(FUZZ_FLAGS) -fsanitize=fuzzer $^ -o $@

fuzz-%: $(FUZZ)/fuzz_%
	@mkdir -p $(FUZZ)/corpus-$*
	cp tests/fuzz/seeds/$*/* $(FUZZ)/corpus-$*/
	@echo SEED=$(FUZZ_SEED)
	$(FUZZ)/fuzz_$* -seed=$(FUZZ_SEED) -verbosity=0 -print_final_stats=1 -max_total_time=$(FUZZ_SECONDS) \
	    -max_len=$(FUZZ_MAX_$*) -timeout=120 -rss_limit_mb=1024 $(FUZZ_DICT_$*) \
	    -artifact_prefix=$(FUZZ)/ $(FUZZ)/corpus-$*

fuzz: $(addprefix fuzz-,$(FUZZERS)) ## texts from the wire; DATA, SEATS and a queue, whatever stands there; SEED=, FUZZ_SECONDS=60 each

fuzz-long: ## the same for two hours each
	$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=7200

CHAOS ?= --seconds 600 --writes 200000
SOAK ?= --watches 1000 --seconds 300

chaos: build ## `shmcache run` under faults, kills and writes: 10 minutes; SEED=, CHAOS="--seconds 60"
	$(RUN_CAMPAIGN)/chaos.py $(CHAOS)

relays: build ## two tiers of relays under kills, stops and restarts; SEED=, RELAYS="--seconds 600 --simulated 200 --write-pause 0.04"
	$(RUN_CAMPAIGN)/relays.py $(RELAYS)

hand-overs: build ## machines that share keys by Leases are killed, stopped, cut off; SEED=, HAND_OVERS="--hand-overs 100 --duration 6"
	$(RUN_CAMPAIGN)/hand_overs.py $(HAND_OVERS)

consistency: build ## consistent reads against a checker of histories; SEED=, CONSISTENCY="--operations 1000000"
	$(RUN_CAMPAIGN)/consistency.py $(CONSISTENCY)

lost-events: build ## 10,000 events lost one by one on their way to a reflector; SEED=, LOST="--events 500"
	$(RUN_CAMPAIGN)/lost_events.py $(LOST)

soak: build ## 1,000 watches of `shmcache serve` under kills: 5 minutes; SEED=, SOAK="--watches 100"
	$(RUN_CAMPAIGN)/serve_soak.py $(SOAK)

FUZZED ?= --seconds 600

serve-fuzz: build ## `shmcache serve` asked nonsense over sockets: 10 minutes; SEED=, FUZZED="--seconds 60"
	$(RUN_CAMPAIGN)/serve_fuzz.py $(FUZZED)

HOSTILE ?= --connections 4096 --seconds 60

hostile: build ## `shmcache serve` under slow and greedy clients: an hour; HOSTILE="--connections 500 --seconds 5"
	PYTHONPATH=tests/support $(PY) tests/campaigns/serve_hostile.py $(HOSTILE)

CAMPAIGN ?= --keys 1000000 --seconds 300

ETCD_CAMPAIGN ?= --seconds 300 --auth --tls

etcd-campaign: build ## members die and freeze under a cache, certificates rotate; SEED=, ETCD_CAMPAIGN="--seconds 60"
	$(RUN_CAMPAIGN)/etcd_campaign.py $(ETCD_CAMPAIGN)

queue-campaign: build ## a million keys through a queue whose workers are killed; SEED=, CAMPAIGN="--seconds 60"
	$(RUN_CAMPAIGN)/queue_campaign.py $(CAMPAIGN)

MODELS ?= --rounds 3
# Each version has its own models; kubernetes is the only one with several that differ.
MODEL_VERSIONS := kubernetes==35.* kubernetes==36.* kubernetes==37.* kubernetes_asyncio==35.* kubernetes_asyncio==36.*

models: build ## model views against each version of each client library, in environments of their own; SEED=
	for version in $(MODEL_VERSIONS); do \
	    at=build/models/$$version; \
	    test -x $$at/bin/python || $(PY) -m venv $$at || exit 1; \
	    $$at/bin/python -m pip install -q "$$version" cffi posix_ipc || exit 1; \
	    PYTHONPATH=.:tests/support $$at/bin/python tests/campaigns/models.py $${version%%=*} $(MODELS) || exit 1; \
	done
	for library in kubernetes.aio lightkube; do \
	    $(RUN_CAMPAIGN)/models.py $$library $(MODELS) || exit 1; \
	done

# Programs from PyPI, each in an environment of its own, with the packages that its tests need.
ADOPTERS := kubespawner skypilot kopf airflow paasta
PACKAGES_kubespawner := jupyterhub-kubespawner
PACKAGES_skypilot := skypilot[kubernetes]
PACKAGES_kopf := kopf
PACKAGES_airflow := apache-airflow-providers-cncf-kubernetes pytest-asyncio time-machine
PACKAGES_paasta := paasta-tools pytest-asyncio hypothesis freezegun
OURS := pytest cffi posix_ipc h11 orjson urllib3 PyYAML

adopters: $(addprefix adopt-,$(ADOPTERS)) ## adapters with the real programs, and their figures; adopt-kopf for one

adopt-%: build
	@at=build/adopters/$*; \
	test -x $$at/bin/python || $(PY) -m venv $$at || exit 1; \
	$$at/bin/python -m pip install -q $(PACKAGES_$*) $(OURS) \
	    || { echo "$* cannot be installed: NOT TESTED"; exit 0; }; \
	AIRFLOW_HOME=$(CURDIR)/$$at/home PYTHONPATH=.:tests/adopters \
	    $$at/bin/python -m pytest -q -rs -s --noconftest -p no:cacheprovider -W ignore \
	    tests/adopters/adopt_$*.py || exit 1; \
	test ! -f benchmarks/adopters/$*.py || PYTHONPATH=. $$at/bin/python -W ignore -m benchmarks.adopters.$*

KILLS ?= --kills 2000

kills: build ## writers and readers killed and stopped at random instants under load; SEED=, KILLS="--kills 200"
	$(RUN_CAMPAIGN)/kills.py $(KILLS)

PY_MUTANTS ?= --count 60 shmcache/protocol
# Left out: campaigns, and tests that trace or count instructions themselves, which coverage does too.
UNMAPPED := unit/protocol/test_linear_parsers unit/serve/test_linear $(addprefix process/test_,interrupted chaos \
            consistency kills kubectl_matrix linearizable partitions relays resources serve_hostile serve_soak)
MAPPED ?= tests/unit tests/conformance tests/peers tests/model tests/process $(UNMAPPED:%=--ignore=tests/%.py)
MAP := build/mutation.map

$(MAP): | build
	rm -rf build/mapped && mkdir -p build/mapped
	tar -cf - --exclude=./.git --exclude='./.venv*' --exclude=./build . | tar -C build/mapped -xf -
	cd build/mapped && PYTHONPATH=. $(abspath $(PY)) tests/campaigns/mutation_map.py $(abspath $@) $(MAPPED)

py-mutants: $(MAP) ## a sample of mutants of the Python side against their tests; SEED=, PY_MUTANTS="--count 500 --workers 2 shmcache"
	$(PY) tests/campaigns/mutation.py --map $(MAP) --source build/mapped $(PY_MUTANTS)

MATRIX ?= --count 500

kubectl-matrix: build ## kubectl next to `shmcache get` and `shmcache serve`: 4 minutes; SEED=, MATRIX="--count 50"
	$(RUN_CAMPAIGN)/kubectl_matrix.py $(MATRIX)

memory-limit: build ## a writer in a cgroup of its own, up to its limit and beyond: needs root
	$(RUN_CAMPAIGN)/memory_limit.py

bench: build ## the figures of benchmarks/README.md
	$(PY) -m pip install -q -e '.[bench]'
	$(PY) -m benchmarks.run

release: $(STAMP) ## everything but the upload in dist/: packages, site, chart, man pages, notes, checksums
	$(PY) release/release.py

# Of CPythons; each is found, or installed, as tests/packages/interpreters.sh describes.
WHEELS ?= 3.11 3.12 3.13 3.14 3.15

wheels: packages ## a wheel for each CPython in dist/, installed and used there: 3.14 and 3.15 need root, debootstrap; WHEELS="3.12 3.13"
	tests/packages/wheels.sh dist $(WHEELS)

packages: $(STAMP) ## sdist and manylinux wheel in dist/, installed and used where there is no compiler
	$(PY) tests/packages/check.py dist

aarch64: $(STAMP) ## the wheel for aarch64, used in an emulator: needs root, debootstrap, qemu-user-static, gcc-aarch64-linux-gnu
	PYTHON=$(abspath $(PY)) tests/packages/aarch64.sh dist

FUTURE ?= 3.14 3.15

future: ## unit and model tests on newer Pythons, in a tree of Debian's sid: needs root, debootstrap; FUTURE=3.15
	tests/packages/future.sh $(FUTURE)

oldest: ## unit and model tests with the lowest versions of every dependency: needs the network
	PYTHON=$(abspath $(PY)) tests/packages/oldest.sh

demo: build ## an API server, one reflector, four workers, a live table
	$(PY) -m shmcache demo

clean:
	rm -rf build dist *.egg-info shmcache/*.so shmcache/_core.c

SITE ?= build/site

site: $(STAMP) ## the documentation as a site, in build/site; SITE=FOLDER adds this version to a site of others
	$(PY) release/documentation.py $(SITE)
