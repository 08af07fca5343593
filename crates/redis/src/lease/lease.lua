-- Decides on requests as `charge.lua` does, and leases units to the node that asks; the rule is that of `leased.rs`.
-- KEYS: the state of each charge; if its limit is divided among tenants, the tenants and the state of the tenant's key follow, as in
-- `divided.lua`. ARGV: the time, or nothing; how many policies, and each one's rule and four numbers, the
-- limit first, how long an epoch is, the time that a node asks for, how many times its share of the room a node is granted, as
-- two numbers, and for how long before the end of a window grants shrink, times in microseconds, and, if the limit is divided, `shares`
-- and the three numbers of its scale; then for each request how many charges it has, and each charge's policy, its cost, whether it
-- is soft as in `charge.lua`, how many units the node asks for, for how many of them requests wait, how many requests have
-- asked it for, and of how many classes it tells, and for each of these its end and how many units were spent and are given
-- back, and, if the limit is divided, the weight and the field of the tenant.
-- Returns a line for each request: the time and, for each charge, whether it fits, how long its key is blocked yet, how
-- many units are granted, with the end of their class and how long they last, and the state as `charge.lua` tells it,
-- before which stands, if nodes hold units, what the mark of these says, behind a `~`, and before that what a tenant may take.
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
  if ARGV[at] == 'shares' then
    local fill, active_for, tenants = ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0
    policies[index].scale = {limit = policies[index][3], fill = fill, active_for = active_for, tenants = tenants}
    at = at + 4
  end
end

-- Returns where what is behind this charge stands in ARGV, and the index of the first key behind its keys.
local function behind(place, key)
  local next_place = place + 7 + 3 * ARGV[place + 6]
  if policies[ARGV[place] + 0].scale then
    return next_place + 2, key + 3
  end
  return next_place, key + 1
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
-- are not held any more, and how many of these were given back.
local function hear(rule, lease, state, place, tells, limit, a, b, c)
  local freed, returned = 0, 0
  for index = 1, tells do
    local index_of_tell = place + 3 * (index - 1)
    local found = class(lease, ARGV[index_of_tell] + 0)
    if found then
      local units = lease[found + 1]
      local spent = math.min(ARGV[index_of_tell + 1] + 0, units)
      local left = math.max(units - spent - ARGV[index_of_tell + 2], 0)
      lease[found + 1], freed, returned = left, freed + units - left, returned + units - spent - left
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
  return freed, returned
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

-- Gives units back to the claim of a tenant, which grants have taken from it.
local function restore(tenants, field, units)
  local place = tenants.places[field] or tenants.places['*']
  if not place then
    return
  end
  local tenant = shares.tenant(tenants, place)
  local claim = tenant.standing == 0 and 0 or shares.most(tenants, tenant) / tenant.weight
  shares.count_out(tenants, tenant)
  local least = math.min(tenant.tag, tenants.virtual - claim)
  tenant.tag = math.max(tenant.tag - shares.time_of(tenants, units) / tenant.weight, least)
  shares.count_in(tenants, tenant)
end

-- Finds out what the tenant of a charge may take, which is active if its node has had requests. Returns all tenants, and in that case
-- this one and its share.
local function ask_for_share(policy, key, weight, field, returned, is_active)
  local tenants = shares.load(key, policy.scale, field)
  if returned > 0 then
    restore(tenants, field, returned)
  end
  if is_active then
    local share, tenant = shares.ask(tenants, field, weight, now)
    return tenants, tenant, share
  end
  return tenants
end

-- Returns how many whole units a tenant claims.
local function claimed(tenants, tenant)
  return shares.share_of(tenants, tenant, false, tenants.virtual, tenants.growing, tenants.at).claimed
end

-- Follows the end of a request of a tenant, as `divided.lua` does.
local function conclude(tenants, tenant, share, cost, charged, is_refused, whole_after)
  if charged then
    shares.charge(tenants, tenant, cost)
  elseif is_refused then
    shares.refuse(tenants, tenant, share, cost, whole_after)
  else
    shares.stop_waiting(tenants, tenant)
  end
end

-- Grants units to a node. Returns how many, their end, and how long they last, or would last if there were any. If the limit is divided,
-- `claim` is how many units the tenant claims: no more are granted.
local function grant(rule, lease, state, leased, claim, cost, asked, awaited, wanted, policy, limit, a, b, c)
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
  local share
  if claim then
    room = math.min(room, claim)
    share = math.floor(room / 2)
  else
    share = divided(policy[9] * asked, room, policy[10] * math.max(wanted, asked, 1))
    share = math.min(math.floor(room / 4), share)
  end
  local most = asked
  if lasts < tapers then
    most = divided(asked, lasts, tapers)
  end
  local units = math.min(most, share)
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

