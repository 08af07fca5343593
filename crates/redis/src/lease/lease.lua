-- Decides on requests as `charge.lua` does, and leases units to the node that asks; the rule is that of `leased.rs`.
-- KEYS: the state of each charge. ARGV: the time, or nothing; how many policies, and each one's rule and four numbers, the
-- limit first, how long an epoch is, the time that a node asks for, how many times its share of the room a node is granted, as
-- two numbers, and for how long before the end of a window grants shrink, times in microseconds; then for each request how many charges it has, and each charge's policy, its cost, whether it
-- is soft as in `charge.lua`, how many units the node asks for, for how many of them requests wait, how many requests have
-- asked it for, and of how many classes it tells, and for each of these its end and how many units were spent and are given
-- back.
-- Returns a line for each request: the time and, for each charge, whether it fits, how long its key is blocked yet, how
-- many units are granted, with the end of their class and how long they last, and the state as `charge.lua` tells it,
-- before which stands, if nodes hold units, what the mark of these says, behind a `~`.
local KEYS, ARGV = KEYS, ARGV
local now, shortest = moment(ARGV[1])
local marking = marking()
local policies, at = {}, 3
for index = 1, ARGV[2] + 0 do
  policies[index] = {
    rules[ARGV[at]], false, ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0,
    ARGV[at + 5] + 0, ARGV[at + 6] + 0, ARGV[at + 7] + 0, ARGV[at + 8] + 0, ARGV[at + 9] + 0,
  }
  at = at + 10
end

-- The class of this end: where it stands in the mark.
local function class(lease, ends)
  for index = 6, #lease, 2 do
    if lease[index] == ends then
      return index
    end
  end
end

-- Hears what has become of units of some classes: those of a class that has ended are charged already. Returns how many
-- are not held any more.
local function hear(rule, lease, state, place, tells, limit, a, b, c)
  local freed = 0
  for index = 1, tells do
    local index_of_tell = place + 3 * (index - 1)
    local found = class(lease, ARGV[index_of_tell] + 0)
    if found then
      local units = lease[found + 1]
      local spent = math.min(ARGV[index_of_tell + 1] + 0, units)
      local left = math.max(units - spent - ARGV[index_of_tell + 2], 0)
      lease[found + 1], freed = left, freed + units - left
      if spent > 0 then
        rule.charge(state, now, spent, limit, a, b, c)
      end
    end
  end
  for index = #lease - 1, 6, -2 do
    if lease[index + 1] == 0 then
      table.remove(lease, index)
      table.remove(lease, index)
    end
  end
  return freed
end

-- Adds what requests have asked for to the demand, and returns the demand in the time that nodes ask for.
local function demand(lease, seen, covers)
  local span = math.floor(now / covers)
  if lease[3] == span - 1 then
    lease[4], lease[5] = lease[5], 0
  elseif lease[3] ~= span then
    lease[4], lease[5] = 0, 0
  end
  lease[3], lease[5] = span, math.min(lease[5] + seen, 4294967295)
  local before = divided(lease[4], covers - now % covers, covers)
  return before + lease[5]
end

-- Grants units to a node. Returns how many, their end, and how long they last, or would last if there were any.
local function grant(rule, lease, state, leased, cost, asked, awaited, wanted, policy, limit, a, b, c)
  local epoch, tapers = policy[7], policy[11]
  if asked == 0 or limit < 8 * math.max(cost, 1) then
    return 0, 0, 0
  end
  local ends = (math.floor(now / epoch) + 2) * epoch
  if rule.bin_end then
    ends = math.min(ends, rule.bin_end(state, now, limit, a, b, c))
  end
  -- Nodes know a class by its end. If ends were moved, they may hold units of one that would end at this moment.
  ends = ends - lease[2] % 1000
  local lasts = ends - now
  if lasts <= 0 then
    return 0, 0, 0
  end
  local room = math.max(rule.remaining(state, now, limit, a, b, c) - leased, 0)
  local share = divided(policy[9] * asked, room, policy[10] * math.max(wanted, asked, 1))
  local most = asked
  if lasts < tapers then
    most = divided(asked, lasts, tapers)
  end
  local units = math.min(most, math.floor(room / 4), share)
  if units < cost then
    units = 0
  end
  units = math.max(units, math.min(awaited, room))
  local found = class(lease, ends)
  if units == 0 or not found and #lease == 21 then
    return 0, ends, lasts
  end
  if found then
    lease[found + 1] = lease[found + 1] + units
  else
    local place = 6
    while lease[place] and lease[place] < ends do
      place = place + 2
    end
    table.insert(lease, place, ends)
    table.insert(lease, place + 1, units)
  end
  lease[1] = math.max(lease[1], lasts)
  return units, ends, lasts
