# Stoa.  `make` builds ./stoa, `make check` builds and runs the C tests, `make install DESTDIR= PREFIX=` installs.
#   CC=...         gcc 12 and clang 14 are tried
#   SANITIZE=...   a list for -fsanitize, as in SANITIZE=address,undefined
#   TESTS=...      what `make check` runs, as in TESTS='tests/text/test_*.c'
# Every CC and SANITIZE has a folder of its own under build/, so they do not disturb each other.
ifeq ($(origin CC),default)
CC := gcc
endif
PREFIX ?= /usr/local
TESTS ?= tests/*/test_*.c
VERSION := 0.1.0

comma := ,
variant := $(CC)$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))

B := build/$(variant)

# What a user gives is kept, from the environment or the command line; but no -ffast-math changes an answer.
# With sanitizers gcc warns of what they insert.
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-unknown-pragmas \
	$(if $(SANITIZE),,-Werror)
override CPPFLAGS := -Isrc -Iinclude -D_GNU_SOURCE -DSTOA_VERSION='"$(VERSION)"' $(CPPFLAGS)
override CFLAGS := -O3 -g $(WARN) $(CFLAGS) -std=c17 -fno-fast-math -ffp-contract=off -fno-math-errno \
	-fPIC -pthread -fvisibility=hidden
override LDLIBS := $(LDLIBS) -lm -pthread
ifdef SANITIZE
override CFLAGS += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all
override LDFLAGS += -fsanitize=$(SANITIZE)
endif

# Features that a library brings.  What is missing is named once and left out.
have = $(shell pkg-config --exists $(1) && echo yes)
ifneq ($(MAKECMDGOALS),clean)
ifeq ($(call have,libxxhash),)
$(error libxxhash is missing, or pkg-config that looks for it: scripts/deps installs both)
endif
override LDLIBS += $(shell pkg-config --libs libxxhash)
mpi := $(call have,ompi-c)
ifdef mpi
override CPPFLAGS += -DHAVE_MPI
mpi_cflags := $(patsubst -I%,-isystem %,$(shell pkg-config --cflags ompi-c))
override LDLIBS += $(shell pkg-config --libs ompi-c)
else
$(warning Open MPI (ompi-c) is missing: built without it, layouts of more than one rank are refused)
endif
hwloc := $(call have,hwloc)
ifdef hwloc
override CPPFLAGS += -DHAVE_HWLOC
override LDLIBS += $(shell pkg-config --libs hwloc)
else
$(warning hwloc is missing: built without it, two hardware threads count as two cores and all memory as one node)
endif
wire := $(and $(call have,libprotobuf-c),$(shell command -v protoc-c))
ifdef wire
override CPPFLAGS += -DHAVE_WIRE -I$(B)/src
override LDLIBS += $(shell pkg-config --libs libprotobuf-c)
messages := $(B)/src/wire/wire.pb-c
else
$(warning protobuf-c (libprotobuf-c and protoc-c) is missing: built without it, there is no stoa serve and no stoa replica)
endif
endif

arch := $(shell $(CC) -dumpmachine | cut -d- -f1)
sources := $(wildcard src/*/*.c)
ifneq ($(arch),x86_64)
sources := $(filter-out %_avx2.c %_avxvnni.c %_avx512.c %_amx.c,$(sources))
endif
ifneq ($(arch),aarch64)
sources := $(filter-out %_neon.c,$(sources))
endif
ifndef mpi
sources := $(filter-out src/comm/comm_mpi.c,$(sources))
endif
# What speaks in frames.
ifndef wire
sources := $(filter-out src/wire/% src/front/% src/engine/replica% src/cli/cmd_serve.c src/cli/cmd_replica.c,$(sources))
endif
objects := $(sources:%.c=$(B)/%.o) $(messages:=.o)
library := $(B)/libstoa.a
cli_objects := $(filter $(B)/src/cli/%,$(objects))

all: stoa
stoa: $(B)/stoa
	@ln -sf $< $@

$(B)/stoa: $(cli_objects) $(library)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
# The same with every _check after every step of a replica, which tests/cluster/storm.py is for.
stress: $(B)/stoa-stress
$(B)/stoa-stress: $(cli_objects) $(B)/stress/src/engine/replica.o $(library)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/stress/%.o: %.c | $(messages:=.h)
	@mkdir -p $(dir $@)
	$(CC) $(CPPFLAGS) -DSTRESS $(CFLAGS) -MMD -MP -c -o $@ $<
$(library): $(filter-out $(cli_objects),$(objects))
	rm -f $@; ar rcs $@ $^
$(B)/libstoa.so: $(filter-out $(cli_objects),$(objects))
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libstoa.so.0 -o $@ $^ $(LDLIBS)

