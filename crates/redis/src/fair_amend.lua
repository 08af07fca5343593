-- Changes what tenants have used of limits that are divided among them, as `amend.lua` does with other limits.
-- KEYS: for each change the state of the shared key, and its tenants.
-- ARGV: the time, or nothing; the verb; then for each its rule, the amount, until when it can be given back or when the turns of a queue begin
-- that are, four numbers of the rule, the limit first, the three numbers of its scale, and the weight and the field of the tenant.
-- `share` changes nothing, and returns how many other tenants of one shared key are active, and what they weigh together; `leased` returns
-- how many units of that key nodes hold.
-- Of slots, `release` gives those back that a request holds by a number, which stands in place of the moment, and `reset` removes
-- what cannot be read.
-- Returns 1 if it is done, else 0: turns of a queue may not be the last.
local now, shortest = moment(ARGV[1])
local verb, is_done = ARGV[2], true

-- Returns all tenants of the charge at this place of ARGV.
local function read_all(set, key, at, scale)
  local field, of, it, places = ARGV[at + 11], nil, nil, {}
  if rules[ARGV[at]] == rules.concurrency then
    of, it = holders, holders.load(key, set, scale, field)
  else
    of, it = shares, shares.load(key, scale, field)
  end
  for place = 1, it.count do
    places[place] = place
  end
  of.read(it, places)
  return it
end

-- Returns how many tenants but that of the charge have asked lately, and what they weigh together.
local function beside(set, key, at, scale)
  local it, field, others, weights = read_all(set, key, at, scale), ARGV[at + 11], 0, 0
  for _, tenant in ipairs(it.tenants) do
    if tenant.field ~= field and now + it.behind - tenant.seen <= scale.active_for then
      others, weights = others + 1, weights + tenant.weight
    end
  end
  return {others, weights}
end

-- Gives back the slots that a request of a tenant holds, whose charge stands at this place of ARGV.
local function release(set, key, at, scale)
  local rule, field = rules.concurrency, ARGV[at + 11]
  local state = rule.load(set)
  local it = holders.load(key, set, scale, field)
  holders.catch_up(it, now, rule.taken(state, now))
  holders.remove_ended(it, now)
  local released = rule.release(set, ARGV[at + 1] + 0, ARGV[at + 2] + 0, field)
  if released > 0 then
    holders.give_back(it, field, released, now)
  end
  if it.at > 0 then
    holders.save(it, now, it.held > 0 and rule.reset_after(state, now) or 0, shortest)
  end
end

-- Removes the slots and the tenants of a shared key if they cannot be read.
local function reset_slots(set, key, at, scale)
  if not pcall(rules.concurrency.load, set) then
    redis.call('DEL', set)
  end
  if not pcall(read_all, set, key, at, scale) then
    redis.call('DEL', key)
  end
end

-- All rates are read before any is charged, so that data that cannot be read leaves the others as they are. Slots are given back, and
-- what cannot be read is removed, one key after the other: it is the same if it is done again.
local opened = {}
for index = 1, #KEYS, 2 do
  local at = 6 * index - 3
  local key, rule, limit = KEYS[index], rules[ARGV[at]], ARGV[at + 3] + 0
  local tenants_key, field = KEYS[index + 1], ARGV[at + 11]
  local scale = {limit = limit, fill = ARGV[at + 7] + 0, active_for = ARGV[at + 8] + 0, tenants = ARGV[at + 9] + 0}
  local policy = {rule, false, limit, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0}
  if verb == 'share' then
    return beside(key, tenants_key, at, scale)
  elseif verb == 'leased' then
    return (select(7, open(policy, key, now, false)))
  elseif rule == rules.concurrency then
    (verb == 'release' and release or reset_slots)(key, tenants_key, at, scale)
  elseif verb == 'reset' then
    -- Data that no rule can read is removed.
    if not pcall(open, policy, key, now, false) then
      redis.call('DEL', key)
    end
    if not pcall(read_all, key, tenants_key, at, scale) then
      redis.call('DEL', tenants_key)
    end
  end
  if rule ~= rules.concurrency then
    opened[index] = {shares.load(tenants_key, scale, field), open(policy, key, now, false)}
  end
end

for index, them in pairs(opened) do
  local at = 6 * index - 3
  local key, rule, amount, departure = KEYS[index], rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 2] + 0
  local field, longest = ARGV[at + 11], nil
  local tenants, state, marks, found, _, _, _, _, a, b, c, d = unpack(them, 1, 12)
  local is_known = tenants.count > 0
  if verb == 'settle' then
    shares.use_up(tenants, field, ARGV[at + 10] + 0, amount, now)
    rule.settle(state, now, amount, a, b, c, d)
    is_known, found = true, found or amount > 0
  elseif verb == 'reset' then
    shares.give_back(tenants, field, now)
    redis.call('DEL', key)
    -- The marks stay.
    state, found = load(key), marks
  elseif verb == 'end override' then
    -- It was set before the limit was divided.
    if marks and marks.own then
      rule.refund(state, now, 0, a, b, c, d)
      longest = marks.own.policys
      marks.own = nil
    end
  elseif verb == 'give back' then
    local are_last = rule.give_back and rule.give_back(state, now, amount, departure, a, b, c, d)
    if are_last then
      shares.give_back(tenants, field, now, amount)
    else
      is_done, found, is_known = false, false, false
    end
  elseif verb == 'refund' or now < departure then
    shares.give_back(tenants, field, now, amount)
    rule.refund(state, now, amount, a, b, c, d)
  else
    -- What the limit no longer takes back is used up.
    found, is_known = false, false
  end
  if found then
    save(rule, key, state, words_of(state), marks, now, shortest, longest, a, b, c, d)
  end
  if is_known then
    shares.save(tenants, shortest)
  end
end
return is_done and 1 or 0
