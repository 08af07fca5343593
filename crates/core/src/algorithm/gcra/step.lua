-- The rule of `step.rs`, function by function. A request is `period` parts, and `rate` of them drain in each
-- microsecond. A state is the debt at one moment, and the highest rate at which any of it was charged: {at, requests,
-- parts, rate}.
local gcra = {}

-- Returns the time in which this debt drains at a rate: whole microseconds, and the parts that are left then.
function gcra.time(requests, rest, rate, period)
  local owed = requests * period + rest
  if owed < 4503599627370496 then
    local left = owed % rate
    return (owed - left) / rate, left
  end
  local time, left = divided(requests, period, rate)
  rest = left + rest
  left = rest % rate
  return time + (rest - left) / rate, left
end

-- For a debt above the capacity, returns in how many microseconds the excess drains, and the debt that remains then.
-- The rest of the excess takes a microsecond, in which no more drains than at either rate.
function gcra.excess(state, requests, rest, capacity, period, rate)
  local time, left = gcra.time(requests - capacity, rest, math.max(state[4] or 0, rate, 1), period)
  left = math.min(left, math.max(rate, 1))
  rest = left % period
  return time, capacity + (left - rest) / period, rest
end

-- Returns the debt now: whole requests, and parts of one.
function gcra.owed(state, now, capacity, period, rate)
  local requests, rest, elapsed = state[2], state[3], now - state[1]
  if requests >= 8589934590 then
    requests, rest = 8589934590, 0
  end
  if rest >= period then
    rest = period - 1
  end
  if elapsed <= 0 then
    return requests, rest
  end
  if requests > capacity or requests == capacity and rest > 0 then
    local time, left, left_rest = gcra.excess(state, requests, rest, capacity, period, rate)
    rate = math.max(rate, 1)
    if elapsed <= time then
      rate = math.max(state[4] or 0, rate)
    else
      requests, rest, elapsed = left, left_rest, elapsed - time
    end
  end
  local owed = requests * period + rest
  if owed < 4503599627370496 then
    -- A product that is too large to be exact is more than the debt.
    owed = math.max(owed - elapsed * rate, 0)
    rest = owed % period
    return (owed - rest) / period, rest
  end
  local drained, drained_rest = divided(elapsed, rate, period)
  requests, rest = requests - drained, rest - drained_rest
  if rest < 0 then
    requests, rest = requests - 1, rest + period
  end
  if requests < 0 then
    return 0, 0
  end
  return requests, rest
end

-- Returns the time until this debt has drained, rounded up.
function gcra.wait(state, requests, rest, capacity, period, rate)
  local waited = 0
  if requests > capacity or requests == capacity and rest > 0 then
    waited, requests, rest = gcra.excess(state, requests, rest, capacity, period, rate)
  end
  local time, left = gcra.time(requests, rest, math.max(rate, 1), period)
  if left > 0 then
    time = time + 1
  end
  return waited + time
end

-- Returns whether it drains more slowly than at a rate at which it was charged.
function gcra.is_slower(state, rate)
  return (state[4] or 0) > rate
end

function gcra.moved_back(state, now)
  if state[1] > now then
    return {now, state[2], state[3], state[4] or 0}
  end
end

function gcra.admits(state, now, cost, capacity, period, _, rate)
  local requests, rest = gcra.owed(state, now, capacity, period, rate)
  requests = requests + cost
  return requests < capacity or requests == capacity and rest == 0
end

function gcra.charge(state, now, cost, capacity, period, _, rate)
  local requests, rest = gcra.owed(state, now, capacity, period, rate)
  if requests > 0 or rest > 0 then
    rate = math.max(state[4] or 0, rate)
  end
  state[1], state[2], state[3], state[4] = now, requests + cost, rest, rate
end

-- A debt that is already above twice the capacity stays as it is.
function gcra.settle(state, now, units, capacity, period, _, rate)
  local requests, rest = gcra.owed(state, now, capacity, period, rate)
  local most = 2 * capacity
  if requests >= most then
    state[1], state[2], state[3], state[4] = now, requests, rest, state[4] or 0
    return
  end
  if requests > 0 or rest > 0 then
    rate = math.max(state[4] or 0, rate)
  end
  requests = requests + units
  if requests >= most then
    requests, rest = most, 0
  end
  state[1], state[2], state[3], state[4] = now, requests, rest, rate
end

function gcra.refund(state, now, units, capacity, period, _, rate)
  local requests, rest = gcra.owed(state, now, capacity, period, rate)
  if requests < units then
    requests, rest = units, 0
  end
  requests = requests - units
  local highest = state[4] or 0
  if requests == 0 and rest == 0 then
    highest = 0
  end
  state[1], state[2], state[3], state[4] = now, requests, rest, highest
end

-- All later requests have added to the debt. So these are the last turns, if the debt before them drains when the
-- first of them begins; the result may be a microsecond late.
function gcra.give_back(state, now, turns, begins, capacity, period, _, rate)
  local requests, rest = gcra.owed(state, now, capacity, period, rate)
  if requests >= turns then
    local last = now + gcra.wait(state, requests - turns, rest, capacity, period, rate)
    if last == begins or last + 1 == begins then
      gcra.refund(state, now, turns, capacity, period, _, rate)
      return true
    end
  end
end

function gcra.reset_after(state, now, capacity, period, _, rate)
  local requests, rest = gcra.owed(state, now, capacity, period, rate)
  return gcra.wait(state, requests, rest, capacity, period, rate)
end

function gcra.remaining(state, now, capacity, period, _, rate)
  local requests, rest = gcra.owed(state, now, capacity, period, rate)
  if rest > 0 then
    requests = requests + 1
  end
  return math.max(capacity - requests, 0)
end
