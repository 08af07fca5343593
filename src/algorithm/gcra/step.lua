-- The rule of `step.rs`, function by function. `parts` parts are a request, and `drain` of them drain in
-- each microsecond. Kept is the debt at one moment: {at, requests, parts}; if it is above the capacity, a mark of
-- the rule that has left it follows: {…, capacity, limit}.
local gcra = {}

-- What is owed now: whole requests, and parts of one.
function gcra.owed(kept, now, drain, parts)
  local requests, rest = kept[2], kept[3]
  if rest >= parts then
    rest = parts - 1
  end
  if now <= kept[1] then
    return requests, rest
  end
  local owed = requests * parts + rest
  if owed < 4503599627370496 then
    -- A product that is too large to be exact is more than the debt.
    owed = math.max(owed - (now - kept[1]) * drain, 0)
    rest = owed % parts
    return (owed - rest) / parts, rest
  end
  local drained, drained_rest = divided(now - kept[1], drain, parts)
  requests, rest = requests - drained, rest - drained_rest
  if rest < 0 then
    requests, rest = requests - 1, rest + parts
  end
  if requests < 0 then
    return 0, 0
  end
  return requests, rest
end

-- The time in which this debt drains, rounded up.
function gcra.time_to_drain(requests, rest, drain, parts)
  local owed = requests * parts + rest
  if owed < 4503599627370496 then
    return math.ceil(owed / drain)
  end
  local time, left = divided(requests, parts, drain)
  return time + math.ceil((left + rest) / drain)
end

-- The largest possible debt: the capacity, or twice as much after a charge after the fact under this rule.
function gcra.most(kept, capacity, limit)
  if kept[4] == capacity and kept[5] == limit then
    return 2 * capacity
  end
  return capacity
end

function gcra.moved_back(kept, now, capacity, drain, parts, limit)
  local at = kept[1]
  if at <= now and kept[2] < capacity then
    return nil
  end
  local most = gcra.most(kept, capacity, limit)
  local possible = {math.min(at, now), kept[2], kept[3], kept[4], kept[5]}
  local requests, rest = gcra.owed(possible, now, drain, parts)
  if requests > most or requests == most and rest > 0 then
    return {now, most, 0, possible[4], possible[5]}
  end
  return at > now and possible
end

function gcra.admits(kept, now, cost, capacity, drain, parts)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  requests = requests + cost
  return requests < capacity or requests == capacity and rest == 0
end

-- Keeps this debt. Marks a debt above the capacity.
function gcra.keep(kept, now, requests, rest, capacity, limit)
  kept[1], kept[2], kept[3] = now, requests, rest
  if requests > capacity or requests == capacity and rest > 0 then
    kept[4], kept[5] = capacity, limit
  elseif kept[4] then
    kept[4], kept[5] = nil, nil
  end
end

function gcra.charge(kept, now, cost, capacity, drain, parts, limit)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  gcra.keep(kept, now, requests + cost, rest, capacity, limit)
end

function gcra.settle(kept, now, units, capacity, drain, parts, limit)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  requests = requests + units
  if requests >= 2 * capacity then
    requests, rest = 2 * capacity, 0
  end
  gcra.keep(kept, now, requests, rest, capacity, limit)
end

function gcra.refund(kept, now, units, capacity, drain, parts, limit)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  if requests < units then
    requests, rest = units, 0
  end
  gcra.keep(kept, now, requests - units, rest, capacity, limit)
end

-- All requests that have come later have added to the debt: these are the last turns if the debt before
-- them drains when the first of them begins, which can be told a microsecond late.
function gcra.give_back(kept, now, turns, begins, capacity, drain, parts, limit)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  if requests >= turns then
    local last = now + gcra.time_to_drain(requests - turns, rest, drain, parts)
    if last == begins or last + 1 == begins then
      gcra.refund(kept, now, turns, capacity, drain, parts, limit)
      return true
    end
  end
end

function gcra.reset_after(kept, now, _, drain, parts)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  return gcra.time_to_drain(requests, rest, drain, parts)
end
