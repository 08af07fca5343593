-- Changes what was used of limits that are guaranteed in part to children, as `amend.lua` does with other limits.
-- KEYS: for each change the state, and the children.
-- ARGV: the time, or nothing; `settle`, `refund`, `take back` or `reset`; then for each its rule, the amount, until when it can be given
-- back, four numbers of the rule, the limit first, the units that it guarantees to each child, and the name of the child, or nothing.
-- Returns 1.
local now, shortest = moment(ARGV[1])
local verb = ARGV[2]

-- All are read before any is written, so that data that cannot be read leaves the others as they are.
local opened, families = {}, {}
for index = 1, #KEYS, 2 do
  local at = (9 * index - 3) / 2
  local policy = {rules[ARGV[at]], false, ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0}
  if verb == 'reset' then
    -- Data that no rule can read is removed.
    redis.call('DEL', KEYS[index + 1])
    if not pcall(open, policy, KEYS[index], now, false) then
      redis.call('DEL', KEYS[index])
    end
  end
  families[index], opened[index] = children.load(KEYS[index + 1]), {open(policy, KEYS[index], now, false)}
end

for index = 1, #KEYS, 2 do
  local at = (9 * index - 3) / 2
  local key, rule, amount, lasts, name = KEYS[index], rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 8]
  local family, is_fixed = families[index], rule == rules.fixed_window
  local scale = children.scale(ARGV[at + 7] + 0, is_fixed, ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 6] + 0)
  local state, marks, found, _, _, _, _, limit, a, b, c = unpack(opened[index], 1, 11)
  -- A window that has ended since has nothing to give back. What was used still counts under a slower limit.
  local counts = verb ~= 'take back' or now < lasts
  local is_child, changes = scale and name ~= '' and counts, counts
  if verb == 'reset' then
    redis.call('DEL', key)
    -- The marks stay.
    state, found = load(key), marks
  elseif verb == 'settle' then
    changes = amount > 0 and limit > 0
    if changes then
      rule.settle(state, now, amount, limit, a, b, c)
      found = true
    end
    if is_child then
      children.use_up(family, name, amount, now, scale)
      children.save(family, scale, shortest)
    end
  elseif counts then
    rule.refund(state, now, amount, limit, a, b, c)
    if is_child and #family.each > 0 then
      children.give_back(family, name, amount, now, scale)
      children.save(family, scale, shortest)
    end
  end
  if found and changes then
    save(rule, key, state, words_of(state), marks, now, shortest, nil, limit, a, b, c)
  end
end
return 1
