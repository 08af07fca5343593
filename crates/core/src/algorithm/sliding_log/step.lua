-- The rule of `step.rs`, function by function. A log is long, so it is read in place, by bisection, and changed at
-- its ends. It is a list: the marks, the total before the first entry, and for each entry its time and the total with
-- it.
--
-- A state is the part of the list that counts, from after `first` to `last`, and entries to append: `tail`.
local sliding_log = {}

function sliding_log.load(key)
  local head = redis.call('LRANGE', key, 0, 1)
  local state = {key = key, first = 0, last = 0, seen = {}, tail = {}}
  if not head[1] then
    state.before = 0
    return state
  end
  state.before = tonumber(head[2])
  state.last = redis.call('LLEN', key) / 2 - 1
  state.stored = state.last
  return state, head[1] ~= '' and marking().of(head[1]) or nil, ''
end

-- Returns the time of an entry, and the total with it.
function sliding_log.entry(state, index)
  if index > state.last then
    local entry = state.tail[index - state.last]
    return entry[1], entry[2]
  end
  local seen = state.seen[index]
  if not seen then
    seen = redis.call('LRANGE', state.key, 2 * index, 2 * index + 1)
    seen[1], seen[2] = tonumber(seen[1]), tonumber(seen[2])
    state.seen[index] = seen
  end
  return seen[1], seen[2]
end

function sliding_log.entries(state)
  return state.last + #state.tail
end

-- Drops the entries after the first `entries`, and appends another one.
function sliding_log.append(state, entries, at, total)
  for index = #state.tail, math.max(entries - state.last, 0) + 1, -1 do
    state.tail[index] = nil
  end
  state.last = math.min(state.last, entries)
  state.tail[#state.tail + 1] = {at, total}
end

function sliding_log.total(state, index)
  if index == 0 then
    return state.before
  end
  local _, total = sliding_log.entry(state, index)
  return total
end

-- Returns the first entry for which this holds; it holds for all entries after it.
function sliding_log.search(state, holds)
  local low, high = 1, sliding_log.entries(state) + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if holds(sliding_log.entry(state, middle)) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- Returns how many entries are a period old or older.
function sliding_log.expired(state, now, period)
  local horizon = now - period
  if sliding_log.entries(state) == 0 or sliding_log.entry(state, 1) > horizon then
    return 0
  end
  return sliding_log.search(state, function(at) return at > horizon end) - 1
end

function sliding_log.count(state, now, period)
  local all = sliding_log.total(state, sliding_log.entries(state))
  return all - sliding_log.total(state, sliding_log.expired(state, now, period))
end

function sliding_log.moved_back(state, now)
  local entries = sliding_log.entries(state)
  if entries == 0 then
    return nil
  end
  local at, total = sliding_log.entry(state, entries)
  if at > now then
    -- Requests of one moment share an entry.
    local earlier = sliding_log.search(state, function(then_at) return then_at >= now end) - 1
    sliding_log.append(state, earlier, now, total)
    return state
  end
end

function sliding_log.admits(state, now, cost, limit, period)
  return sliding_log.count(state, now, period) + cost <= limit
end

function sliding_log.charge(state, now, cost, _, period)
  local entries = sliding_log.entries(state)
  local total = sliding_log.total(state, entries)
  if entries > 0 and sliding_log.entry(state, entries) == now then
    entries = entries - 1
  end
  state.first = math.min(sliding_log.expired(state, now, period), entries)
  sliding_log.append(state, entries, now, total + cost)
end

function sliding_log.settle(state, now, units, limit, period)
  local counted = countable(units, sliding_log.count(state, now, period))
  if counted > 0 then
    sliding_log.charge(state, now, counted, limit, period)
  end
end

function sliding_log.refund(state, now, units, _, period)
  local expired = sliding_log.expired(state, now, period)
  local before = sliding_log.total(state, expired)
  local all = sliding_log.total(state, sliding_log.entries(state))
  local left = math.max(all - units, before)
  if left == all then
    return
  elseif left == before then
    state.last, state.tail = math.min(state.last, expired), {}
    state.first = math.min(state.first, state.last)
    return
  end
  -- The newest entries are removed; the last entry that stays may stand for fewer units than before.
  local stays = sliding_log.search(state, function(_, total) return total >= left end)
  local at = sliding_log.entry(state, stays)
  sliding_log.append(state, stays - 1, at, left)
end

function sliding_log.reset_after(state, now, _, period)
  local entries = sliding_log.entries(state)
  if entries == 0 then
    return 0
  end
  local at = sliding_log.entry(state, entries)
  return math.max(at + period - now, 0)
end

function sliding_log.save(state, key, marks, ttl)
  local first, last = state.first, state.last
  local before = sliding_log.total(state, first)
  if not state.stored then
    redis.call('RPUSH', key, marks, before)
  else
    if last < state.stored then
      redis.call('LTRIM', key, 0, 1 + 2 * last)
    end
    if first > 0 then
      redis.call('LTRIM', key, 2 + 2 * math.min(first, last), -1)
      redis.call('LPUSH', key, before, marks)
    else
      redis.call('LSET', key, 0, marks)
    end
  end
  -- An appended entry may be a period old already: units that nodes have held for long.
  for index, entry in ipairs(state.tail) do
    if last + index > first then
      redis.call('RPUSH', key, entry[1], entry[2])
    end
  end
  redis.call('PEXPIRE', key, ttl)
end

-- Returns the entries on which the outcome depends, as a log in the form of `step.rs`. A wait may end under the limit of
-- another hour, so `hours` has all of them.
function sliding_log.words(state, now, cost, limit, period, _, _, hours)
  local expired = sliding_log.expired(state, now, period)
  local entries = sliding_log.entries(state)
  local before = sliding_log.total(state, expired)
  local total = sliding_log.total(state, entries)
  if total == before then
    return ''
  end
  -- What may still count when the next unit, or the request, fits.
  local rooms = {}
  local function look_for(limit)
    local used = math.min(total - before, limit)
    if used > 0 then
      rooms[#rooms + 1] = used - 1
    end
    if cost > 0 and cost <= limit and limit - cost < used - 1 then
      rooms[#rooms + 1] = limit - cost
    end
  end
  look_for(limit)
  if hours then
    for of_hour in string.gmatch(hours, '%d+ (%d+) %d+ %d+ %d+;') do
      look_for(of_hour + 0)
    end
    table.sort(rooms, function(one, other) return one > other end)
  end
  rooms[#rooms + 1] = 0
  local words = {'0'}
  for index, room in ipairs(rooms) do
    if room ~= rooms[index - 1] then
      local first = sliding_log.search(state, function(_, then_total) return total - then_total <= room end)
      local at, with = sliding_log.entry(state, math.max(first, expired + 1))
      words[#words + 1] = string.format('%d %d', at, with - before)
    end
  end
  return table.concat(words, ' ')
end

function sliding_log.remaining(state, now, limit, period)
  return math.max(limit - sliding_log.count(state, now, period), 0)
end
