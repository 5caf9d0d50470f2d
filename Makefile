# Longhaul: every recipe is one line of intent. `make` or `make help` lists them.
SHELL := /bin/bash
, := ,
HOST  := $(shell rustc -vV | sed -n 's/^host: //p')
# The shipped binary is static: no shared C library is needed on the host it is copied to. rustc links with lld on x86-64, which keeps equal functions once.
ONCE   := $(if $(filter x86_64-%-linux-gnu,$(HOST)),-C link-arg=-Wl$(,)--icf=all)
STATIC := CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static $(ONCE)"
# Built into target/ also where the environment or a user's settings name another folder: the paths below are what everything else calls.
BIN   := target/$(HOST)/release/longhaul
# Races other programs; not part of the product.
RACE  := target/$(HOST)/release/longhaul-race
FUZZ_SECONDS ?= 14400
N ?= 200
SEED ?= 1
FIRST ?= 0

.PHONY: help interop build book reference record pages test test-all e2e-quick needs unit e2e vmtest mutants lint deny demo race bench bench-quick bench-small bench-paths bench-wan bench-wan-quick bench-disk bench-volumes beside changes host-limit policers crowd grid grid-distance grid-real torture torture-forged torture-ftp torture-holes torture-memory forecast limiter zeros sim sims fuzz fuzz-quick hosts lab-accuracy ci traces path

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

build: ## the static binary, target/longhaul, stripped; its debug information is target/longhaul.debug
	$(STATIC) cargo build --release --locked --target $(HOST) --target-dir target -p longhaul-cli
	@dist/strip.sh $(BIN) target/longhaul

.PHONY: build-rdma
build-rdma: ## the same with RDMA devices (verbs, linked statically), where libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev are installed: target/longhaul-rdma
	$(STATIC) cargo build --release --locked --target $(HOST) -p longhaul-cli --features rdma --target-dir target/rdma
	@dist/strip.sh target/rdma/$(HOST)/release/longhaul target/longhaul-rdma
	$(STATIC) cargo build --release --locked --target $(HOST) -p longhaul-sys --features rdma --example queue_pairs --target-dir target/rdma
	@cp target/rdma/$(HOST)/release/examples/queue_pairs target/queue_pairs

.PHONY: release release-test
release: ## all files of a release for x86-64 and arm64, in target/release-VERSION: tarball, .deb, .rpm, image, wheel, SBOM, sums (BINARY=path, BINARY_ARM64=path: of these; RELEASE_KEY=path: signed)
	dist/release/release.py

release-test: ## those files on system roots made on the spot: installed, used, upgraded in mid-job, removed; arm64's by qemu-user beside them (root; BINARY=path, BINARY_ARM64=path; four minutes)
	lab/release.sh

book: ## the book (docs/book) as HTML in target/book, its links checked, where mdbook is installed
	docs/book/build.py

reference: ## the pages of the book that are made from the command line's definition
	cargo run --quiet --locked -p longhaul-cli -- generate markdown docs/book/src/reference

record: build ## the picture of a terminal in README.md, from a real copy
	lab/record.py

test: needs ## all cargo tests, then the main jobs of the real binary, built for the builder's time (ten minutes on two cores)
	@$(MAKE) -j1 --no-print-directory --keep-going unit e2e-quick

test-all: needs ## everything that tells right from wrong: all cargo tests, then all checks of the binary that is shipped (half an hour on two cores)
	@$(MAKE) -j1 --no-print-directory --keep-going unit e2e

pages: needs ## every HTML page, and what a headless browser shows of it at 380 and 1280 px, light and dark: target/pages (half a minute)
	PAGES=$(CURDIR)/target/pages cargo test --quiet --locked -p longhaul-bench pages -- --nocapture

needs: ## what tests call and a fresh machine lacks, installed where that is possible (root, apt-get; NEEDS=no: only named)
	@lab/needs.sh

