-- The rule of `step.rs`, function by function. `parts` parts are a request, and `drain` of them drain in
-- each microsecond. Kept is what was owed at one moment: {at, requests, parts}.
local gcra = {}

-- What is owed now: whole requests, and parts of one.
function gcra.owed(kept, now, drain, parts)
  local requests, rest = kept[2], kept[3]
  if rest >= parts then
    rest = parts - 1
  end
  if now > kept[1] then
    local drained, drained_rest = divided(now - kept[1], drain, parts)
    requests, rest = requests - drained, rest - drained_rest
    if rest < 0 then
      requests, rest = requests - 1, rest + parts
    end
    if requests < 0 then
      return 0, 0
    end
  end
  return requests, rest
end

-- The time in which so much drains, rounded up.
function gcra.time_to_drain(requests, rest, drain, parts)
  local time, left = divided(requests, parts, drain)
  return time + math.ceil((left + rest) / drain)
end

function gcra.moved_back(kept, now, capacity, drain, parts)
  local at = kept[1]
  if at <= now and kept[2] < capacity then
    return nil
  end
  local possible = {math.min(at, now), kept[2], kept[3]}
  local requests, rest = gcra.owed(possible, now, drain, parts)
  if requests > capacity or requests == capacity and rest > 0 then
    return {now, capacity, 0}
  end
  return at > now and possible
end

function gcra.admits(kept, now, cost, capacity, drain, parts)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  requests = requests + cost
  return requests < capacity or requests == capacity and rest == 0
end

function gcra.charge(kept, now, cost, _, drain, parts)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  kept[1], kept[2], kept[3] = now, requests + cost, rest
end

function gcra.refund(kept, now, units, _, drain, parts)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  if requests < units then
    requests, rest = units, 0
  end
  kept[1], kept[2], kept[3] = now, requests - units, rest
end

-- All who have come later have added to the debt: it is the last turn if the debt before it drains when
-- its request was to leave.
function gcra.give_back(kept, now, cost, departure, capacity, drain, parts)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  if requests >= cost
    and now + gcra.time_to_drain(requests - cost, rest, drain, parts) == departure then
    gcra.refund(kept, now, cost, capacity, drain, parts)
  end
end

function gcra.reset_after(kept, now, _, drain, parts)
  local requests, rest = gcra.owed(kept, now, drain, parts)
  return gcra.time_to_drain(requests, rest, drain, parts)
end
