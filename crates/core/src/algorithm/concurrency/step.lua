-- The rule of `step.rs` for slots that requests of many nodes hold. They are a sorted set: a member for each slot, with
-- its end by the server's clock, and the marks as a member without an end. If slots are divided, the tenant stands behind
-- the name of its slot. The numbers are the limit, how long a slot lasts, and the number by which the request holds its
-- slots, or 0 if it only asks.
--
-- A state is the set's key, when the last slot ends, the moment at which those from the future end, how many slots are taken,
-- and those to add: `slot`, `slots`, `ends`, and their `tenant`.
local concurrency = {}

function concurrency.load(key)
  local top = redis.call('ZREVRANGEBYSCORE', key, '+inf', '-inf', 'WITHSCORES', 'LIMIT', 0, 2)
  local marks = top[2] == 'inf' and top[1] or nil
  return {key = key, marks = marks, last = (top[marks and 4 or 2] or 0) + 0}, marks and marking().of(marks) or nil, ''
end

function concurrency.taken(state, now)
  if not state.taken then
    state.taken = redis.call('ZCOUNT', state.key, string.format('(%d', now), '(+inf')
  end
  return state.taken
end

-- A slot that lasts for longer than one life is from before the clock has stepped back. A change of marks alone gives no life.
function concurrency.moved_back(state, now, _, life)
  if life > 0 and state.last > now + life then
    state.last, state.moved = now + life, now + life
    return state
  end
end

function concurrency.admits(state, now, cost, limit)
  return concurrency.taken(state, now) + cost <= limit
end

function concurrency.charge(state, now, cost, _, life, slot)
  if slot > 0 then
    state.taken = concurrency.taken(state, now) + cost
    state.now, state.slot, state.slots, state.ends = now, slot, cost, now + life
  end
end

function concurrency.settle() end

function concurrency.refund() end

-- Until the last slot has ended.
function concurrency.reset_after(state, now)
  return math.max(state.ends or 0, state.last) - now
end

-- The members of the slots that a request holds by this number, of this tenant if there is one.
function concurrency.members(slot, slots, tenant)
  local members = {}
  for index = 1, slots do
    members[index] = index == 1 and string.format('%d', slot) or string.format('%d.%d', slot, index)
    if tenant then
      members[index] = members[index] .. ' ' .. tenant
    end
  end
  return members
end

-- What needs memory is written first: a full server refuses a script at such a write, unless another came before it.
function concurrency.save(state, key, marks, ttl)
  for _, member in ipairs(state.slot and concurrency.members(state.slot, state.slots, state.tenant) or {}) do
    redis.call('ZADD', key, string.format('%d', state.ends), member)
  end
  if state.moved then
    local ends = string.format('%d', state.moved)
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. ends, '(+inf')) do
      redis.call('ZADD', key, ends, member)
    end
  end
  if marks ~= '' then
    redis.call('ZADD', key, '+inf', marks)
  end
  if state.now then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%d', state.now))
  end
  if state.marks and state.marks ~= marks then
    redis.call('ZREM', key, state.marks)
  end
  redis.call('PEXPIRE', key, string.format('%d', ttl))
end

function concurrency.words(state, now)
  return string.format('%d 0 0', concurrency.taken(state, now))
end

-- Returns how many slots were there.
function concurrency.release(key, slots, slot, tenant)
  local released = 0
  for _, member in ipairs(concurrency.members(slot, slots, tenant)) do
    released = released + redis.call('ZREM', key, member)
  end
  return released
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