.PHONY: test-arm64
test-arm64: ## tests of the crates below the daemon, and the binary beside the native one, built for arm64 and run by qemu-user (root, Linux 6.7, rustup target add aarch64-unknown-linux-gnu; half an hour; PARTS="unit trace pair")
	lab/arm64/test.sh

unit: needs ## all cargo tests: proto, sys, engine with its simulator, the command line, tidy
	cargo test --workspace --locked --no-fail-fast

e2e-quick: needs ## the main jobs of the real binary between two hosts: trees, plugs pulled, faults, tickets and keys, sync, pipes
	cargo build --quiet --locked --target-dir target -p longhaul-cli
	LONGHAUL=$(CURDIR)/target/debug/longhaul E2E_SET="01-trees 03-plug 04-faults 05-doors 11-sync 13-pipes" lab/e2e/run.sh

interop: needs build ## FTP: real clients of others against our server, installed where they are missing (docs/book, "Serve a folder by FTP")
	INTEROP=full E2E_SECONDS=900 lab/e2e/run.sh 30-ftp
	INTEROP=full E2E_SECONDS=900 lab/e2e/run.sh 31-ftp-client

.PHONY: ftp-crowd
ftp-crowd: build ## 500 FTP clients that list a folder of a million names at once, within the server's memory grant (a quarter of an hour)
	SESSIONS=500 NAMES=1000000 CROWD_LIMIT=6000 E2E_SECONDS=6600 lab/e2e/run.sh 31-ftp-crowd

e2e: needs build ## the real binary between two hosts made on the spot (E2E=name runs one file)
	lab/e2e/run.sh $(E2E)

vmtest: build $(if $(filter-out 1% 2% 3% 4% 5%,$(or $(VM),all)),build-rdma) ## what needs several NUMA nodes, real NICs, irqbalance or RDMA devices: in an emulated guest, made on the first run (Debian, root; seven to fifteen minutes; VM=name runs one check)
	lab/vm/test.sh $(VM)

mutants: ## breaks the code on purpose, a promise at a time, and sees its test fail (M=words: only those; M=--rest: what results do not call caught; two hours)
	lab/mutants/run $(M)

lint: ## format and lints, as CI asks for them, and those of the fuzz targets
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy -p longhaul-cli --no-default-features --locked -- -D warnings
	RUSTFLAGS="--cfg fuzzing" cargo clippy --manifest-path fuzz/Cargo.toml --locked -- -D warnings

deny: ## licences, sources, banned crates, advisories
	cargo deny check

demo: needs build ## two hosts, real files, the plug pulled in the middle, scp and rsync beside it
	lab/demo.sh

race: ## the program that races others; it is no part of the product
	$(STATIC) cargo build --release --locked --target $(HOST) --target-dir target -p longhaul-bench --bin longhaul-race

bench: build race ## the full race against the peers, memory to memory, one file, 20,000, one of 1 KB: target/bench/peers.json and .html (an hour)
	lab/hold-memory.py $(RACE) peers

bench-quick: build race ## the same race, small: 512 MiB, 3 rounds (some minutes)
	$(RACE) peers --name quick --size 512MiB --rounds 3 --net-seconds 3

bench-paths: build race ## one job over four links of 1:1:2:4 beside MPTCP and streams by hand: target/bench/paths.json and .html (5 minutes)
	$(RACE) paths

bench-small: build race ## small files: 20,000 of Zipf sizes, a second sync of a million, one folder of 200,000, a million empty ones: target/bench/small.json and .html (half an hour; Ctrl-C keeps the parts that were done)
	$(RACE) peers --name small --parts zipf,again,folder,empty --timeout 600

bench-wan: build ## distance x loss x rate x transport, ours beside TCP: target/bench/wan.json and .html (a day; Ctrl-C keeps what was measured)
	target/longhaul bench wan --out target/bench/wan

bench-wan-quick: build ## four cells of it: 100 ms, 0 and 1 % loss, 155 Mbit/s and 1 Gbit/s (two minutes)
	target/longhaul bench wan --quick --out target/bench/wan-quick

