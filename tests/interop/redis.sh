# Sourced by the parts that need Redis.

# Sets `redis` to the process. Fails if it does not start, for example because another process has the port.
run_redis() { # port
    # Created before the server writes it, because it is read at once, and may be that of an earlier server.
    : >"$work/redis.log"
    redis-server --port "$1" --bind 127.0.0.1 --save '' --dir "$work" >>"$work/redis.log" 2>&1 &
    redis=$!
    while kill -0 "$redis" 2>/dev/null; do
        if grep -q 'Ready to accept connections' "$work/redis.log"; then
            others+=" $redis"
            return 0
        fi
        sleep 0.05
    done
    cat "$work/redis.log"
    return 1
}

# On a port that is set; if another process has it, on the next one.
start_redis() {
    for port in $(ports 20); do
        ! run_redis "$port" >"$work/redis.failed" || return 0
    done
    cat "$work/redis.failed"
    echo 'interop: redis-server did not start' >&2
    exit 1
}
