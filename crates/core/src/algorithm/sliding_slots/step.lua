-- The rule of `step.rs`, function by function. A state is the newest slot that was charged, and a ring of `places`
-- counts: {newest, …}. The count of slot `n` is at `n % places`.
local sliding_slots = {}

function sliding_slots.place(slot, places)
  return 2 + slot % places
end

-- Returns the slots that count now, from the oldest to the newest; none in a new state.
function sliding_slots.counting(state, now, length, places)
  local current = math.floor(now / length)
  if #state ~= places + 1 then
    return current, current - 1, current
  end
  local oldest = math.max(state[1] - places + 1, current - places + 1, 0)
  return oldest, state[1], current
end

function sliding_slots.sum(state, now, length, places)
  local oldest, newest = sliding_slots.counting(state, now, length, places)
  local sum = 0
  for slot = oldest, newest do
    sum = sum + state[sliding_slots.place(slot, places)]
  end
  return sum
end

function sliding_slots.moved_back(state, now, _, length, places)
  local current = math.floor(now / length)
  if #state ~= places + 1 or state[1] <= current then
    return nil
  end
  local moved = {current}
  for index = 2, places + 1 do
    moved[index] = 0
  end
  for slot = math.max(state[1] - places + 1, 0), state[1] do
    local index = sliding_slots.place(math.min(slot, current), places)
    moved[index] = moved[index] + state[sliding_slots.place(slot, places)]
  end
  return moved
end

function sliding_slots.admits(state, now, cost, limit, length, places)
  return sliding_slots.sum(state, now, length, places) + cost <= limit
end

function sliding_slots.charge(state, now, cost, _, length, places)
  local current = math.floor(now / length)
  local newest = state[1]
  if #state ~= places + 1 then
    newest = current - places
  end
  -- New slots take the places of slots that have left.
  for slot = math.max(newest + 1, current - places + 1), current do
    state[sliding_slots.place(slot, places)] = 0
  end
  state[1] = current
  local index = sliding_slots.place(current, places)
  state[index] = state[index] + cost
end

function sliding_slots.settle(state, now, units, limit, length, places)
  local counted = countable(units, sliding_slots.sum(state, now, length, places))
  if counted > 0 then
    sliding_slots.charge(state, now, counted, limit, length, places)
  end
end

function sliding_slots.refund(state, now, units, _, length, places)
  local oldest, newest = sliding_slots.counting(state, now, length, places)
  for slot = newest, oldest, -1 do
    local index = sliding_slots.place(slot, places)
    local given_back = math.min(state[index], units)
    state[index], units = state[index] - given_back, units - given_back
  end
end

function sliding_slots.reset_after(state, now, _, length, places)
  local oldest, newest, current = sliding_slots.counting(state, now, length, places)
  for slot = newest, oldest, -1 do
    if state[sliding_slots.place(slot, places)] > 0 then
      return (slot + places) * length - now
    end
  end
  return 0
end

function sliding_slots.remaining(state, now, limit, length, places)
  return math.max(limit - sliding_slots.sum(state, now, length, places), 0)
end

function sliding_slots.bin_end(_, now, _, length)
  return (math.floor(now / length) + 1) * length
end
