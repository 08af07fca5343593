"""Asks a server with GET and POST over connections that are kept, until a file is there. Fails if a request is lost."""

import collections
import os
import sys
import threading

import urllib3

URL, STOP = sys.argv[1:]
answers = collections.Counter()
lock = threading.Lock()


def ask(method):
    # Nothing is tried again: what is lost is seen.
    pool = urllib3.PoolManager(maxsize=1, retries=False)
    seen = collections.Counter()
    while not os.path.exists(STOP):
        body = b"x" * 1000 if method == "POST" else None
        try:
            seen[method, pool.request(method, URL, body=body, timeout=30).status] += 1
        except urllib3.exceptions.HTTPError as error:
            seen[method, type(error).__name__] += 1
    with lock:
        answers.update(seen)


threads = [threading.Thread(target=ask, args=[method]) for method in ["GET"] * 6 + ["POST"] * 2]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(", ".join(f"{count} {method} {status}" for (method, status), count in sorted(answers.items(), key=str)))
assert {method for method, _ in answers} == {"GET", "POST"}
sys.exit(any(status != 200 for _, status in answers))
