"""Asks each route until it is refused; urllib3 then waits on its own, and passes at once.

Takes the address of examples/figures/algorithms.rs, with LIMIT=2 and WINDOW_MS=2600.
"""

import math
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import urllib3
from urllib3.util import Retry

LIMIT = 2
WINDOW = 2.6
ALGORITHMS = (
    "fixed-window",
    "anchored-window",
    "sliding-log",
    "sliding-window",
    "sliding-slots",
    "token-bucket",
    "token-bucket-interval",
    "leaky-bucket",
    "gcra",
)


def meet(url, algorithm):
    """Returns what was seen, and what is wrong with it."""
    waits = []

    class Noted(Retry):
        """`Retry` as it is; only notes each wait, as it was told and as it was."""

        def sleep_for_retry(self, response):
            started = time.monotonic()
            try:
                return super().sleep_for_retry(response)
            finally:
                told = response.headers.get("Retry-After", "")
                waits.append((told, time.monotonic() - started))

    retries = Noted(total=3, status_forcelist=(413, 429, 503))
    pool = urllib3.connection_from_url(url)
    for asked in range(1, 101):
        try:
            ended = pool.request("GET", f"/{algorithm}", retries=retries).status
        except urllib3.exceptions.HTTPError as error:
            ended = error
        if waits or ended != 200:
            break

    # The pool counts what went over the wire, repetitions too.
    sent = pool.num_requests
    seen = ", ".join(f"told {told} s and slept {slept:.3f} s" for told, slept in waits)
    seen = f"{sent} requests, {seen or 'never refused'}, then {ended}"
    wrong = []
    if asked <= LIMIT:
        wrong.append(f"refused at request {asked}")
    if len(waits) != 1 or sent != asked + 1:
        wrong.append("one refusal was expected, and one repetition")
    # The sliding window counts the admissions of the previous window, and fewer of them as time goes
    # by: two at once count as one no sooner than half a window later.
    longest = WINDOW * 1.5 if algorithm == "sliding-window" else WINDOW
    for told, slept in waits:
        if not (told.isdecimal() and 1 <= int(told) <= math.ceil(longest)):
            wrong.append(f"Retry-After: {told}")
        elif not int(told) <= slept < int(told) + 5:
            wrong.append("it slept otherwise than told")
    if ended != 200:
        wrong.append(f"ended with {ended}")
    return seen, wrong


def main():
    url = sys.argv[1]
    with ThreadPoolExecutor(len(ALGORITHMS)) as threads:
        met = list(threads.map(lambda algorithm: meet(url, algorithm), ALGORITHMS))
    for algorithm, (seen, wrong) in zip(ALGORITHMS, met):
        print(f"  {algorithm}: {seen}")
        for line in wrong:
            print(f"urllib3: {algorithm}: {line}", file=sys.stderr)
    failed = sum(1 for _, wrong in met if wrong)
    print(f"urllib3 {urllib3.__version__}: {len(met) - failed} passed, {failed} failed")
    sys.exit(failed != 0)


main()
