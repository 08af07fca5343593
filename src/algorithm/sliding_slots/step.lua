-- The rule of `step.rs`, function by function. A state is the newest slot that was charged, and a ring of `places`
-- counts: {newest, …}. The count of slot `n` is at `n % places`.
local sliding_slots = {}

function sliding_slots.place(slot, places)
  return 2 + slot % places
end

-- Returns the slots that count now, from the oldest to the newest; none in a new state.
function sliding_slots.counting(kept, now, length, places)
  local current = math.floor(now / length)
  if #kept ~= places + 1 then
    return current, current - 1, current
  end
  local oldest = math.max(kept[1] - places + 1, current - places + 1, 0)
  return oldest, kept[1], current
end

function sliding_slots.sum(kept, now, length, places)
  local oldest, newest = sliding_slots.counting(kept, now, length, places)
  local sum = 0
  for slot = oldest, newest do
    sum = sum + kept[sliding_slots.place(slot, places)]
  end
  return sum
end

function sliding_slots.moved_back(kept, now, _, length, places)
  local current = math.floor(now / length)
  if #kept ~= places + 1 or kept[1] <= current then
    return nil
  end
  local moved = {current}
  for index = 2, places + 1 do
    moved[index] = 0
  end
  for slot = math.max(kept[1] - places + 1, 0), kept[1] do
    local index = sliding_slots.place(math.min(slot, current), places)
    moved[index] = moved[index] + kept[sliding_slots.place(slot, places)]
  end
  return moved
end

function sliding_slots.admits(kept, now, cost, limit, length, places)
  return sliding_slots.sum(kept, now, length, places) + cost <= limit
end

function sliding_slots.charge(kept, now, cost, _, length, places)
  local current = math.floor(now / length)
  local newest = kept[1]
  if #kept ~= places + 1 then
    newest = current - places
  end
  -- New slots take the places of slots that have left.
  for slot = math.max(newest + 1, current - places + 1), current do
    kept[sliding_slots.place(slot, places)] = 0
  end
  kept[1] = current
  local index = sliding_slots.place(current, places)
  kept[index] = kept[index] + cost
end

function sliding_slots.settle(kept, now, units, limit, length, places)
  local counted = countable(units, sliding_slots.sum(kept, now, length, places))
  if counted > 0 then
    sliding_slots.charge(kept, now, counted, limit, length, places)
  end
end

function sliding_slots.refund(kept, now, units, _, length, places)
  local oldest, newest = sliding_slots.counting(kept, now, length, places)
  for slot = newest, oldest, -1 do
    local index = sliding_slots.place(slot, places)
    local given_back = math.min(kept[index], units)
    kept[index], units = kept[index] - given_back, units - given_back
  end
end

function sliding_slots.reset_after(kept, now, _, length, places)
  local oldest, newest, current = sliding_slots.counting(kept, now, length, places)
  for slot = newest, oldest, -1 do
    if kept[sliding_slots.place(slot, places)] > 0 then
      return (slot + places) * length - now
    end
  end
  return 0
end

function sliding_slots.remaining(kept, now, limit, length, places)
  return math.max(limit - sliding_slots.sum(kept, now, length, places), 0)
end

function sliding_slots.bin_end(_, now, _, length)
  return (math.floor(now / length) + 1) * length
end
