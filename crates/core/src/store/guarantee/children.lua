-- The rule of `children.rs`, function by function, for the children of one key. They are one text, since a decision looks at all of
-- them: the latest moment, and behind a `;` each child: its name, when it has last asked, what it has used of its guarantee, and what
-- is backed. If a part of its debt was forgotten, that follows under the same name. `*` is the name of all that are not told apart.
-- Amounts have too many parts for one number. Each is whole units, microseconds of the period of one more, and parts of a microsecond.
local children = {}
local MOST, FINE = 256, 65536
local NOTHING = {0, 0, 0}

function children.is_less(amount, other)
  for digit = 1, 3 do
    if amount[digit] ~= other[digit] then
      return amount[digit] < other[digit]
    end
  end
  return false
end

function children.least(amount, other)
  return children.is_less(other, amount) and other or amount
end

function children.plus(amount, other, scale)
  local units, micros, fine = amount[1] + other[1], amount[2] + other[2], amount[3] + other[3]
  if fine >= FINE then
    micros, fine = micros + 1, fine - FINE
  end
  if micros >= scale.period then
    units, micros = units + 1, micros - scale.period
  end
  return {units, micros, fine}
end

-- Nothing is less than nothing.
function children.minus(amount, other, scale)
  if children.is_less(amount, other) then
    return NOTHING
  end
  local units, micros, fine = amount[1] - other[1], amount[2] - other[2], amount[3] - other[3]
  if fine < 0 then
    micros, fine = micros - 1, fine + FINE
  end
  if micros < 0 then
    units, micros = units - 1, micros + scale.period
  end
  return {units, micros, fine}
end

function children.units_above(amount)
  local units = (amount[2] > 0 or amount[3] > 0) and amount[1] + 1 or amount[1]
  return math.min(units, 4294967295)
end

-- Returns the scale of a guarantee of so many units under these numbers of the level above, or nothing if they grant nothing.
function children.scale(units, is_window, size, period, quota)
  if size > 0 and quota > 0 then
    return {guaranteed = units, is_window = is_window, size = size, period = period, quota = quota, whole = math.min(quota, size)}
  end
end

-- Returns the parts of a microsecond that come back in one.
function children.rate_of_each(scale, active)
  return math.min(scale.guaranteed * FINE, math.floor(scale.quota * FINE / math.max(active, 1)))
end

-- Returns what comes back at this rate in a time that is less than a period.
function children.grown(scale, rate, passed)
  local part, low = rate % FINE, passed % FINE
  local fine = part * low
  local units, micros = divided(passed, (rate - part) / FINE, scale.period)
  micros = micros + part * ((passed - low) / FINE) + math.floor(fine / FINE)
  local rest = micros % scale.period
  return {units + (micros - rest) / scale.period, rest, fine % FINE}
end

-- Returns the guarantee of each of so many children, which is whole units.
function children.most(scale, active)
  local own = divided(scale.guaranteed, scale.whole, scale.quota)
  return {math.min(own, math.floor(scale.whole / math.max(active, 1))), 0, 0}
end