bench-disk: build race ## I/O modes per file system (root disk, loop devices, tmpfs) beside fio, and what a job leaves of others' memory (ten minutes)
	$(RACE) disk
	$(RACE) disk --manners --rounds 3

bench-volumes: build race ## 16 loop volumes as one, by file and by chunk, beside fio, and one throttled in mid-run: target/bench/volumes.json (root, fio; ten minutes)
	$(RACE) volumes

.PHONY: bench-ftp
bench-ftp: build ## servers and clients of FTP, and transports of ours, side by side in seven figures: target/bench/ftp.json and .html (root; runs what is installed of vsftpd, ProFTPD, GridFTP, curl, lftp; an hour or two; FIGURE=lan,cpu; ROUNDS=n; Ctrl-C keeps what was measured)
	target/longhaul bench ftp $(if $(FIGURE),--figure $(FIGURE)) $(if $(ROUNDS),--rounds $(ROUNDS)) --out target/bench/ftp

.PHONY: bench-ftp-beside
bench-ftp-beside: build ## our FTP server beside vsftpd: one file each way, in clear and by TLS, in turn: target/bench/ftp-beside.json (root, vsftpd, curl; five minutes; VETH=1: between two namespaces, ROUNDS=n)
	LONGHAUL=$(CURDIR)/target/longhaul bench/ftp-beside.py $(if $(VETH),--veth) $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: bench-ftp-client-beside
bench-ftp-client-beside: build ## our FTP client beside curl and lftp, with vsftpd as the server: one file each way and 20,000, in clear and by TLS, in turn (root, vsftpd, curl, lftp; half an hour; ONLY="get clear,tree" ROUNDS=n FILES=n)
	LONGHAUL=$(CURDIR)/target/longhaul bench/ftp-client-beside.py $(if $(ONLY),--only "$(ONLY)") $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(FILES),--files $(FILES))

.PHONY: bench-mode-e-beside
bench-mode-e-beside: build ## our FTP server beside globus-gridftp-server: MODE E each way by globus-url-copy (root, globus-gridftp-server-progs; ten minutes; ROUNDS=n)
	LONGHAUL=$(CURDIR)/target/longhaul bench/mode-e-beside.py $(if $(ROUNDS),--rounds $(ROUNDS))

beside: build ## one job over UDP and one CUBIC or BBR stream of the kernel's on one link: who gets what (iperf3; four minutes)
	lab/beside.sh

changes: build ## how soon a running job has its link again after it changed: halved, doubled, longer, another address, ten seconds of nothing (twelve minutes)
	lab/changes.sh

policers: ## policers of 1 Mbit/s to 1 Gbit/s in virtual time: what was sent beside what was asked, and how fast: target/bench/policers.jsonl (a minute)
	mkdir -p target/bench
	POLICERS=$(CURDIR)/target/bench/policers.jsonl cargo test --release --locked -p longhaul-proto --test flow_policer a_policer_is_found -- --nocapture

crowd: ## ten to ten thousand flows on one bottleneck in virtual time, ours by policy and others: target/bench/crowd.jsonl (ten minutes; FLOWS=1000: of that many alone)
	mkdir -p target/bench
	CROWD=$(CURDIR)/target/bench/crowd.jsonl cargo test --release --locked -p longhaul-proto --test rate_fair crowds_of_ten -- --nocapture

host-limit: build ## what one core per side carries over UDP, beside the raw ceiling and the per-packet socket, MTU 1500 and 9000: target/bench/host-limit.json (root; three minutes)
	lab/host-limit.sh

grid: race ## 10,000 cells of paths and jobs in virtual time, through the real machines, and whether they keep their bounds: target/bench/grid.json and .html (half an hour of two cores; QUICK=1: 304 of them; CELL=n: one)
	$(RACE) grid $(if $(QUICK),--quick) $(if $(CELL),--cell $(CELL))

grid-distance: race ## distance x loss x rate, medians of seeds: target/bench/grid-distance.json and .html (some minutes)
	$(RACE) grid --distance

