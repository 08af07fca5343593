#!/usr/bin/env python3
"""Asks with invented keys, as fast as it can, while a known customer asks all the while.

flood.py URL PROCESS KEYS CUSTOMER prints what was seen, a line for each figure.

The invented keys come from a process of their own with the lowest priority, as they come from other machines in the
field: the wait of the known customer is that for the service, and not that for the program that measures it.
"""

import asyncio
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from urllib.parse import urlsplit

# More keys than lookups in flight.
CONNECTIONS = 96


def request(path, key):
    return f"GET {path} HTTP/1.1\r\nhost: rules\r\nx-api-key: {key}\r\n\r\n".encode()


async def answer(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return int(head[9:12]), await reader.readexactly(length)


async def ask_with(keys, url):
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    answers = 0
    for key in keys:
        writer.write(request("/", f"invented-{key}"))
        status, _ = await answer(reader)
        answers += status == 200
    writer.close()
    return answers


def flood(url, number):
    """Returns how many of the keys were answered."""
    os.nice(19)

    async def ask():
        keys = iter(range(number))
        return sum(await asyncio.gather(*(ask_with(keys, url) for _ in range(CONNECTIONS))))

    return asyncio.run(ask())


async def known(url, customer, seen, done):
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    while not done.is_set() or len(seen["waits"]) < 100:
        began = time.perf_counter()
        writer.write(request("/", customer))
        status, body = await answer(reader)
        seen["waits"].append(time.perf_counter() - began)
        told = json.loads(body) if status == 200 else {}
        seen["known_changed"] += told.get("rule") != "resolver pro"
        await asyncio.sleep(0.01)
    writer.close()


async def usage(url):
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(request("/resolver", "nobody"))
    _, body = await answer(reader)
    writer.close()
    return json.loads(body)


async def watch(url, seen, done):
    while True:
        told = await usage(url)
        for name in ("in_flight", "not_found"):
            seen[name] = max(seen[name], told[name])
        if done.is_set():
            return
        await asyncio.sleep(0.02)


def resident(process):
    with open(f"/proc/{process}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def part(waits, hundredths):
    ordered = sorted(waits)
    return round(ordered[min(len(ordered) - 1, len(ordered) * hundredths // 100)] * 1000)


async def main():
    url, process, number, customer = urlsplit(sys.argv[1]), *sys.argv[2:]
    number = int(number)
    calm = {"waits": [], "known_changed": 0}
    nothing = asyncio.Event()
    nothing.set()
    await known(url, customer, calm, nothing)
    before = resident(process)

    seen = {"known_changed": 0, "in_flight": 0, "not_found": 0, "waits": []}
    done = asyncio.Event()
    others = [asyncio.create_task(known(url, customer, seen, done)), asyncio.create_task(watch(url, seen, done))]
    began = time.perf_counter()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as flooder:
        seen["answers"] = await asyncio.get_running_loop().run_in_executor(flooder, flood, url, number)
    seconds = time.perf_counter() - began
    done.set()
    await asyncio.gather(*others)

    waits = seen.pop("waits")
    for name, value in seen.items():
        print(f"{name}: {value}")
    print(f"seconds: {seconds:.1f}")
    print(f"bytes_a_key: {max(0, resident(process) - before) // number}")
    print(f"calm_half_ms: {part(calm['waits'], 50)}")
    print(f"calm_p99_ms: {part(calm['waits'], 99)}")
    print(f"known_half_ms: {part(waits, 50)}")
    print(f"known_p99_ms: {part(waits, 99)}")


if __name__ == "__main__":
    asyncio.run(main())