end

-- As in `charge.lua`. Returns also where the next charge stands in ARGV.
local function decide(index, last, place, allowed)
  local policy = policies[ARGV[place] + 0]
  local rule, key, cost, softness = policy[1], KEYS[index], ARGV[place + 1] + 0, ARGV[place + 2]
  local asked, awaited = ARGV[place + 3] + 0, ARGV[place + 4] + 0
  local seen, tells = ARGV[place + 5] + 0, ARGV[place + 6] + 0
  local state, marks, text, changed, blocked, own, leased, limit, a, b, c = open(policy, key, now, true)
  local found = text ~= nil
  marks = marks or {}
  local lease = marks.lease
  if lease and tells > 0 then
    leased = leased - hear(rule, lease, state, place + 7, tells, limit, a, b, c)
  end
  local fits = limit > 0 and cost <= limit
    and (cost == 0 or leased + cost <= limit and rule.admits(state, now, leased + cost, limit, a, b, c))
  if blocked ~= '0' and softness ~= '2' or not fits and softness == '0' then
    allowed = false
  end
  local behind, next_place = '', place + 7 + 3 * tells
  if index < last then
    allowed, behind, next_place = decide(index + 1, last, next_place, allowed)
  end

  local charged = allowed and fits and cost > 0 and blocked == '0'
  if charged then
    rule.charge(state, now, cost, limit, a, b, c)
  end
  local units, ends, lasts = 0, 0, 0
  local leases = policy[7] > 0 and allowed and blocked == '0'
  if leases then
    if not lease and asked > 0 then
      lease = {0, 0, 0, 0, 0}
    end
    if lease then
      local wanted = demand(lease, seen, policy[8])
      units, ends, lasts = grant(rule, lease, state, leased, cost, asked, awaited, wanted, policy, limit, a, b, c)
      marks.lease = lease
    end
  end
  changed = changed or charged or tells > 0 or leases and lease
  if changed or rule.words and found then
    text = (rule.words or words_of)(state, now, cost, limit, a, b, c)
  end
  if changed or found and dies_wrongly(rule, key, state, now, nil, limit, a, b, c) then
    save(rule, key, state, text, next(marks) and marks, now, shortest, nil, limit, a, b, c)
  end
  local holds = lease and #lease > 5 and marking.text_of({lease = lease}) .. '|' or ''
  local granted = string.format(';%d;%d;%d;', units, ends, lasts)
  return allowed, (fits and ';1;' or ';0;') .. blocked .. granted .. holds .. own .. (text or '') .. behind, next_place
end

local time, lines, first = string.format('%d', now), {}, 1
while first <= #KEYS do
  local charges = ARGV[at] + 0
  local is_decided, failed, text, behind = pcall(decide, first, first + charges - 1, at + 1, true)
  if is_decided then
    lines[#lines + 1], at = time .. text, behind
  else
    local message, is_of_all = report(failed)
    -- A call that has one request fails as a whole.
    if is_of_all or charges == #KEYS then
      return {err = message}
    end
    lines[#lines + 1], at = '-' .. message, at + 1
    for _ = 1, charges do
      at = at + 7 + 3 * ARGV[at + 6]
    end
  end
  first = first + charges
end
return table.concat(lines, '\n')
