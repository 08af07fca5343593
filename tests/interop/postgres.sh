# Sourced by the parts that need PostgreSQL.

# The newest version among the system's packages.
postgres_bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)

# PostgreSQL refuses to run as root.
as_postgres() {
    if [ "$(id -u)" = 0 ]; then
        runuser --user postgres -- "$@"
    else
        "$@"
    fi
}

# Runs statements, and prints what they return.
sql() { # statements
    psql --quiet --no-psqlrc --tuples-only --no-align --variable ON_ERROR_STOP=1 "$database" --command "$1"
}

# Sets `postgres` to the parent process of the server. Fails if it does not start.
run_postgres() { # port
    as_postgres "$postgres_bin/postgres" -D "$work/postgres" -p "$1" -c listen_addresses=127.0.0.1 \
        -c unix_socket_directories= -c fsync=off >>"$work/postgres.log" 2>&1 &
    local started=$!
    for _ in $(seq 300); do
        if "$postgres_bin/pg_isready" --quiet --host 127.0.0.1 --port "$1"; then
            postgres=$(head -n 1 "$work/postgres/postmaster.pid")
            others+=" $postgres"
            return 0
        fi
        kill -0 $started 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/postgres.log"
    return 1
}

# On a port that is set, with its URL in `database`; if another process has it, on the next one.
start_postgres() {
    # The user of the server reaches its folder.
    chmod 755 "$work"
    mkdir "$work/postgres"
    [ "$(id -u)" != 0 ] || chown postgres "$work/postgres"
    as_postgres "$postgres_bin/initdb" --pgdata "$work/postgres" --auth trust --username rules --no-sync \
        >"$work/initdb.log" || { cat "$work/initdb.log" >&2; exit 1; }
    for port in $(ports 20); do
        if run_postgres "$port" >"$work/postgres.failed"; then
            database=postgres://rules@127.0.0.1:$port/postgres
            return 0
        fi
    done
    cat "$work/postgres.failed"
    echo 'interop: PostgreSQL did not start' >&2
    exit 1
}

# With all of its processes, so that nothing is written and no client gets a message.
kill_postgres() {
    local children
    children=$(pgrep --parent "$postgres" || true)
    others=${others/ $postgres/}
    {
        # The parent first, because it would start its children again.
        kill -9 "$postgres" $children || true
        while kill -0 "$postgres"; do sleep 0.05; done
    } 2>/dev/null
}
