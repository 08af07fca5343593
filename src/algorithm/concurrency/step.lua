-- The rule of `step.rs` for slots that requests of many nodes hold. They are a sorted set: a member for each slot, with
-- its end by the server's clock, and the marks as a member without an end. The numbers are the limit, how long a slot
-- lasts, and the number by which the request holds its slots, or 0 if it only asks.
--
-- Kept is the set's key, how many slots are taken, and those to add: `slot`, `slots` and `ends`.
local concurrency = {}

function concurrency.load(key)
  local marks = redis.call('ZRANGEBYSCORE', key, '+inf', '+inf')[1]
  return {key = key, marks = marks}, marks and marking().of(marks) or nil, ''
end

function concurrency.taken(kept, now)
  if not kept.taken then
    kept.taken = redis.call('ZCOUNT', kept.key, string.format('(%d', now), '(+inf')
  end
  return kept.taken
end

function concurrency.moved_back()
  return nil
end

function concurrency.admits(kept, now, cost, limit)
  return concurrency.taken(kept, now) + cost <= limit
end

function concurrency.charge(kept, now, cost, _, life, slot)
  if slot > 0 then
    kept.taken = concurrency.taken(kept, now) + cost
    kept.now, kept.slot, kept.slots, kept.ends = now, slot, cost, now + life
  end
end

function concurrency.settle() end

function concurrency.refund() end

-- Until the last slot has ended.
function concurrency.reset_after(kept, now)
  local last = redis.call('ZREVRANGEBYSCORE', kept.key, '(+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 1)
  return math.max(kept.ends or 0, tonumber(last[2] or 0)) - now
end

-- The members of the slots that a request holds by this number.
function concurrency.members(slot, slots)
  local members = {}
  for index = 1, slots do
    members[index] = index == 1 and string.format('%d', slot) or string.format('%d.%d', slot, index)
  end
  return members
end

function concurrency.save(kept, key, marks, ttl)
  if kept.now then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%d', kept.now))
  end
  if kept.marks and kept.marks ~= marks then
    redis.call('ZREM', key, kept.marks)
  end
  if marks ~= '' then
    redis.call('ZADD', key, '+inf', marks)
  end
  for _, member in ipairs(kept.slot and concurrency.members(kept.slot, kept.slots) or {}) do
    redis.call('ZADD', key, string.format('%d', kept.ends), member)
  end
  redis.call('PEXPIRE', key, string.format('%d', ttl))
end

function concurrency.told(kept, now)
  return string.format('%d 0 0', concurrency.taken(kept, now))
end

function concurrency.release(key, slots, slot)
  for _, member in ipairs(concurrency.members(slot, slots)) do
    redis.call('ZREM', key, member)
  end
end

-- Lets slots last for one life more, and takes those again that are lost. The members stand in ARGV from `first` to
-- `last`. Returns how many slots were lost.
function concurrency.renew(key, first, last, now, life, shortest)
  local ends, lost = string.format('%d', now + life), 0
  local ended = redis.call('ZCOUNT', key, '-inf', string.format('%d', now))
  local ARGV = ARGV
  if last - first >= 32 then
    -- A server keeps up to 128 members as a list, and walks through it for each of them. A member that is too long for a
    -- list makes it look them up.
    local long = string.rep('-', 65)
    redis.call('ZADD', key, '-inf', long)
    redis.call('ZREM', key, long)
  end
  for from = first, last, 500 do
    local some, length = {}, 0
    for at = from, math.min(from + 499, last) do
      local member = ARGV[at]
      if ended > 0 then
        local score = redis.call('ZSCORE', key, member)
        lost = lost + ((not score or tonumber(score) <= now) and 1 or 0)
      end
      some[length + 1], some[length + 2] = ends, member
      length = length + 2
    end
    local added = redis.call('ZADD', key, unpack(some))
    lost = lost + (ended > 0 and 0 or added)
  end
  local ttl = math.max(math.ceil(life / 1000), shortest)
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, string.format('%d', ttl))
  end
  return lost
end
