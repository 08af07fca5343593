-- Changes the states of keys, without a decision.
-- KEYS: the states.
-- ARGV: the time, or nothing; the verb; then for each key its rule, the amount, a moment, four numbers of the rule,
-- the limit first, and its hours or nothing; and last, for a key that gets an override, the four numbers of that.
-- Returns 1 if it is done, else 0: turns of a queue may not be the last, and to end a block there has to be one. For
-- `refusals` it returns how many count, and for `leased`, how many units nodes hold.
local now, shortest = moment(ARGV[1])
local verb, marking, counting = ARGV[2], marking(), 0
local is_done = verb ~= 'give back' and verb ~= 'unblock'

for index = 1, #KEYS do
  local at = 8 * index - 5
  local key, rule, amount, departure = KEYS[index], rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 2] + 0
  local hours = ARGV[at + 7] ~= '' and ARGV[at + 7]
  local policy = {rule, hours, ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0}
  if verb == 'reset' and not pcall(open, policy, key, now, false) then
    -- Data that no rule can read has no marks, and is removed as well.
    redis.call('DEL', key)
  end
  local state, marks, found, _, _, _, leased, limit, a, b, c, longest = open(policy, key, now, false)
  marks = marks or {}
  local policys = marks.own and marks.own.policys or longest or {limit, a, b, c}
  if verb == 'reset' then
    -- The marks stay.
    redis.call('DEL', key)
    state, found = (rule.load or load)(key), false
  end
  -- What changes nothing is not written: what has drained under the limit of the policy may still count under a slower one of a request.
  -- Until the moment at which another limit is set, a debt drains under the limit before it.
  local changes = true
  if verb == 'refund' then
    rule.refund(state, now, amount, limit, a, b, c)
  elseif verb == 'take back' then
    -- A window that has ended since has nothing to give back.
    changes = now < departure
    if changes then
      rule.refund(state, now, amount, limit, a, b, c)
    end
  elseif verb == 'settle' then
    changes = amount > 0 and limit > 0
    if changes then
      rule.settle(state, now, amount, limit, a, b, c)
      found = true
    end
  elseif verb == 'give back' and rule.give_back then
    is_done = rule.give_back(state, now, amount, departure, limit, a, b, c)
    changes = is_done
  elseif verb == 'release' and rule.release then
    rule.release(key, amount, departure)
    changes = false
  elseif verb == 'block' then
    changes = amount > (marks.block and marking.left(marks.block, now) or 0)
    marks.block = changes and {now, now + amount} or marks.block
  elseif verb == 'unblock' then
    is_done, changes = is_done or marks.block ~= nil, marks.block or marks.offences
    marks.block, marks.offences = nil, nil
  elseif verb == 'refusals' then
    counting, changes = counting + marking.refusals(marks, now, amount), false
  elseif verb == 'leased' then
    counting, changes = counting + leased, false
  elseif verb == 'override' then
    rule.refund(state, now, 0, limit, a, b, c)
    local last = #ARGV
    limit, a, b, c = ARGV[last - 3] + 0, ARGV[last - 2] + 0, ARGV[last - 1] + 0, ARGV[last] + 0
    marks.own = {now, now + amount, limit, a, b, c, policys = policys}
    longest = rule.present and policys
  elseif verb == 'end override' then
    changes = marks.own
    if changes then
      rule.refund(state, now, 0, limit, a, b, c)
      longest, marks.own = policys, nil
    end
  end
  if changes and (found or marks.block or marks.own or marks.offences or marks.lease) then
    save(rule, key, state, not rule.save and words_of(state), marks, now, shortest, longest, limit, a, b, c)
  end
end
return (verb == 'refusals' or verb == 'leased') and counting or is_done and 1 or 0