grid-real: build ## TCP, UDP and what nobody says over sixty real links and jobs, and whether the last is as good as the better of both: target/bench/grid-real.json and .html (root; twenty minutes; CELLS=pattern, ROUNDS=n)
	LONGHAUL=$(CURDIR)/target/longhaul lab/grid-real.py

torture: build ## kill -9 at N random instants (N=200), then compare every byte; 36 pairs of overlapping jobs
	N=$(N) lab/e2e/run.sh plug
	E2E_SECONDS=7200 PAIRS=6 lab/e2e/run.sh overlap

.PHONY: torture-power
torture-power: N = 50
torture-power: build ## the power of ext4, XFS and btrfs cut N times in mid-job (N=50; root, /dev/fuse, loop devices; five minutes)
	CUTS=$(N) E2E_SECONDS=7200 lab/e2e/run.sh power

.PHONY: soak thousand
soak: SECONDS = 3600
soak: build ## one daemon, jobs of every kind with kills on both sides, SECONDS long (SECONDS=3600): memory, descriptors, threads and files stay flat
	SECONDS_OF_SOAK=$(SECONDS) E2E_SECONDS=$$(($(SECONDS) + 600)) lab/e2e/run.sh soak

thousand: build ## 1,000 jobs at once on one daemon of 512 MiB: equal, fair, and no newcomer waits (16 GB of memory for the clients; some minutes)
	JOBS=1000 MEMORY_MIB=512 LIMIT=1200 E2E_SECONDS=1800 lab/e2e/run.sh thousand

torture-ftp: build ## kill -9 of either end at N random instants of transfers by FTP (N=200): our client with our server and vsftpd, LHDATA, curl, MODE E by globus-url-copy (half an hour; KINDS="LHDATA put,MODE E put": of these)
	N=$(N) lab/e2e/run.sh 35-ftp

torture-forged: build ## a million random and a million changed packets beside a live job over UDP
	E2E_SECONDS=900 FORGED=3600000 lab/e2e/run.sh datagrams

torture-holes: build ## 2^40 bytes of hole with islands of data, locally and host to host, hashed once in full
	BIG=1 lab/e2e/run.sh holes

torture-memory: build ## 200 GiB of zeros and a million files: both ends stay below their grant
	BIG=1 lab/e2e/run.sh memory

zeros: ## hash the built-in table of digests of zeros again, a TiB of them (some minutes)
	cargo run --release --locked -p longhaul-engine --example zeros check

forecast: build ## twenty jobs over twenty links: what `--transport auto` expected beside what came of it (four minutes)
	lab/forecast.sh

limiter: build ## thirty jobs with one thing made slow each: does the report name it (ROUNDS=5, eight minutes; PLANT=name, SEED=n)
	lab/limiter.sh

sim: ## one seed of the whole-job simulator (SEED=n)
	SEED=$(SEED) cargo test -p longhaul-engine --locked --test sim one_seed -- --nocapture

sims: ## N seeds of it, from FIRST on (N=200)
	SIM_FIRST=$(FIRST) SIM_SEEDS=$(N) cargo test -p longhaul-engine --locked --test sim

traces: ## digests of what the workers do in N seeds of it (N=200): the same before and after a change of shape alone
	TRACE=$(N) cargo test -q -p longhaul-engine --locked --test sim digests_of_traces -- --nocapture

path: ## the files of one chunk's way in order, over a stream and over datagrams, with their lines
	@lab/path.py

fuzz: ## every decoder for hours (FUZZ_SECONDS in all)
	fuzz/run $(FUZZ_SECONDS)

fuzz-quick: ## every decoder, a minute in all
	fuzz/run 60

hosts: build ## which two hosts this machine can make
	lab/hosts.sh

lab-accuracy: build ## are the lab's links what they say: round trip, rate, loss over 10^6 packets, queue, jitter, reordering
	target/longhaul lab measure

ci: ## what CI runs
	.ci/run

.PHONY: ci-long
ci-long: ## what CI runs, and then what takes hours: torture, torture-power (50 cuts), soak, thousand, mutants
	LONG=1 .ci/run
