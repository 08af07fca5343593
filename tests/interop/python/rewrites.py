"""Rewrites the file of a running `from_file` in every way, with clients that ask all the time.

Arguments: the URL of the service, its file, its process, and the number of rewrites in each way.
"""

import hashlib
import http.client
import json
import os
import pathlib
import sys
import threading
import time
import urllib.parse

url, path, process, rewrites = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
host = urllib.parse.urlsplit(url).netloc
folder = path.parent
PLENTY = 4_000_000_000
WITHIN = 2.0


def text(limit, broken):
    unit = "dya" if broken else "day"
    policy = '[policies.{}]\nquota = "{}/{}"\nkey = "client_ip"\n'
    policies = policy.format("a", limit, unit) + policy.format("b", limit, unit)
    return policies + "[responses]\nexpose_decision = true\n"


def in_place(new):
    path.write_text(new)


def in_pieces(new):
    with open(path, "w") as file:
        for at in range(0, len(new), 40):
            file.write(new[at : at + 40])
            file.flush()
            os.fsync(file.fileno())


def moved(new):
    other = folder / "limits.toml.new"
    other.write_text(new)
    other.rename(path)


def backed_up(new):
    path.rename(folder / "limits.toml~")
    path.write_text(new)


def removed(new):
    path.unlink()
    path.write_text(new)


def away(new):
    other = folder / "away.toml"
    path.rename(other)
    time.sleep(0.05)
    other.write_text(new)
    other.rename(path)


def swapped(new):
    """A volume of Kubernetes: the file is a link through `..data`, which is swapped."""
    swapped.number += 1
    data = folder / f"..{swapped.number}"
    data.mkdir()
    (data / "limits.toml").write_text(new)
    link = folder / "..data"
    before = link.readlink() if link.is_symlink() else None
    temporary = folder / "..data_tmp"
    temporary.symlink_to(data.name)
    temporary.rename(link)
    if not path.is_symlink():
        path.unlink()
        path.symlink_to("..data/limits.toml")
    if before:
        old = folder / before
        (old / "limits.toml").unlink()
        old.rmdir()


swapped.number = 0


class Client:
    def __init__(self):
        self.connection = http.client.HTTPConnection(host, timeout=10)

    def get(self, target):
        self.connection.request("GET", target, headers={"x-api-key": "k3y"})
        response = self.connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise AssertionError(f"{response.status} {body!r}")
        return response, json.loads(body)


def limits(told):
    return {policy["limit"] for policy in told["policies"].values()}


asked, lost, mixed = [0], [], []
ended = threading.Event()


def load():
    client = Client()
    while not ended.is_set():
        try:
            response, told = client.get("/")
            seen = limits(told)
            headers = response.headers["ratelimit-policy"]
            if len(told["policies"]) != 2 or len(seen) != 1 or headers.count(f"q={min(seen)};") != 2:
                mixed.append((seen, headers))
            asked[0] += 1
        except Exception as error:
            lost.append(repr(error))
            client = Client()
        time.sleep(0.002)


def memory():
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    kibibytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kibibytes), len(os.listdir(f"/proc/{process}/fd"))


threads = [threading.Thread(target=load, daemon=True) for _ in range(4)]
for thread in threads:
    thread.start()
client, number, good = Client(), 0, 0
late, samples = [], []
begun = time.monotonic()
for way in (in_place, in_pieces, moved, backed_up, removed, away, swapped):
    times = []
    for _ in range(rewrites):
        number += 1
        broken = number % 3 == 0
        new = text(PLENTY + number, broken)
        way(new)
        written = time.monotonic()
        digest = hashlib.sha256(new.encode()).hexdigest()
        while True:
            _, status = client.get("/status")
            # The text of the error may be that of the file before, or of its first half.
            if broken and status["error"] and f"{PLENTY + number}/dya" in status["error"]:
                break
            if not broken and status["sha256"] == digest and not status["error"]:
                break
            if time.monotonic() - written > 60:
                raise SystemExit(f"{way.__name__} {number}: not followed in a minute: {status}")
            time.sleep(0.005)
        times.append(time.monotonic() - written)
        if not broken:
            good += 1
            current = PLENTY + number
        if limits(client.get("/")[1]) != {current}:
            raise SystemExit(f"{way.__name__} {number}: another limit than that of the file in force")
    samples.append(memory())
    times.sort()
    late += [seconds for seconds in times if seconds > WITHIN]
    print(
        f"{way.__name__:>10}: {len(times)} times, in force after {times[len(times) // 2]:.2f} s, "
        f"the slowest {times[-1]:.2f} s; {samples[-1][0]} KiB, {samples[-1][1]} files"
    )
ended.set()
for thread in threads:
    thread.join()
versions = client.get("/status")[1]["version"]
grown = samples[-1][0] - samples[0][0]
print(
    f"{number} rewrites, {number - good} broken, {versions} versions in {time.monotonic() - begun:.0f} s; "
    f"{asked[0]} requests, {len(lost)} lost, {len(mixed)} under a mix, {len(late)} late, memory {grown:+} KiB"
)
wrong = [lost[:3], mixed[:3], late[:3]]
if any(wrong) or versions != good + 1 or asked[0] < number or grown > 4096:
    raise SystemExit(f"from_file: wrong: {wrong}")
