-- The rule of `interval.rs`, function by function. `refill` tokens arrive together, once in each `period`. A state is
-- the missing tokens after the last refill, and the highest rate at which any of them was charged: {time of the
-- refill, tokens, rate}.
local by_interval = {}

-- For missing tokens above the capacity, returns in how many refills the excess arrives, and how many are missing
-- then. The rest of the excess takes a refill, in which no more tokens arrive than at either rate.
function by_interval.excess(state, tokens, capacity, refill)
  local excess, fast = tokens - capacity, math.max(state[3], refill, 1)
  local left = excess % fast
  return (excess - left) / fast, capacity + math.min(left, math.max(refill, 1)), fast
end

-- Returns the time of the last refill, and the missing tokens since.
function by_interval.missing_at(state, now, capacity, period, refill)
  local refills = math.floor((now - state[1]) / period)
  local tokens = math.min(state[2], 8589934590)
  if tokens > capacity then
    local whole, left, fast = by_interval.excess(state, tokens, capacity, refill)
    if refills <= whole then
      tokens = tokens - refills * fast
    else
      tokens = left - (refills - whole) * math.max(refill, 1)
    end
  else
    tokens = tokens - refills * refill
  end
  if tokens <= 0 then
    return now, 0
  end
  return state[1] + refills * period, tokens
end

-- Returns whether tokens arrive more slowly than at a rate at which they were charged.
function by_interval.is_slower(state, refill)
  return state[3] > refill
end

function by_interval.moved_back(state, now)
  if state[1] > now then
    return {now, state[2], state[3]}
  end
end

function by_interval.admits(state, now, cost, capacity, period, _, refill)
  local _, tokens = by_interval.missing_at(state, now, capacity, period, refill)
  return tokens + cost <= capacity
end

-- Stores the missing tokens after a charge; `before` were missing until now.
function by_interval.charged(state, refilled, before, tokens, rate)
  if before > 0 then
    rate = math.max(state[3], rate)
  end
  state[1], state[2], state[3] = refilled, tokens, rate
end

function by_interval.charge(state, now, cost, capacity, period, _, refill)
  local refilled, tokens = by_interval.missing_at(state, now, capacity, period, refill)
  by_interval.charged(state, refilled, tokens, tokens + cost, refill)
end

-- More than twice the capacity stays as it is, if it is missing already.
function by_interval.settle(state, now, units, capacity, period, _, refill)
  local refilled, tokens = by_interval.missing_at(state, now, capacity, period, refill)
  if tokens < 2 * capacity then
    by_interval.charged(state, refilled, tokens, math.min(tokens + units, 2 * capacity), refill)
  else
    state[1], state[2] = refilled, tokens
  end
end

function by_interval.refund(state, now, units, capacity, period, _, refill)
  local refilled, tokens = by_interval.missing_at(state, now, capacity, period, refill)
  tokens = math.max(tokens - units, 0)
  local rate = state[3]
  if tokens == 0 then
    rate = 0
  end
  state[1], state[2], state[3] = refilled, tokens, rate
end

function by_interval.reset_after(state, now, capacity, period, _, refill)
  local refilled, tokens = by_interval.missing_at(state, now, capacity, period, refill)
  if tokens == 0 then
    return 0
  end
  local refills = 0
  if tokens > capacity then
    refills, tokens = by_interval.excess(state, tokens, capacity, refill)
  end
  return (refills + math.ceil(tokens / math.max(refill, 1))) * period - (now - refilled)
end

function by_interval.remaining(state, now, capacity, period, _, refill)
  local _, tokens = by_interval.missing_at(state, now, capacity, period, refill)
  return math.max(capacity - tokens, 0)
end

-- Returns the next refill. A full bucket waits for none.
function by_interval.bin_end(state, now, capacity, period, _, refill)
  local refilled, tokens = by_interval.missing_at(state, now, capacity, period, refill)
  if tokens == 0 then
    return now
  end
  return refilled + period
end
