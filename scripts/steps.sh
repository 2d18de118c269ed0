# steps.sh, to be sourced by bash: runs the steps of a suite and adds up the closing lines "N passed, N failed, N skipped".
# shellcheck shell=bash
passed=0 failed=0 skipped=0
log=$(mktemp) || exit 1
trap 'rm -f "$log" "$log.output"' EXIT

# add_closing_line CODE: adds what the last line of $log says of the program that ended with CODE; fails when it says nothing.
add_closing_line() {
    local line p f s
    line=$(tail -n 1 "$log" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$') || return 1
    IFS=', ' read -r p _ f _ s _ <<< "$line"
    [ "$1" -eq 0 ] || [ "$f" -gt 0 ] || f=1
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# step NAME COMMAND...: a command without a closing line counts as one test.
step() {
    local name=$1 start=$SECONDS before=$failed code
    shift
    echo "== $name"
    "$@" 2>&1 | tee "$log"
    code=${PIPESTATUS[0]}
    add_closing_line "$code" || if [ "$code" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
    [ "$failed" -eq "$before" ] || echo "FAIL $name: exit code $code"
    echo "   $((SECONDS - start)) s"
}

# missing WHAT: something that tests need is not there and cannot be had.  One skipped test; in CI one failure.
missing() {
    if [ "$CI" = true ]; then
        echo "FAIL missing: $1"
        failed=$((failed + 1))
    else
        echo "SKIP missing: $1"
        skipped=$((skipped + 1))
    fi
}

# What tests run and run on, in the environment variables that they read.
have_material() {
    scripts/deps --test || missing "packages that scripts/deps --test installs"
    STOA_MODEL=$(scripts/model) || missing "the real model"
    STOA_GEMMA=$(scripts/model gemma3-270m) || missing "Gemma 3 270M"
    STOA_QWEN_05B=$(scripts/model qwen2.5-coder-0.5b) || missing "Qwen2.5-Coder 0.5B"
    TEST_PYTHON=$(scripts/test-python) || missing "a Python with the packages that tests need"
    STOA_TINY=$(scripts/tiny-models) || missing "the tiny models"
    OPENAI_PYTHON=$(scripts/openai-client) || missing "a Python with the official openai client"
    STOA=$PWD/stoa
    export STOA OPENAI_PYTHON STOA_MODEL STOA_GEMMA STOA_QWEN_05B STOA_TINY TEST_PYTHON
}

# The last line, and the exit code.
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
}