-- Returns the children under this key.
function children.load(key)
  local it, text = {key = key, at = 0, each = {}}, redis.call('GET', key)
  if not text then
    return it
  end
  local at, from = string.match(text, '^(%d+)();')
  while from and from <= #text do
    local child, numbers = {}, {}
    child.name, numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7], from =
      string.match(text, '^;(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)()', from)
    if from then
      child.seen = numbers[1] + 0
      child.used = {numbers[2] + 0, numbers[3] + 0, numbers[4] + 0}
      child.backed = {numbers[5] + 0, numbers[6] + 0, numbers[7] + 0}
      child.forgotten = {NOTHING, NOTHING}
      local last = it.each[#it.each]
      if last and last.name == child.name then
        last.forgotten = {child.used, child.backed}
      else
        it.each[#it.each + 1] = child
      end
    end
  end
  if not from then
    error('no children are under the key ' .. key .. '; reset it')
  end
  it.at = at + 0
  return it
end

-- Writes the children. After a period without a request all are idle.
function children.save(it, scale, shortest)
  if #it.each == 0 then
    redis.call('DEL', it.key)
    return
  end
  local texts = {string.format('%d', it.at)}
  local function add(child, first, second)
    texts[#texts + 1] = string.format('%s %d %d %d %d %d %d %d', child.name, child.seen, first[1], first[2], first[3], second[1], second[2], second[3])
  end
  for _, child in ipairs(it.each) do
    add(child, child.used, child.backed)
    local latest, older = child.forgotten[1], child.forgotten[2]
    if children.is_less(NOTHING, latest) or children.is_less(NOTHING, older) then
      add(child, latest, older)
    end
  end
  local ttl = math.max(math.ceil(scale.period / 1000) + 1, shortest)
  redis.call('SET', it.key, table.concat(texts, ';'), 'PX', string.format('%d', ttl))
end

function children.rest(child, most, scale)
  return children.minus(most, child.used, scale)
end

function children.forget_debt(child, most, scale)
  if not scale.is_window and children.is_less(most, child.used) then
    local forgotten = children.plus(child.forgotten[1], children.minus(child.used, most, scale), scale)
    child.forgotten[1], child.used = children.least(forgotten, {4294967295, 0, 0}), most
  end
end

-- Takes what is given back off what was forgotten, the older part first, and returns what is left of it.
function children.repay(child, amount, scale)
  for place = 2, 1, -1 do
    local repaid = children.least(amount, child.forgotten[place])
    child.forgotten[place] = children.minus(child.forgotten[place], repaid, scale)
    amount = children.minus(amount, repaid, scale)
  end
  return amount
end

-- Brings all children to this moment, and forgets those that are idle.
function children.advance(it, now, scale)
  local before, each, kept = it.at, it.each, {}
  local passed, rate = math.max(now - before, 0), children.rate_of_each(scale, #each)
  it.at = now
  for _, child in ipairs(each) do
    -- The clock may have stepped back.
    child.seen = math.min(child.seen, now)
    if now - child.seen < scale.period then
      kept[#kept + 1] = child
    end
  end
  it.each = kept
  if #kept == 0 then
    return
  end
  local most, grown = children.most(scale, #kept), children.grown(scale, rate, passed)
  local periods = math.floor(now / scale.period) - math.floor(before / scale.period)
  for _, child in ipairs(kept) do
    if periods > 0 then
      child.forgotten = {NOTHING, periods == 1 and child.forgotten[1] or NOTHING}
    end
    if scale.is_window and periods > 0 then
      child.used, child.backed = NOTHING, most
    elseif not scale.is_window then
      child.used = children.minus(child.used, grown, scale)
      child.backed = children.least(children.plus(child.backed, grown, scale), children.rest(child, most, scale))
    end
  end
end

-- Returns the child of this name, if it is told apart from others.
function children.known(it, name)
  for _, child in ipairs(it.each) do
    if child.name == name then
      return child
    end
  end
end

-- Returns the child of this name, which asks.
function children.find(it, name, scale)
  local child = children.known(it, name)
  if not child then
    if #it.each + 1 >= math.min(MOST, scale.whole) then
      name = '*'
    end
    child = children.known(it, name)
  end
  if not child then
    child = {name = name, used = NOTHING, backed = NOTHING, forgotten = {NOTHING, NOTHING}}
    it.each[#it.each + 1] = child
  end
  child.seen = it.at
  return child
end

-- Returns what a request of the child of this name may take, which is active from now on, if so many units are left of the level above,
-- and its child. A request without a child may only borrow.
function children.ask(it, name, now, left, scale)
  children.advance(it, now, scale)
  local own = name and children.find(it, name, scale)
  local most, free = children.most(scale, #it.each), {left, 0, 0}
  for _, child in ipairs(it.each) do
    -- With one more, each has less.
    children.forget_debt(child, most, scale)
    child.backed = children.least(child.backed, children.rest(child, most, scale))
    free = children.minus(free, child.backed, scale)
  end
  for _, child in ipairs(it.each) do
    local more = children.least(free, children.minus(children.rest(child, most, scale), child.backed, scale))
    child.backed, free = children.plus(child.backed, more, scale), children.minus(free, more, scale)
  end
  return children.claim(it, own, now, left, scale), own
end

function children.claim(it, own, now, left, scale)
  local claim = {is_of_child = own ~= nil, backed = 0, rest = 0, others = 0, lapse = 0, left = left, scale = scale}
  local most, backed, rests = children.most(scale, #it.each), NOTHING, NOTHING
  for _, child in ipairs(it.each) do
    local rest = children.rest(child, most, scale)
    if child == own then
      claim.backed, claim.rest = child.backed[1], rest[1]
    else
      claim.others = claim.others + 1
      backed, rests = children.plus(backed, child.backed, scale), children.plus(rests, rest, scale)
      claim.lapse = math.max(claim.lapse, child.seen + scale.period - now)
    end
  end
  claim.backed_of_others, claim.rests_of_others = children.units_above(backed), children.units_above(rests)
  return claim
end

-- Returns the units that the level above needs to have, so that a request of this cost passes.
function children.needs(claim, cost)
  if cost <= claim.backed then
    return cost
  elseif cost <= claim.rest then
    return cost + claim.backed_of_others
  end
  return cost + claim.rests_of_others
end

-- Returns how many units the child may take.
function children.grants(claim)
  local left = claim.left
  return math.max(math.min(claim.backed, left), math.min(claim.rest, left - claim.backed_of_others), left - claim.rests_of_others, 0)
end

-- Charges a request that has passed.
function children.charge(it, child, cost, scale)
  local units = {cost, 0, 0}
  child.backed, child.used = children.minus(child.backed, units, scale), children.plus(child.used, units, scale)
  children.forget_debt(child, children.most(scale, #it.each), scale)
end

-- Adds units to what a child has used, after the fact.
function children.use_up(it, name, units, now, scale)
  children.advance(it, now, scale)
  children.charge(it, children.find(it, name, scale), units, scale)
end

-- Gives units back to a child. Those of its guarantee are there again, so they are backed; what it had borrowed is nobody's.
function children.give_back(it, name, units, now, scale)
  children.advance(it, now, scale)
  local child = children.known(it, name) or children.known(it, '*')
  if child then
    local amount = children.repay(child, {units, 0, 0}, scale)
    child.used = children.minus(child.used, amount, scale)
    local rest = children.rest(child, children.most(scale, #it.each), scale)
    child.backed = children.least(children.plus(child.backed, amount, scale), rest)
  end
end

-- Returns the text of a claim, or none if nothing but the limit of the level above decides.
function children.text(claim)
  if claim.others == 0 then
    return ''
  end
  local scale = claim.scale
  return string.format('%%%d %d %d %d %d %d %d %d %d %d %d %d %d|', claim.left, claim.backed, claim.rest, claim.backed_of_others,
    claim.rests_of_others, claim.others, claim.lapse, claim.is_of_child and 1 or 0, scale.quota, scale.size, scale.period, scale.guaranteed,
    scale.is_window and 1 or 0)
end

