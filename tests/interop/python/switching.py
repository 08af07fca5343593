#!/usr/bin/env python3
"""Asks as two clients while their plan is switched a thousand times from free to pro and back.

switching.py URL,ADMIN… has the addresses of each process. It prints what was seen, a line for each figure. The first
client has nearly used the day of pro before, under a plan without a limit by the minute. The second is new.
"""

import asyncio
import sys
import time
from urllib.parse import urlsplit

SWITCHES = 1000
PRO = {"minute": 100, "day": 10000}
# The remaining units of the first client's day when the switching begins.
LEFT = 50
CONNECTIONS = 4


async def connect(url):
    parts = urlsplit(url)
    return await asyncio.open_connection(parts.hostname, parts.port)


async def exchange(connection, text):
    reader, writer = connection
    writer.write(text.encode())
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
    await reader.readexactly(int(fields.get("content-length", 0)))
    return int(head[0].split()[1]), fields


async def ask(connection, key):
    return await exchange(connection, f"GET / HTTP/1.1\r\nhost: plans\r\nx-api-key: {key}\r\n\r\n")


class Switch:
    """Gives clients a plan in every process, one process after the other."""

    def __init__(self, admins):
        self.admins, self.count = admins, 0

    async def to(self, plan, keys):
        for admin in self.admins:
            for key in keys:
                text = f"POST /plan?key={key}&plan={plan} HTTP/1.1\r\nhost: plans\r\ncontent-length: 0\r\n\r\n"
                status, _ = await exchange(admin, text)
                assert status == 204, status
            self.count += 1


class Client:
    def __init__(self, key):
        self.key, self.admitted, self.began = key, 0, None
        self.under = {"free": 0, "pro": 0, "enterprise": 0, "other": 0}

    async def ask(self, connection):
        # Before the request, so that no window of the server began earlier.
        self.began = self.began or time.monotonic()
        status, fields = await ask(connection, self.key)
        self.admitted += status == 200
        told = fields.get("ratelimit-policy", "")
        plans = {"q=100;": "free", "q=10000;": "pro", "q=1000000;": "enterprise"}
        day = told.partition('"day";')[2]
        plan = next((plan for limit, plan in plans.items() if day.startswith(limit)), "other")
        self.under[plan if status in (200, 429) else "other"] += 1
        return status

    async def keep_asking(self, connection, done):
        while not done.is_set():
            await self.ask(connection)

    async def take(self, connection, units):
        for _ in units:
            assert await self.ask(connection) == 200, self.key


async def main():
    nodes = [node.split(",") for node in sys.argv[1:]]
    switch = Switch([await connect(admin) for _, admin in nodes])
    connections = [await connect(url) for url, _ in nodes for _ in range(CONNECTIONS)]
    day, minute = Client("ent-day"), Client("free-minute")

    units = iter(range(PRO["day"] - LEFT))
    await asyncio.gather(*(day.take(connection, units) for connection in connections))

    done = asyncio.Event()
    others = [await connect(url) for url, _ in nodes for _ in range(CONNECTIONS)]
    asking = [asyncio.create_task(day.keep_asking(connection, done)) for connection in connections]
    asking += [asyncio.create_task(minute.keep_asking(connection, done)) for connection in others]
    for _ in range(SWITCHES):
        await switch.to("free", [day.key, minute.key])
        await switch.to("pro", [day.key, minute.key])
    # Under pro, until nothing is left.
    await asyncio.sleep(0)
    done.set()
    await asyncio.gather(*asking)
    for client in (day, minute):
        while await client.ask(connections[0]) == 200:
            pass

    windows = 1 + int((time.monotonic() - minute.began) / 60)
    print(f"switches: {switch.count}")
    print(f"day_admitted: {day.admitted}")
    print(f"minute_admitted: {minute.admitted}")
    print(f"minute_most: {windows * PRO['minute']}")
    print(f"under_free: {day.under['free']}")
    print(f"under_pro: {day.under['pro']}")
    print(f"other: {day.under['other'] + minute.under['other']}")


asyncio.run(main())
