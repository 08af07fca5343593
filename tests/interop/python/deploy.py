"""A Prometheus that scrapes the server: the rules and the queries of the dashboard work, and name series that there are."""

import json
import re
import sys
import time
import urllib.parse
import urllib.request

PROMETHEUS = sys.argv[1]


def ask(path, **query):
    url = f"{PROMETHEUS}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)["data"]


def until(what, found):
    end = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < end, f"{what} does not come"
        time.sleep(0.1)
    return value


until("a scrape", lambda: ask("query", query='up{job="ratelimitd"} == 1')["result"])

# Every rule has been evaluated, without an error.
groups = until(
    "an evaluation",
    lambda: (groups := ask("rules")["groups"])
    and all(rule["health"] != "unknown" for group in groups for rule in group["rules"])
    and groups,
)
rules = [rule for group in groups for rule in group["rules"]]
for rule in rules:
    assert rule["health"] == "ok", rule
firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
assert not firing, firing

# The server has these, and the page on metrics those that other limits have.
scraped = set(ask("label/__name__/values"))
table = re.findall(r"^\| `(ratelimit_\w+)`", open("crates/ops/docs/metrics.md").read(), re.M)
only_over_tls = {"ratelimitd_certificate_error", "ratelimitd_certificate_expiration_timestamp_seconds"}
only_with_descriptors = {"ratelimitd_descriptor_units_total", "ratelimitd_descriptor_near_limit_units_total"}
known = scraped | set(table) | only_over_tls | only_with_descriptors

dashboard = json.load(open("deploy/grafana/ratelimitd.json"))
queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def has_value(query):
    query = query.replace("$__rate_interval", "1m").replace("$instance", ".*")
    return bool(ask("query", query=query)["result"])


def shown():
    return sum(map(has_value, queries))


for query in queries + [rule["query"] for rule in rules]:
    for name in re.findall(r"\bratelimitd?_\w+", query):
        assert name in known, f"{name} in {query}"
# A rate has a value after two scrapes. Some series are those of other limits.
until("a value of most queries", lambda: shown() >= 10)
print(f"{len(rules)} rules, {len(queries)} queries of the dashboard, of which {shown()} have a value")
