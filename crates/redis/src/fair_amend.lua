-- Changes what tenants have used of limits that are divided among them, as `amend.lua` does with other limits.
-- KEYS: for each change the state of the shared key, and its tenants.
-- ARGV: the time, or nothing; the verb; then for each its rule, the amount, until when it can be given back, four numbers of the rule,
-- the limit first, the three numbers of its scale, and the weight and the field of the tenant.
-- Returns 1.
local now, shortest = moment(ARGV[1])
local verb = ARGV[2]

-- All are read before any is written, so that data that cannot be read leaves the others as they are.
local opened = {}
for index = 1, #KEYS, 2 do
  local at = 6 * index - 3
  local key, rule, limit = KEYS[index], rules[ARGV[at]], ARGV[at + 3] + 0
  local tenants_key, field = KEYS[index + 1], ARGV[at + 11]
  local scale = {limit = limit, fill = ARGV[at + 7] + 0, active_for = ARGV[at + 8] + 0, tenants = ARGV[at + 9] + 0}
  local policy = {rule, false, limit, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0}
  if verb == 'reset' then
    -- Data that no rule can read is removed.
    if not pcall(open, policy, key, now, false) then
      redis.call('DEL', key)
    end
    if not pcall(shares.load, tenants_key, scale, field) then
      redis.call('DEL', tenants_key)
    end
  end
  opened[index] = {shares.load(tenants_key, scale, field), open(policy, key, now, false)}
end

for index = 1, #KEYS, 2 do
  local at = 6 * index - 3
  local key, rule, amount, lasts = KEYS[index], rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 2] + 0
  local field, longest = ARGV[at + 11], nil
  local tenants, state, marks, found, _, _, _, _, a, b, c, d = unpack(opened[index], 1, 12)
  local is_known = tenants.count > 0
  if verb == 'settle' then
    shares.use_up(tenants, field, ARGV[at + 10] + 0, amount, now)
    rule.settle(state, now, amount, a, b, c, d)
    is_known, found = true, found or amount > 0
  elseif verb == 'reset' then
    shares.give_back(tenants, field)
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
  else
    shares.give_back(tenants, field, amount)
    if verb == 'refund' or now < lasts then
      rule.refund(state, now, amount, a, b, c, d)
    end
  end
  if found then
    save(rule, key, state, words_of(state), marks, now, shortest, longest, a, b, c, d)
  end
  if is_known then
    shares.save(tenants, shortest)
  end
end
return 1
