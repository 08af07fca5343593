# Sourced by each part: starts an example on a free port, and stops it when the part ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-target}
# `release` for one that is measured.
profile=${PROFILE:-dev}
programs=$target/${profile/#dev/debug}
work=$(mktemp -d)
server=
# Other processes that end with the part.
others=
# A stopped process ends only after it continues.
trap 'for process in $server $others; do kill "$process" && kill -CONT "$process" || true; done 2>/dev/null
    rm -rf "$work"' EXIT
# The output of the example; a part that starts several gives each one a file.
log=$work/log

# Stops the example, so that another can be started.
stop() {
    kill "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# Draws free ports, most probably: parts that run at once draw from ranges of their own.
ports() { # number
    local first=$((20000 + 4000 * ${INTEROP_SLOT:-0}))
    shuf -i "$first-$((first + 3999))" -n "$1"
}

# As `make test` builds it, so that nothing is built twice.
build() { # example
    cargo build --quiet --profile "$profile" --workspace --exclude 'tower-ratelimit-benches*' --all-features --example "$1"
}

# The system chooses the port, and the example prints it; `url` is set to its address.
start() { # example, NAME=value…
    local example=$1
    shift
    build "$example"
    run "examples/$example" "$@"
}

# Starts `ratelimitd serve`, which prints its address like an example.
serve() { # argument…
    arguments="serve --listen 127.0.0.1:0 --ops none --lame-duck 0s $*"
    run ratelimitd
    arguments=
}

# Arguments of the programs that `run` starts.
arguments=

# Starts a program of the target directory, which prints its address like an example.
run() { # program, NAME=value…
    local program=$1
    shift
    # Created before the example writes it, because it is read at once.
    : >"$log"
    env ADDR=127.0.0.1:0 "$@" "$programs/$program" $arguments >>"$log" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        url=$(sed -n 's/^listening on \(http:[^ ]*[0-9]\).*/\1/p' "$log")
        [ -z "$url" ] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    cat "$log"
    echo "interop: $program did not start" >&2
    exit 1
}