# A file's name tells its instruction set.  With sanitizers, -O3 would unroll their checks for ten minutes a file; without
# vzeroupper, which gcc counts as expensive, everything after such a kernel is ten times slower.
simd_sanitized := $(if $(SANITIZE),-Og -fexpensive-optimizations -fno-sanitize=null$(comma)alignment$(comma)pointer-overflow$(comma)object-size)
$(B)/%_avx2.o: override CFLAGS += -mavx2 -mfma -mf16c $(simd_sanitized)
$(B)/%_avxvnni.o: override CFLAGS += -mavx2 -mfma -mf16c -mavxvnni $(simd_sanitized)
avx512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c -mprefer-vector-width=512
$(B)/%_avx512.o: override CFLAGS += $(avx512) $(simd_sanitized)
$(B)/%_amx.o: override CFLAGS += $(avx512) -mamx-tile -mamx-int8 $(simd_sanitized)
$(B)/%_neon.o: override CFLAGS += -march=armv8.2-a+dotprod $(simd_sanitized)
$(B)/src/comm/comm_mpi.o: override CFLAGS += $(mpi_cflags)
$(B)/%.o: %.c | $(messages:=.h)
	@mkdir -p $(dir $@)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(B)/%.o: $(B)/%.c
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<
$(B)/%.pb-c.h $(B)/%.pb-c.c: %.proto
	@mkdir -p $(dir $@)
	protoc-c -I$(dir $<) --c_out=$(dir $@) $<

# Every tests/*/test_*.c is a program of its own, and so is every long_*.c, which scripts/check-long runs.
tests := $(patsubst %.c,$(B)/%,$(filter-out $(if $(wire),,tests/wire/% tests/front/%),$(wildcard $(TESTS))))
$(B)/tests/%: $(B)/tests/%.o $(B)/tests/check.o $(library)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/tests/%: override LDLIBS += $(shell pkg-config --libs jansson)
$(B)/tests/%.o: override CPPFLAGS += -I.
# It counts what the library allocates.
$(B)/tests/engine/test_steady: override LDFLAGS += $(patsubst %,-Wl$(comma)--wrap=%,malloc calloc realloc aligned_alloc mmap)
$(B)/tests/base/test_threads: override LDFLAGS += -Wl,--wrap=sched_yield
# It puts the clock forward.
$(B)/tests/front/test_supervisor: override LDFLAGS += -Wl,--wrap=loop_now_ms,--wrap=timer_set
# These stand for disks, file systems and memory that refuse.
$(B)/tests/base/test_file: override LDFLAGS += -Wl,--wrap=write
$(B)/tests/wire/test_frame: override LDFLAGS += -Wl,--wrap=realloc
$(B)/tests/wire/test_wire: override LDFLAGS += -Wl,--wrap=chmod
$(B)/tests/front/test_http: override LDFLAGS += -Wl,--wrap=getaddrinfo,--wrap=realloc
$(B)/tests/run/test_packed_file: override LDFLAGS += -Wl,--wrap=flock
$(B)/tests/format/test_gguf_write: override LDFLAGS += $(patsubst %,-Wl$(comma)--wrap=%,access link renameat2)
tests: $(tests)
# And so is every bench/*.c.
$(B)/bench/%: $(B)/bench/%.o $(library)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
bench: $(patsubst %.c,$(B)/%,$(wildcard bench/*.c))
# Fuzz targets link what reads bytes from outside; scripts/fuzz sets the compiler and SANITIZE.
$(B)/fuzzed.a: $(filter $(addprefix $(B)/src/,base/% format/% text/% wire/% front/http_parse% front/api% front/answer%),$(objects))
	rm -f $@; ar rcs $@ $^
$(B)/tests/fuzz/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(B)/fuzzed.a
	$(CC) $(CFLAGS) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LDLIBS)
check: $(B)/stoa $(tests)
	scripts/run-tests $(tests)

install: stoa $(B)/libstoa.so
	install -D -m 755 $(B)/stoa $(DESTDIR)$(PREFIX)/bin/stoa
	install -D -m 644 include/stoa.h $(DESTDIR)$(PREFIX)/include/stoa.h
	install -D -m 644 $(library) $(DESTDIR)$(PREFIX)/lib/libstoa.a
	install -D -m 755 $(B)/libstoa.so $(DESTDIR)$(PREFIX)/lib/libstoa.so.0
	ln -sf libstoa.so.0 $(DESTDIR)$(PREFIX)/lib/libstoa.so

clean:
	rm -rf build stoa
.PHONY: all stoa stress check tests bench install clean
.SECONDARY:
-include $(objects:.o=.d) $(tests:=.d) $(B)/tests/check.d $(wildcard $(B)/stress/src/engine/*.d $(B)/tests/fuzz/*.d $(B)/bench/*.d)
