"""Asks two gateways before one upstream for paths that it may read as others: an exempt path is never read as one that is not,
and what is read as a limited path is limited.

Arguments: the URL of the gateway that exempts `/health/*`, and of the one that limits `/api/*`. The upstream says in `x-read`
which path it has read.
"""

import http.client
import random
import sys
import urllib.parse

PIECES = (
    "/ / / / health health api api x .. .. .. . %2e %2E%2e %2f %2F %5c \\ ; ;a=b %3b %252e %252f %25 %3f %23 %20 "
    "%61pi %68ealth %c3%a4 a%70i"
).split()
KNOWN = ["/health/..%2fapi", "/health/%2e%2e%2fapi", "/health/x", "/health/..%5capi", "/x/..%2fapi", "/api/x"]

exempting, limiting = (http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc) for url in sys.argv[1:])
drawn = random.Random(30)


def answer(gateway, path):
    gateway.putrequest("GET", path, skip_accept_encoding=True)
    gateway.endheaders()
    response = gateway.getresponse()
    response.read()
    return response


def is_below(directory, path):
    return path == directory or path.startswith(directory + "/")


def path():
    return drawn.choice(["/", "/health/", "/health"]) + "".join(drawn.choice(PIECES) for _ in range(drawn.randrange(8)))


exempt = limited = passed = 0
for asked in KNOWN + [path() for _ in range(2000)]:
    first, second = answer(exempting, asked), answer(limiting, asked)
    read = first.getheader("x-read")
    if read is None:
        # The gateway or Envoy has refused the path.
        assert first.status >= 400, (asked, first.status)
        continue
    assert second.getheader("x-read") == read, (asked, read)
    passed += 1
    # What the service behind Envoy makes of what is still escaped.
    for reading in (read, urllib.parse.unquote(read)):
        reading = reading.split("?")[0]
        if first.getheader("ratelimit") is None:
            assert is_below("/health", read), f"{asked} is exempt, and read as {read}"
            exempt += 1
        if is_below("/api", reading):
            assert second.getheader("ratelimit") is not None, f"{asked} is not limited, and read as {read}"
            limited += 1
# All cases were there.
assert exempt > 20 and limited > 20, (exempt, limited)
print(f"envoy: {passed} paths, {exempt} readings exempt, {limited} limited")
