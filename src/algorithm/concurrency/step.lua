-- The rule of `step.rs` for slots that requests of many nodes hold. They are a sorted set: a member for each slot, with
-- its end by the server's clock, and the marks as a member without an end. The numbers are the limit, how long a slot
-- lasts, and the number by which the request holds its slots, or 0 if it only asks.
--
-- Kept is the set's key, when the last slot ends, the moment at which those from the future end, how many slots are taken,
-- and those to add: `slot`, `slots` and `ends`.
local concurrency = {}

function concurrency.load(key)
  local top = redis.call('ZREVRANGEBYSCORE', key, '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 2)
  local marks = top[2] == 'inf' and top[1] or nil
  return {key = key, marks = marks, last = (top[marks and 4 or 2] or 0) + 0}, marks and marking().of(marks) or nil, ''
end

function concurrency.taken(kept, now)
  if not kept.taken then
    kept.taken = redis.call('ZCOUNT', kept.key, string.format('(%d', now), '(+inf')
  end
  return kept.taken
end

-- A slot that lasts for longer than one life is from before the clock has stepped back. A change of marks alone gives no life.
function concurrency.moved_back(kept, now, _, life)
  if life > 0 and kept.last > now + life then
    kept.last, kept.moved = now + life, now + life
    return kept
  end
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
  return math.max(kept.ends or 0, kept.last) - now
end

-- The members of the slots that a request holds by this number.
function concurrency.members(slot, slots)
  local members = {}
  for index = 1, slots do
    members[index] = index == 1 and string.format('%d', slot) or string.format('%d.%d', slot, index)
  end
  return members
end

-- What needs memory is written first: a full server refuses a script at such a write, unless another came before it.
function concurrency.save(kept, key, marks, ttl)
  for _, member in ipairs(kept.slot and concurrency.members(kept.slot, kept.slots) or {}) do
    redis.call('ZADD', key, string.format('%d', kept.ends), member)
  end
  if kept.moved then
    local ends = string.format('%d', kept.moved)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. ends, '(+inf')) do
      redis.call('ZADD', key, ends, member)
    end
  end
  if marks ~= '' then
    redis.call('ZADD', key, '+inf', marks)
  end
  if kept.now then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%d', kept.now))
  end
  if kept.marks and kept.marks ~= marks then
    redis.call('ZREM', key, kept.marks)
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

-- Lets slots last until `ends`, and takes those again that are lost. The members stand in ARGV from `first` to `last`, the
-- latest first. `some` has an end and a member for each slot, as the command takes them: the ends stay for the next set.
-- Returns how many slots were lost. One that has ended and is still there was not: whatever takes a slot removes those that
-- have ended.
function concurrency.renew(key, first, last, ends, ttl, some)
  local ARGV, lost = ARGV, 0
  if last - first >= 32 then
    -- A server keeps up to 128 members as a list, and walks through it for each of them. A member that is too long for a
    -- list makes it look them up.
    local long = string.rep('-', 65)
    redis.call('ZADD', key, '-inf', long)
    redis.call('ZREM', key, long)
  end
  for from = first, last, 2000 do
    local count = math.min(2000, last - from + 1)
    -- Each ends a microsecond before the one that was taken after it. So they keep their order, and a server changes an end
    -- in half the time if its member stays where it is.
    for nth = #some / 2 + 1, count do
      some[2 * nth - 1] = string.format('%d', ends + 1 - nth)
    end
    local length = 0
    for at = from, from + count - 1 do
      length = length + 2
      some[length] = ARGV[at]
    end
    lost = lost + redis.call('ZADD', key, unpack(some, 1, length))
  end
  -- Every third time.
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, string.format('%d', 2 * ttl))
  end
  return lost
end