-- Decides on the charge that stands here and on those behind it, `left` in all. `denying` is how many charges before it deny, and `otherwise`
-- how many of them do it other than by a divided limit that gives the request a turn. Returns both of all charges, their text, and what is behind
-- them as `behind` does.
local function decide(left, place, key, denying, otherwise)
  local policy = policies[ARGV[place] + 0]
  local rule, cost, softness = policy[1], ARGV[place + 1] + 0, ARGV[place + 2]
  local asked, awaited = ARGV[place + 3] + 0, ARGV[place + 4] + 0
  local seen, tells = ARGV[place + 5] + 0, ARGV[place + 6] + 0
  local next_place, next_key = behind(place, key)
  local state, marks, text, changed, blocked, own, leased, limit, a, b, c = open(policy, KEYS[key], now, true)
  local found, needed, returned = text ~= nil, cost, 0
  marks = marks or {}
  local lease = marks.lease
  if lease and tells > 0 then
    local freed
    freed, returned = hear(rule, lease, state, place + 7, tells, limit, a, b, c)
    leased = leased - freed
  end
  local tenants, tenant, share
  if policy.scale then
    local weight, field = ARGV[next_place - 2] + 0, ARGV[next_place - 1]
    local is_active = cost > 0 or asked > 0 or seen > 0
    tenants, tenant, share = ask_for_share(policy, KEYS[key + 1], weight, field, returned, is_active)
    needed = share and shares.needs(share, cost) or cost
    blocked = select(5, open(policy, KEYS[key + 2], now, true))
  end
  local fits = limit > 0 and cost <= limit
    and (cost == 0 or leased + needed <= limit and rule.admits(state, now, leased + needed, limit, a, b, c))
  local denies = blocked ~= '0' and softness ~= '2' or not fits and softness == '0'
  local gives_turn = share and blocked == '0' and not fits and cost > 0 and cost <= limit
  if denies then
    denying, otherwise = denying + 1, otherwise + (gives_turn and 0 or 1)
  end
  local texts = ''
  if left > 1 then
    denying, otherwise, texts, next_place, next_key = decide(left - 1, next_place, next_key, denying, otherwise)
  end

  local allowed = denying == 0
  local charged = allowed and fits and cost > 0 and blocked == '0'
  if charged then
    rule.charge(state, now, cost, limit, a, b, c)
  end
  if tenant and cost > 0 then
    local is_refused = gives_turn and otherwise == 0
    local whole_after = is_refused and rule.reset_after(state, now, limit, a, b, c) + shares.time_of(tenants, leased)
    conclude(tenants, tenant, share, cost, charged, is_refused, whole_after)
  end
  local units, ends, lasts = 0, 0, 0
  local leases = policy[7] > 0 and allowed and blocked == '0'
  if leases then
    if not lease and asked > 0 then
      lease = {0, 0, 0, 0, 0}
    end
    if lease then
      local wanted, claim = demand(lease, seen, policy[8]), nil
      if tenants then
        -- What a tenant claims that waits is kept for the request that waits.
        claim = tenant and not tenant.waits and tenant.turn == 0 and claimed(tenants, tenant) or 0
        -- And what is kept for turns is left to them.
        claim = math.min(claim, math.max(rule.remaining(state, now, limit, a, b, c) - leased - (share and share.kept or 0), 0))
      end
      units, ends, lasts = grant(rule, lease, state, leased, claim, cost, asked, awaited, wanted, policy, limit, a, b, c)
      marks.lease = lease
    end
  end
  changed = changed or charged or tells > 0 or leases and lease
  if changed or rule.words and found then
    text = (rule.words or words_of)(state, now, cost, limit, a, b, c)
  end
  if changed or found and dies_wrongly(rule, KEYS[key], state, now, nil, limit, a, b, c) then
    save(rule, KEYS[key], state, text, next(marks) and marks, now, shortest, nil, limit, a, b, c)
  end
  local told = lease and #lease > 5 and marking.text_of({lease = lease}) .. '|' or ''
  if tenant then
    if units > 0 then
      shares.charge(tenants, tenant, units)
    end
    -- What the tenant may take from now on, beside what this request has taken.
    share = shares.share_of(tenants, tenant, false, tenants.virtual, tenants.growing, tenants.at)
    share.claim = share.claim + (charged and cost or 0)
    told = shares.text(share) .. told
  end
  if tenants and tenants.count > 0 then
    shares.save(tenants, shortest)
  end
  local granted = string.format(';%d;%d;%d;', units, ends, lasts)
  return denying, otherwise, (fits and ';1;' or ';0;') .. blocked .. granted .. told .. own .. (text or '') .. texts, next_place, next_key
end

local time, lines, key = string.format('%d', now), {}, 1
while key <= #KEYS do
  local charges, next_place, next_key = ARGV[at] + 0, at + 1, key
  for _ = 1, charges do
    next_place, next_key = behind(next_place, next_key)
  end
  local is_decided, failed, _, text = pcall(decide, charges, at + 1, key, 0, 0)
  if is_decided then
    lines[#lines + 1] = time .. text
  else
    local message, is_of_all = report(failed)
    -- A call that has one request fails as a whole.
    if is_of_all or key == 1 and next_key > #KEYS then
      return {err = message}
    end
    lines[#lines + 1] = '-' .. message
  end
  at, key = next_place, next_key
end
return table.concat(lines, '\n')
