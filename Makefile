# Longhaul: every recipe is one line of intent. `make help` lists them.
SHELL := /bin/bash
HOST  := $(shell rustc -vV | sed -n 's/^host: //p')
# The shipped binary is static: no shared C library is needed on the host it is copied to.
STATIC := CARGO_TARGET_$(shell echo $(HOST) | tr 'a-z-' 'A-Z_')_RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static"
BIN   := target/$(HOST)/release/longhaul

.PHONY: build
build: ## the static binary, target/longhaul
	$(STATIC) cargo build --release --locked --target $(HOST) -p longhaul-app
	@ln -sfn $(HOST)/release/longhaul target/longhaul
